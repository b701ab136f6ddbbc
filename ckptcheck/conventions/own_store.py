"""Training states that `ckptcheck save` wrote."""

from collections.abc import Sequence
from dataclasses import replace

from ckptcheck.conventions.entries import entry
from ckptcheck.conventions.parts import PROGRESS
from ckptcheck.state.checkpoint import Checkpoint, NameSource, Naming
from ckptcheck.state.raw import RawTree
from ckptcheck.store.layout import MANIFEST
from ckptcheck.store.read import read_state


class OwnStore:
    """Told by its container."""

    name = "store"

    def claims(self, raw: RawTree) -> bool:
        """Whether a store was read."""
        return raw.container == "store"

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Everything is named in the manifest. Raises StoreError where the store is damaged."""
        state = read_state(raw.path)
        if state.step is not None:  # a script's own dict has the same number as a value
            state = replace(state, sections={**state.sections, PROGRESS: {"step": entry(state.step)}})
        naming = Naming(NameSource.KEYS, certain=True, reason="saved by name")
        return Checkpoint(
            raw=raw,
            convention=self.name,
            state=state,
            namings=tuple(naming for _ in state.optimizers),
            optimizer_labels=("",) * len(state.optimizers),
            recorded_step="" if state.step is None else f"step {state.step} ({MANIFEST})",
        )
