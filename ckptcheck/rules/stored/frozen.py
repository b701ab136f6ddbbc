"""CK4: freeze contracts, as far as one checkpoint can keep or break them."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import frozen as runs
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.checkpoint import NameSource

_TWO: Final = "one checkpoint does not show what moves: hold two against each other with diff --freeze"


def _bound(stored: Stored, *contracts: str) -> dict[str, tuple[str, str]]:
    """Pattern and contract of each parameter that is under one of `contracts`; the last glob that matches binds."""
    freeze = stored.freeze or {}
    found: dict[str, tuple[str, str]] = {}
    for name, one in stored.checkpoint.state.parameters.items():
        matching = (glob for glob in reversed(list(freeze)) if any(fnmatchcase(n, glob) for n in (name, *one.aliases)))
        pattern = next(matching, None)
        if pattern is not None and freeze[pattern] in contracts:
            found[name] = (pattern, freeze[pattern])
    return found


def _nameless(stored: Stored) -> Iterator[Unjudged]:
    for place, naming in enumerate(stored.checkpoint.namings):
        if naming.source is NameSource.NONE and stored.checkpoint.state.optimizers[place].groups:
            yield Unjudged(f"the parameters of optimizer {place} have no names, so that no contract finds them")


@also(runs.frozen_parameter_moved, "freeze")
def frozen_parameter_moved(stored: Stored) -> Iterator[Unjudged]:
    """A value that must rest: two checkpoints show whether it does."""
    if _bound(stored, "no-update", "hold"):
        yield Unjudged(_TWO)


@also(runs.frozen_state_drift, "freeze")
def frozen_state_drift(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """A parameter under `reset` has optimizer state; whether state under `hold` rests two checkpoints show."""
    if _bound(stored, "hold"):
        yield Unjudged(_TWO)
    bound = _bound(stored, "reset")
    for place, optimizer in enumerate(stored.checkpoint.state.optimizers if bound else ()):
        holding = [name for name in bound if optimizer.state.get(name)]
        if holding:
            yield Evidence(
                f"{count(holding, 'parameter')} under contract 'reset' {'has' if len(holding) == 1 else 'have'} state "
                f"in optimizer {place}: {names(holding)}",
                Place(parameter=holding[0], optimizer=place, key=next(iter(optimizer.state[holding[0]]))),
                {"contract": "reset", "pattern": bound[holding[0]][0], "parameters": kept(holding)},
                "clear optimizer.state[p] when you freeze p",
            )
    if bound:
        yield from _nameless(stored)


@also(runs.gradient_on_frozen_parameter, "freeze", severity=Severity.ERROR)
def gradient_on_frozen_parameter(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """A parameter under `removed` is in a param group; gradients are in no checkpoint."""
    if _bound(stored, "no-grad"):
        yield Unjudged(_TWO)
    bound = _bound(stored, "removed")
    for place, optimizer in enumerate(stored.checkpoint.state.optimizers if bound else ()):
        for group, one in enumerate(optimizer.groups):
            held = [name for name in one.members if name in bound]
            if held:
                yield Evidence(
                    f"{count(held, 'parameter')} under contract 'removed' {'is' if len(held) == 1 else 'are'} in group "
                    f"{group} of optimizer {place}: {names(held)}",
                    Place(parameter=held[0], optimizer=place, group=group),
                    {"contract": "removed", "pattern": bound[str(held[0])][0], "parameters": kept(map(str, held))},
                    "leave it out of the optimizer's groups",
                )
    if bound:
        yield from _nameless(stored)


RULES: Final[tuple[Rule[Stored], ...]] = (frozen_parameter_moved, frozen_state_drift, gradient_on_frozen_parameter)
