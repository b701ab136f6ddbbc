"""What is not a number in both runs: that it is equal says nothing of how it came about."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.groups import parse_groups
from ckptcheck.comparison.trace_pairs import STRUCTURE
from ckptcheck.trace.items import STEP, Item
from ckptcheck.trace.reading import Trace

BUILT_UPON: Final = ("param", "state")
"""Kinds of item that later steps build upon: what is not finite there stays so."""


@dataclass(frozen=True, slots=True)
class NonFinite:
    """What held NaN or infinity in both runs.

    `first` maps parameters and state that did so at the first or the last compared step to the first step after which
    they did in the uninterrupted run, be it before the load. `losses` are the compared steps with such a loss and with
    an update, which a scaler did not skip. `parameters` counts those of the run; `hides_all` says that none that is
    trained was finite after any compared step.
    """

    parameters: int
    first: Mapping[Item, int]
    losses: tuple[int, ...]
    hides_all: bool


def non_finite(left: Trace, right: Trace, steps: Sequence[int]) -> NonFinite | None:
    """What is not finite in both traces at the compared steps, ascending; None where no step was compared."""
    if not steps:
        return None
    span = steps[0], steps[-1]
    odd = left.not_finite_steps("loss", *span) & right.not_finite_steps("loss", *span)
    losses = tuple(step for step in steps if step in odd and _has_update(left, step))
    names = {item.name for item, spec in left.tensors() if item.kind == "param" and spec is not None}
    seen = {one for edge in {*span} for one in left.not_finite(BUILT_UPON, edge, edge)}
    seen &= {one for edge in {*span} for one in right.not_finite(BUILT_UPON, edge, edge)}
    if not seen:
        return NonFinite(len(names), {}, losses, hides_all=False)
    since = left.not_finite(BUILT_UPON, 1, steps[-1])
    first = {item: since[item][0] for item in sorted(seen, key=lambda one: (since[one][0], one))}
    counts = [side.not_finite(("param",), *span) for side in (left, right)]
    trained = [Item("param", name) for name in _trained(left, steps[0], names)]
    hides_all = all(count.get(one, (0, 0))[1] >= len(steps) for count in counts for one in trained)
    return NonFinite(len(names), first, losses, hides_all)


def _trained(trace: Trace, step: int, names: set[str]) -> set[str]:
    """The parameters that an optimizer holds and that are not frozen; all of them where none is."""
    texts = [trace.text(trace.digest(step, STEP, item)) for item in (STRUCTURE, Item("structure", "frozen"))]
    held = {name for optimizer in parse_groups(texts[0]) for group in optimizer for name in group if name is not None}
    return (held - {*json.loads(texts[1] or "[]")}) & names or names


def _has_update(trace: Trace, step: int) -> bool:
    """Whether a step made an update, or has no optimizer that could tell."""
    places = {item.optimizer for item, _ in trace.tensors() if item.kind == "updates"}
    samples = [trace.sample(step, STEP, Item("updates", optimizer=place)) for place in places]
    return not places or any(one is not None and one.value for one in samples)
