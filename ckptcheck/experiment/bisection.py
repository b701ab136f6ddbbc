"""Two searches that need runs: the smallest set of sections that heals, and the smallest resume point that fails."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ckptcheck.experiment.sections import Overlay, Section

Heals: TypeAlias = Callable[[Sequence[Overlay]], list[bool]]
"""Makes a resumed run for each overlay, side by side, and says which of them go on exactly."""

EACH_ALONE: Final = 4
"""Up to so many sections are each shown to be needed; more are left out together."""
SAVED_AT_ONCE: Final = 4
"""How many resume points one run saves at: its checkpoints lie on the disk together."""


@dataclass(frozen=True, slots=True)
class Healing:
    """The smallest set found: with it put back the run goes on exactly, and with any one of it taken away it does not.

    `sections` is None where even everything put back does not heal. `necessary` says whether everything else put
    back does not heal.
    """

    sections: tuple[Section, ...] | None
    necessary: bool = False


def smallest_healing(
    heals: Heals, whole: Sequence[Section], likely: Sequence[Section], parts: Mapping[Section, Sequence[Section]]
) -> Healing:
    """Everything first, then one section at a time, then one after the other left out of a set that heals.

    `whole` is everything that can be put back, `likely` what differs, the likeliest first; `parts` splits a section
    into those parts of it that differ.
    """
    everything = Overlay(tuple(whole))
    singles = [Overlay((one,)) for one in likely]
    if not heals([everything, *singles[:1]])[0]:
        return Healing(None)
    found = _single(heals, singles)
    if found is None:
        several = len(likely) > 1 and heals([Overlay(tuple(likely))])[0]
        found = _without_idle(heals, tuple(likely if several else whole))
    found = _refined(heals, found, parts)
    left_out = [(one,) for one in found] if len(found) <= EACH_ALONE else [found]
    healed_without = heals([Overlay(tuple(whole), but) for but in left_out])
    return Healing(found, not any(healed_without))


def _single(heals: Heals, singles: Sequence[Overlay]) -> tuple[Section, ...] | None:
    if singles and heals(singles[:1])[0]:
        return singles[0].put
    healed = heals(singles)
    return next((one.put for one, heal in zip(singles, healed, strict=True) if heal), None)


def _without_idle(heals: Heals, sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """Leave out, the least likely first, every section without which the rest still heals."""
    kept = list(sections)
    for one in reversed(sections):
        rest = [other for other in kept if other != one]
        if rest and heals([Overlay(tuple(rest))])[0]:
            kept = rest
    return tuple(kept)


def _refined(
    heals: Heals, sections: tuple[Section, ...], parts: Mapping[Section, Sequence[Section]]
) -> tuple[Section, ...]:
    """Put the differing parts in place of a section, and leave out those that are not needed."""
    for one in sections:
        inner = tuple(parts.get(one, ()))
        rest = tuple(other for other in sections if other != one)
        if len(inner) > 1 and heals([Overlay(rest + inner)])[0]:
            sections = rest + inner
            for part in inner:
                smaller = tuple(other for other in sections if other != part)
                sections = smaller if smaller and heals([Overlay(smaller)])[0] else sections
    return sections


def smallest_failing(
    fails_at: int, save_at: Callable[[Sequence[int]], None], fails: Callable[[int], bool]
) -> tuple[int, int]:
    """The smallest resume point that fails, and the greatest below it that passes, 0 where there is none.

    `fails_at` is a point that fails. Whatever lies between two points of one answer is taken to answer alike.
    `save_at` is told of points before `fails` is asked about any of them.
    """
    passes, low_fails = 0, fails_at
    while low_fails - passes > 1:
        points = [1] if passes == 0 else spread(passes, low_fails)
        save_at(points)
        while inside := [one for one in points if passes < one < low_fails]:
            middle = inside[len(inside) // 2]
            if fails(middle):
                low_fails = middle
            else:
                passes = middle
    return low_fails, passes


def spread(low: int, high: int) -> list[int]:
    """A few whole numbers strictly between two, evenly spread."""
    parts = SAVED_AT_ONCE + 1
    return sorted({low + (high - low) * place // parts for place in range(1, parts)} - {low})
