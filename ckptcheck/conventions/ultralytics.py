"""Files of the YOLO trainers of Ultralytics: pickled modules in half precision.

Source: ultralytics 8.4, `BaseTrainer.save_model` and `resume_training`, `strip_optimizer`; YOLOv5 has the same keys.
"""

from collections.abc import Mapping
from typing import Any, Final

from ckptcheck.conventions.module_attributes import submodules
from ckptcheck.conventions.parts import Parts, put
from ckptcheck.conventions.progress import number_of
from ckptcheck.conventions.single_file import Root, SingleFile, leave, sorted_beside
from ckptcheck.conventions.weights import is_module, module_tensors
from ckptcheck.state.raw import Raw

KEYS: Final = frozenset({"epoch", "best_fitness", "model", "ema", "updates", "optimizer"})
"""Keys of every version, of a finished training too."""
TAKEN: Final = ("model", "ema", "updates")
DESCRIBED: Final = (
    "best_fitness", "stopper", "train_args", "opt", "train_metrics", "train_results", "date", "version", "git",
    "license", "docs", "wandb_id", "modelopt",
)  # fmt: skip
UPDATES: Final = "updates"
FINISHED: Final = -1
"""The epoch of a file that `strip_optimizer` has made small."""


def _wrote(root: Root, _: str) -> bool:
    """All the keys, and a whole module where others have a state_dict."""
    return root.keys() >= KEYS and (is_module(root["model"]) or (root["model"] is None and is_module(root["ema"])))


def _sort(root: Root) -> Parts:
    """The average is updated with each step of the optimizer, so that its counter is that of steps.

    Newer files keep the average alone, and a resume starts the model from it, too: it is the model here.
    """
    model, average = root["model"], root["ema"]
    parts = sorted_beside(root, described=DESCRIBED, taken=TAKEN, model=average if model is None else model)
    if model is None:
        parts.models["ema"] = average
        parts.notes.append("the file keeps the averaged weights alone: a resume starts the model from them, too")
    else:
        _add_average(average, parts)
    step = number_of(root[UPDATES])
    if step is None:
        put(parts.extra, UPDATES, root[UPDATES])
    else:
        parts.progress[UPDATES] = root[UPDATES]
        parts.step, parts.recorded_step = step, f"{UPDATES} {step}"
    if number_of(root["epoch"]) == FINISHED and root["optimizer"] is None and root["ema"] is None:
        parts.recorded_step = f"epoch {FINISHED}"
        parts.notes.append(
            "the training is finished: its optimizer was taken off and its average became the model (strip_optimizer), "
            "so nothing is left to resume"
        )
    return parts


def _add_average(average: Raw, parts: Parts) -> None:
    """A whole module, in older files; a state_dict, None, or what somebody put there."""
    if is_module(average):
        parts.models["ema"] = average
        parts.ema["ema"] = dict(module_tensors(average, "", {}))
        put(parts.extra, "ema", {name: _own(one.state) for name, one in submodules(average)})
    elif isinstance(average, Mapping):
        parts.models["ema"] = parts.ema["ema"] = average
    else:
        leave(parts, "ema", average)


def _own(attributes: Mapping[Any, Raw]) -> dict[Any, Raw]:
    """What a module has beside its tensors, children and torch's bookkeeping."""
    return {key: value for key, value in attributes.items() if not str(key).startswith("_")}


ULTRALYTICS: Final = SingleFile("ultralytics", _wrote, _sort)
