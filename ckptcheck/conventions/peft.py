"""Adapters of PEFT: weights beside a base model that is not in the checkpoint."""

from collections.abc import Sequence
from typing import Final

from ckptcheck.conventions.files import files_of, first_of, keeps_order
from ckptcheck.conventions.parts import Parts, checkpoint
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTree

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = ("adapter_model.safetensors", "adapter_model.bin")
BASE_ABSENT: Final = "an adapter: the base model's weights are not part of it by design"


class Peft:
    """Told by `adapter_config.json`."""

    name = "peft"

    def claims(self, raw: RawTree) -> bool:
        """Whether the adapter's configuration is there."""
        return CONFIG in files_of(raw)

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """The adapter's weights under the file's own names, which lack the adapter's name."""
        files = files_of(raw)
        path = first_of(raw, *WEIGHTS)
        parts = Parts(notes=[BASE_ABSENT])
        if path:
            parts.model, parts.ordered = files[path], keeps_order(raw, path)
        parts.extra = {one: value for one, value in files.items() if one != path}
        return checkpoint(raw, self.name, parts, names)
