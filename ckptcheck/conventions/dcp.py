"""Checkpoints of torch.distributed.checkpoint, whoever called it: get_state_dict, torchtitan, FSDP, Lightning, scripts.

Most are plain dicts under their own keys. Two habits need more: an optimizer flattened to one key per value
(`ckptcheck.conventions.flat_optimizer`), and a model whose tensors lie beside the other parts, not under a key.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ckptcheck.conventions import rng
from ckptcheck.conventions.flat_optimizer import is_flat
from ckptcheck.conventions.lightning import VERSION, Lightning, lightning_parts
from ckptcheck.conventions.parts import checkpoint
from ckptcheck.conventions.plain import sort_root
from ckptcheck.conventions.progress import is_counter
from ckptcheck.conventions.sorting import MODEL_KEYS, is_optimizer
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTensor, RawTree

LIGHTNING_FILE: Final = "meta.pt"
"""What Lightning keeps beside the slices: everything but weights and optimizers."""
MODEL: Final = "model"
_OPTIMIZER: Final = re.compile(r"optimizer_\d+")


class Dcp:
    """A `Convention`."""

    name = "dcp"

    def claims(self, raw: RawTree) -> bool:
        """Whether the container is DCP's."""
        return raw.container == "dcp" and isinstance(raw.root, Mapping)

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Sort the parts by key and content."""
        lightning = _as_lightning(raw)
        if lightning is not None:
            return checkpoint(raw, Lightning.name, lightning_parts(lightning), names)
        root = _with_model(_with_beside(raw))
        return checkpoint(raw, self.name, sort_root(root, ordered=_is_ordered(raw, root)), names)


def _as_lightning(raw: RawTree) -> dict[Any, Raw] | None:
    """A sharded Lightning checkpoint as the dict of a whole one; None where it is none."""
    beside = {label.rpartition("/")[2]: tree.root for label, tree in raw.files.items()}
    meta = beside.get(LIGHTNING_FILE)
    if not isinstance(meta, Mapping) or VERSION not in meta:
        return None
    states = {key: value for key, value in raw.root.items() if isinstance(key, str) and _OPTIMIZER.fullmatch(key)}
    rest = {key: value for key, value in raw.root.items() if key != MODEL and key not in states}
    found = {**meta, **rest, "state_dict": raw.root.get(MODEL)}
    if states:
        found["optimizer_states"] = [states[key] for key in sorted(states, key=lambda key: int(key.rpartition("_")[2]))]
    return found


def _with_beside(raw: RawTree) -> dict[Any, Raw]:
    """The root with what lies beside the slices: Lightning's under its own keys, any other file under its name."""
    found = dict(raw.root)
    for label, tree in raw.files.items():
        name = label.rpartition("/")[2]
        if name == LIGHTNING_FILE and isinstance(tree.root, Mapping):
            found = {**tree.root, **found}
        else:
            found[name] = tree.root
    return found


def _with_model(root: dict[Any, Raw]) -> dict[Any, Raw]:
    """The root with tensors that lie at its top gathered into a model, where other parts lie beside them."""
    tensors = {key: value for key, value in root.items() if _is_weight(key, value)}
    rest = {key: value for key, value in root.items() if key not in tensors}
    if not any(isinstance(value, Mapping) for value in rest.values()) or any(key in rest for key in MODEL_KEYS):
        return root
    return {MODEL: tensors, **rest} if any("." in key for key in tensors) else root


def _is_weight(key: Any, value: Raw) -> bool:
    is_tensor = isinstance(value, RawTensor) and isinstance(key, str)
    return is_tensor and rng.kind_of(key, value) is None and not is_counter(key, value)


def _is_ordered(raw: RawTree, root: Mapping[Any, Raw]) -> bool:
    """Whether the model's tensors keep their order: not where ranks saved some of them each."""
    lost = raw.facts.get("unordered", ())
    return not any(key in lost for key, value in root.items() if not is_optimizer(value) and not is_flat(value))
