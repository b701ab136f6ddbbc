"""The `checkpoint_last.pt` and others of fairseq's trainer.

Source: fairseq 0.12.2, `fairseq.trainer.Trainer.state_dict`, `fairseq.optim.fp16_optimizer`.
"""

from collections.abc import Mapping
from typing import Any, Final

from ckptcheck.conventions.groups import is_optimizer, member_count
from ckptcheck.conventions.parts import Parts, put
from ckptcheck.conventions.progress import number_of
from ckptcheck.conventions.single_file import Root, SingleFile, leave, sorted_beside
from ckptcheck.conventions.sorting import is_state_dict
from ckptcheck.state.raw import Raw

HISTORY: Final = "optimizer_history"
OPTIMIZER: Final = "last_optimizer_state"
BESIDE: Final = "extra_state"
SCALE: Final = "loss_scale"
SCHEDULE: Final = "lr_scheduler_state"
UPDATES: Final = "num_updates"
ITERATOR: Final = "train_iterator"
EMA: Final = "ema"
EMA_MASTERS: Final = "ema_fp32_params"
TAKEN: Final = ("model", "criterion", HISTORY, OPTIMIZER, BESIDE)
DESCRIBED: Final = ("args", "cfg", "task_state", "fsdp_metadata")


def _wrote(root: Root, _: str) -> bool:
    """Its history of optimizers is its own."""
    last = _last(root.get(HISTORY))
    return "optimizer_name" in last and isinstance(root.get("model"), Mapping) and BESIDE in root


def _last(history: Raw) -> Mapping[Any, Raw]:
    """The latest of the optimizers that the training had, in words; each resume adds one."""
    is_history = isinstance(history, list) and bool(history) and isinstance(history[-1], Mapping)
    return history[-1] if is_history else {}


def _sort(root: Root) -> Parts:
    """The schedule and the counter of updates are those of the latest optimizer."""
    parts = sorted_beside(root, described=DESCRIBED, taken=TAKEN, model=root["model"])
    if "criterion" in root:
        _add_criterion(root["criterion"], parts)
    history, last = root[HISTORY], dict(_last(root[HISTORY]))
    if isinstance(last.get(SCHEDULE), Mapping):
        parts.schedulers[SCHEDULE] = last.pop(SCHEDULE)
    step = number_of(last.get(UPDATES))
    if step is not None:
        parts.progress[UPDATES] = last.pop(UPDATES)
        parts.step, parts.recorded_step = step, f"{UPDATES} {step}"
    put(parts.extra, HISTORY, [*history[:-1], last])
    if OPTIMIZER in root:
        _add_optimizer(root[OPTIMIZER], parts)
    _add_beside(root[BESIDE], parts)
    return parts


def _add_criterion(criterion: Raw, parts: Parts) -> None:
    """One with parameters is trained with the model, after it."""
    model: Mapping[Any, Raw] = parts.model
    if not is_state_dict(criterion) or "criterion" in model:
        leave(parts, "criterion", criterion)
        return
    parts.models |= {"model": model, "criterion": criterion}
    parts.model = {**model, "criterion": criterion}


def _add_optimizer(value: Raw, parts: Parts) -> None:
    """Mixed precision keeps its scale inside, and one flat copy of all parameters in the place of each."""
    if not is_optimizer(value):
        leave(parts, OPTIMIZER, value)
        return
    if SCALE in value:
        parts.scalers[SCALE] = {SCALE: value[SCALE]}
    parts.optimizers[OPTIMIZER] = {key: one for key, one in value.items() if key != SCALE}
    if member_count(value) == 1 and len(parts.model) > 1:
        parts.notes.append(f"{OPTIMIZER} has one flat copy of all parameters: its state is not told by parameter")


def _add_beside(value: Raw, parts: Parts) -> None:
    """The place in the data, the average of the weights, meters."""
    if not isinstance(value, Mapping):
        leave(parts, BESIDE, value)
        return
    rest = dict(value)
    if isinstance(rest.get(ITERATOR), Mapping):
        parts.data[ITERATOR] = rest.pop(ITERATOR)
    if isinstance(rest.get(EMA), Mapping):
        average = rest.pop(EMA)
        parts.models["ema"] = average
        parts.ema[f"{BESIDE}.{EMA}"] = held = dict(average)
        if EMA_MASTERS in rest:
            put(held, EMA_MASTERS, rest.pop(EMA_MASTERS))
    put(parts.extra, BESIDE, rest)


FAIRSEQ: Final = SingleFile("fairseq", _wrote, _sort)
