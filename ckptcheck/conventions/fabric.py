"""Folders of Lightning Fabric's sharded strategies: models and optimizers as slices, all else in `meta.pt`.

A file that Fabric saved whole is the dict that the user gave it, and cannot be told from any script's own.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ckptcheck.conventions.lightning import VERSION
from ckptcheck.conventions.parts import checkpoint
from ckptcheck.conventions.plain import sort_root
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTree

META: Final = "meta.pt"


class Fabric:
    """Told by `meta.pt` beside the slices, without the Trainer's version in it."""

    name = "fabric"

    def claims(self, raw: RawTree) -> bool:
        """Whether the rest of a state lies beside the slices, and nothing else."""
        if raw.container != "dcp" or not isinstance(raw.root, Mapping):
            return False
        meta = _beside(raw).get(META)
        return isinstance(meta, Mapping) and VERSION not in meta

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """All under the user's own keys."""
        root: dict[Any, Raw] = dict(raw.root)
        for label, value in _beside(raw).items():
            found = value.items() if label == META else [(label, value)]
            for key, one in found:
                root[key if key not in root else f"{label}.{key}"] = one
        lost = raw.facts.get("unordered", ())
        return checkpoint(raw, self.name, sort_root(root, ordered=not lost), names)


def _beside(raw: RawTree) -> dict[str, Raw]:
    return {label.rpartition("/")[2]: tree.root for label, tree in raw.files.items()}
