"""torchtitan's distributed checkpoints: the model's tensors lie at the top, beside the other parts.

`optimizer` is flattened to one key per value, `lr_scheduler` may hold its epoch alone, `dataloader` one pickle for each
data-parallel rank, `train_state` the counters. The last save of a run holds the model alone.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ckptcheck.conventions import rng
from ckptcheck.conventions.flat_optimizer import is_flat
from ckptcheck.conventions.parts import Parts, checkpoint, put
from ckptcheck.conventions.progress import is_counter, number_of
from ckptcheck.conventions.sorting import MODEL_KEYS
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTensor, RawTree

TRAIN_STATE: Final = "train_state"
OPTIMIZER: Final = "optimizer"
SCHEDULER: Final = "lr_scheduler"
DATA: Final = "dataloader"
_FOLDER: Final = re.compile(r"step-(?P<step>\d{1,18})")
_MODEL_ALONE: Final = (
    "holds the model alone, as torchtitan's last save does unless last_save_model_only is off: no optimizer, schedule "
    "or data position is normal there, and no run can go on from it"
)


class TorchTitan:
    """Told by tensors at the top beside `train_state`; a model alone by its folder's name, `step-N`."""

    name = "torchtitan"

    def claims(self, raw: RawTree) -> bool:
        """Whether the parts, or the folder's name and tensors alone, are torchtitan's."""
        if raw.container != "dcp" or not isinstance(raw.root, Mapping) or raw.files:
            return False
        return _is_whole(raw.root) or (_step_in(raw) is not None and _is_model(raw.root))

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Sort by the keys that torchtitan gives."""
        weights = {key: one for key, one in raw.root.items() if _is_weight(key, one)}
        lost = raw.facts.get("unordered", ())
        parts = Parts(model=weights, ordered=not any(key in lost for key in weights))
        for key, value in raw.root.items():
            if key not in weights:
                _sort(key, value, parts)
        if len(weights) == len(raw.root):
            step = _step_in(raw)
            parts.step, parts.recorded_step = step, f"step {step} (the folder's name)"
            parts.notes.append(_MODEL_ALONE)
        return checkpoint(raw, self.name, parts, names)


def _is_whole(root: Mapping[Any, Raw]) -> bool:
    state, optimizer = root.get(TRAIN_STATE), root.get(OPTIMIZER)
    has_step = isinstance(state, Mapping) and number_of(state.get("step")) is not None
    is_other = any(isinstance(root.get(key), Mapping) for key in MODEL_KEYS)
    is_torchtitans = optimizer is None or is_flat(optimizer)
    return has_step and is_torchtitans and not is_other and any(map(_is_named, root.items()))


def _is_model(root: Mapping[Any, Raw]) -> bool:
    """Whether there is nothing but tensors with names as modules give them."""
    return bool(root) and all(map(_is_named, root.items()))


def _is_named(item: tuple[Any, Raw]) -> bool:
    return _is_weight(*item) and "." in item[0]


def _is_weight(key: Any, value: Raw) -> bool:
    is_tensor = isinstance(value, RawTensor) and isinstance(key, str)
    return is_tensor and rng.kind_of(key, value) is None and not is_counter(key, value)


def _step_in(raw: RawTree) -> int | None:
    """The step in the folder's name; None where it has another."""
    match = _FOLDER.fullmatch(raw.path.name)
    return int(match["step"]) if match else None


def _sort(key: Any, value: Raw, parts: Parts) -> None:
    """One part that is no tensor of the model."""
    if key == OPTIMIZER and is_flat(value):
        parts.optimizers[key] = value
    elif key == SCHEDULER and isinstance(value, Mapping):
        parts.schedulers[key] = value
    elif key == DATA and isinstance(value, Mapping) and value:
        parts.data[key] = value
    elif key == TRAIN_STATE and isinstance(value, Mapping):
        for inner, one in value.items():
            put(parts.progress if is_counter(inner, one) else parts.extra, f"{key}.{inner}", one)
    elif rng.is_generators(value):
        parts.generators.setdefault(0, []).append(value)
    elif rng.kind_of(key, value):
        parts.generators.setdefault(0, []).append({key: value})
    elif is_counter(key, value):
        put(parts.progress, str(key), value)
    else:
        parts.unrecognised.append(put(parts.extra, str(key), value))
