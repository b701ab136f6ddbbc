"""torchtune: weights in `epoch_K`, and what a resume needs in `recipe_state/recipe_state.pt` beside it.

Weights are in Hugging Face's naming, the optimizer in torchtune's own. A save of the asynchronous kind is one
distributed checkpoint with all of it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ckptcheck.conventions.files import files_of, keeps_order, stem
from ckptcheck.conventions.groups import is_optimizer, names_in
from ckptcheck.conventions.parts import Parts, checkpoint, put
from ckptcheck.conventions.progress import is_counter, number_of
from ckptcheck.conventions.regrouping import param_groups_of
from ckptcheck.conventions.sorting import is_state_dict, sort_dict
from ckptcheck.conventions.torchtune_names import to_hugging_face
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTree

RECIPE_KEYS: Final = frozenset({"seed", "epochs_run", "total_epochs"})
"""What every recipe saves."""
_SETTINGS: Final = frozenset({"seed", "total_epochs", "max_steps_per_epoch"})
OPTIMIZER: Final = "optimizer"
DATA: Final = "dataloader"
_RECIPE: Final = re.compile(r"(?:.+/)?recipe_state\.pt")
_EPOCH: Final = re.compile(r"(?:.+/)?epoch_(?P<epoch>\d{1,9})/(?P<file>[^/]+)")
_ADAPTER: Final = re.compile(r"adapter_model\.(?:pt|bin)")
_PEFT: Final = re.compile(r"adapter_model\.safetensors")


class TorchTune:
    """Told by the recipe's own keys."""

    name = "torchtune"

    def claims(self, raw: RawTree) -> bool:
        """Whether a recipe's state is there: a file of its name in a folder, or its keys in one checkpoint."""
        if raw.container == "dcp":
            return _is_recipe(raw.root)
        files = files_of(raw)
        if files:
            return any(_RECIPE.fullmatch(path) and _is_recipe(value) for path, value in files.items())
        return raw.container.startswith("torch-") and _is_recipe(raw.root) and OPTIMIZER in raw.root

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """The recipe's state joined with the weights of its epoch."""
        files = files_of(raw)
        if not files:
            parts = _of_recipe(raw.root, "")
            if parts.model is None:
                parts.notes.append(
                    "holds the recipe's state alone: the weights are in the folder epoch_K beside its own"
                )
            parts.ordered = keeps_order(raw, "")
            for label, tree in raw.files.items():
                parts.unrecognised.append(put(parts.extra, label, tree.root))
            return checkpoint(raw, self.name, parts, names)
        path = next(path for path, value in files.items() if _RECIPE.fullmatch(path) and _is_recipe(value))
        parts = _of_recipe(files[path], f"{stem(path)}.")
        used = _add_weights(raw, files, parts) | {path}
        for other, value in files.items():
            if other not in used:
                put(parts.extra, stem(other), value)
        _check_epoch(raw, parts)
        return checkpoint(raw, self.name, parts, names)


def _is_recipe(value: Raw) -> bool:
    return isinstance(value, Mapping) and set(value) >= RECIPE_KEYS


def _of_recipe(recipe: Mapping[Any, Raw], prefix: str) -> Parts:
    """The parts of a recipe's state; `prefix` marks where it lies, for paths of what is no part."""
    own = {key: value for key, value in recipe.items() if key not in (*_SETTINGS, DATA)}
    per_parameter = own.get(OPTIMIZER)
    if isinstance(per_parameter, Mapping) and _is_in_backward(per_parameter):
        own[OPTIMIZER] = _gathered(per_parameter)
    parts = sort_dict(own)
    for key in (key for key in recipe if key in _SETTINGS):
        put(parts.extra, f"{prefix}{key}", recipe[key])
    data = recipe.get(DATA)
    if data is not None:
        put(parts.data, DATA, data)
    if own.get(OPTIMIZER) is not per_parameter:
        parts.notes.append(
            "each parameter has an optimizer of its own, which steps in the backward pass; here they stand as one"
        )
    return parts


def _is_in_backward(value: Mapping[Any, Raw]) -> bool:
    """Whether each parameter has an optimizer of its own, by its name."""
    if not value or is_optimizer(value):
        return False
    return all(isinstance(key, str) and is_optimizer(one) and _has_one(one) for key, one in value.items())


def _has_one(optimizer: Mapping[Any, Raw]) -> bool:
    return len(optimizer["param_groups"]) == 1 and len(optimizer.get("state", {})) <= 1


def _gathered(value: Mapping[str, Mapping[Any, Raw]]) -> dict[str, Raw]:
    """The optimizers of single parameters as one optimizer, keyed by name."""
    state = {name: kept for name, one in value.items() for kept in one.get("state", {}).values()}
    beside = {
        f"{name}.{key}": held
        for name, one in value.items()
        for key, held in one.items()
        if key not in ("state", "param_groups")
    }
    groups = param_groups_of({name: one["param_groups"][0] for name, one in value.items()})
    return {"state": state, "param_groups": groups, **beside}


def _add_weights(raw: RawTree, files: Mapping[str, Raw], parts: Parts) -> set[str]:
    """The epoch's weights; of an adapter that trains, its own are the model, and the merged ones stand beside."""
    weights: dict[str, Raw] = {}
    adapters: dict[str, Raw] = {}
    for path, value in files.items():
        match = _EPOCH.fullmatch(path)
        name = match["file"] if match else path
        if is_state_dict(value) and not _RECIPE.fullmatch(path) and not _PEFT.fullmatch(name):
            (adapters if _ADAPTER.fullmatch(name) else weights)[path] = value
    path, model = next(iter((adapters or weights).items()), ("", None))
    if model is None:
        parts.notes.append("no folder epoch_K with weights lies beside the recipe's state")
        return set()
    parts.ordered = keeps_order(raw, path)
    parts.model = model
    used = {path}
    if adapters:
        parts.notes.append("the parameters are the adapter's, which alone trains; the base model lies elsewhere")
        for other, value in weights.items():
            parts.models[stem(other)] = value
    else:
        used |= _add_shards(weights, path, parts)
        _translate(parts)
    return used


def _add_shards(weights: Mapping[str, Raw], first: str, parts: Parts) -> set[str]:
    """Further files of weights of the same model, which have no index to join them."""
    whole = dict(weights[first]) if isinstance(weights[first], Mapping) else {}
    used = set()
    for path, value in weights.items():
        beside = path.rpartition("/")[0] == first.rpartition("/")[0]
        if path != first and beside and isinstance(value, Mapping) and not set(value) & set(whole):
            whole.update(value)
            used.add(path)
    if used:
        parts.model = whole
    return used


def _translate(parts: Parts) -> None:
    """Call the optimizers' parameters as the weights are called, where every one of them has such a name."""
    model = parts.model if isinstance(parts.model, Mapping) else {}
    for key, optimizer in list(parts.optimizers.items()):
        own = list(dict.fromkeys(names_in(optimizer)))
        if not own or any(name in model for name in own):
            continue
        names = {name: to_hugging_face(name) for name in own}
        if all(name in model for name in names.values()) and len(set(names.values())) == len(names):
            parts.optimizers[key] = _renamed(optimizer, names)
            parts.notes.append(f"{key} is keyed by torchtune's names; its parameters stand under those of the weights")
        else:
            parts.notes.append(
                f"{key} is keyed by torchtune's names and the weights by others: which belongs to which is not known"
            )


def _renamed(optimizer: Mapping[Any, Raw], names: Mapping[str, str]) -> dict[Any, Raw]:
    state = {names.get(key, key): kept for key, kept in optimizer.get("state", {}).items()}
    groups = [
        {
            key: [names.get(one, one) for one in value]
            if key in ("params", "param_names") and _is_texts(value)
            else value
            for key, value in group.items()
        }
        for group in optimizer["param_groups"]
    ]
    return {**optimizer, "state": state, "param_groups": groups}


def _is_texts(value: Raw) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


@dataclass(frozen=True, slots=True)
class Epochs:
    """How many epochs the recipe's state and the weights beside it have behind them, and how many there shall be.

    `total` is None where the recipe does not say.
    """

    run: int
    of_weights: int
    total: int | None

    @property
    def is_end(self) -> bool:
        """Whether the weights are of the last epoch, after which torchtune writes no recipe's state."""
        return self.total is not None and self.of_weights == self.total and self.run + 1 == self.of_weights


def epochs_of(raw: RawTree) -> Epochs | None:
    """What a folder's recipe and the names of its folders `epoch_K` say; None where one of the two does not."""
    files = files_of(raw)
    recipe = next((value for path, value in files.items() if _RECIPE.fullmatch(path) and _is_recipe(value)), None)
    newest = max((int(match["epoch"]) for match in filter(None, map(_EPOCH.fullmatch, files))), default=None)
    if recipe is None or newest is None or not is_counter("epochs_run", recipe["epochs_run"]):
        return None
    run = number_of(recipe["epochs_run"])
    return Epochs(run, newest + 1, number_of(recipe["total_epochs"])) if run is not None else None


def _check_epoch(raw: RawTree, parts: Parts) -> None:
    """Say where the weights are of a later epoch than the recipe's state, as after the last one."""
    epochs = epochs_of(raw)
    if epochs is None or epochs.run == epochs.of_weights:
        return
    parts.notes.append(
        f"the weights are of epoch_{epochs.of_weights - 1}, and recipe_state.pt was written after {epochs.run} epochs: "
        "torchtune writes none after the last epoch, and a resume would join the two"
    )
