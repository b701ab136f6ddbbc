"""CK209: optimizer state that belongs to nothing."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.stored.optimizer_state import Kept, optimizers_of
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.checkpoint import NameSource
from ckptcheck.state.tree import flatten

_NAMED: Final = frozenset({NameSource.KEYS, NameSource.PARAM_NAMES, NameSource.SLICES})
"""Names that the file itself gives, and that a rule can hold against the model's."""
_ADAPTERS: Final = frozenset({"peft"})
"""Conventions whose files lack the model that the optimizer trains a part of."""


@rule("CK209", "orphaned-optimizer-state", Severity.WARNING)
def orphaned_optimizer_state(stored: Stored) -> Iterator[Evidence]:
    """The optimizer keeps state of something that no group lists, or that the model does not have.

    Why: `load_state_dict` keeps it silently, it takes memory for ever, and it shows that groups or model were changed
    after the state was made.
    Example: a group was cut out of `param_groups` and its state was left.
    Fix: delete these entries, or save the groups and the model that they belong to.
    Limits: names are held against the model's only where the file itself gives them and most of them agree: adapters
    lie without their model, and other names may be those of another wrapper.
    """
    if stored.purpose is not Purpose.RESUME:
        return
    for one in optimizers_of(stored):
        stray = [name for name in one.keys if name not in one.members] if one.members else []
        if stray:
            yield Evidence(
                f"optimizer {one.place} has state of {count(stray, 'parameter')} that no group lists: {names(stray)}",
                Place(parameter=stray[0], optimizer=one.place),
                {"parameters": kept(stray), "orphans": len(stray)},
                "delete these entries from the state, or restore the group that they were in",
            )
        unknown = _not_in_model(one, stored)
        if unknown:
            yield Evidence(
                f"optimizer {one.place} has state of {count(unknown, 'parameter')} that the checkpoint's model lacks: "
                f"{names(unknown)}",
                Place(parameter=unknown[0], optimizer=one.place),
                {"parameters": kept(unknown), "orphans": len(unknown)},
                "save the weights of these parameters too, or take them out of the optimizer",
            )


def _not_in_model(one: Kept, stored: Stored) -> list[str]:
    """Stateful members that no model of the checkpoint has; none where most are unlike the model's names."""
    checkpoint = stored.checkpoint
    naming = checkpoint.namings[one.place] if one.place < len(checkpoint.namings) else None
    parameters = checkpoint.state.parameters
    if naming is None or naming.source not in _NAMED or not parameters or checkpoint.convention in _ADAPTERS:
        return []
    held = {*parameters, *(alias for single in parameters.values() for alias in single.aliases)}
    held |= {*checkpoint.state.buffers}
    for key, model in checkpoint.models.items():
        inner = {path for path, _ in flatten(model)}
        held |= inner | {f"{key}.{path}" for path in inner}
    named = [name for name in one.keys if name in one.members or not one.members]
    unknown = [name for name in named if name not in held]
    return unknown if 2 * len(unknown) < len(named) else []
