"""CK1 to CK3: what the checkpoints of a run hold, and how it changes from one to the next."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from ckptcheck.comparison.series import Described
from ckptcheck.comparison.series_parts import Same
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.pairs.stale import stale_bytes
from ckptcheck.rules.rule import Evidence, Unjudged, also
from ckptcheck.rules.runs.binding import weights_not_loaded
from ckptcheck.rules.runs.completeness import optimizer_state_absent
from ckptcheck.rules.series.series import NO_MOMENTS, Member, Order, Series
from ckptcheck.rules.words import count, kept, names


@also(stale_bytes)
def moments_move(series: Series) -> Iterator[Evidence | Unjudged]:
    """A checkpoint of a run holds byte for byte the moments of the one before it."""
    for (left, right), one in (series.stale or {}).items():
        if one.stale and right not in series.with_old_optimizer:
            unread = f"; {one.unread} more were not compared" if one.unread else ""
            yield Evidence(
                f"updates lie between {left} and {right}, and of the {one.moved} updated parameters "
                f"{len(one.stale)} {'has' if len(one.stale) == 1 else 'have'} the same moments in both, byte for "
                f"byte: {names(one.stale)}{unread}",
                Place(path=right, parameter=one.stale[0]),
                {"earlier": left, "later": right, "parameters": kept(one.stale), "count": len(one.stale),
                 "of": one.moved},
                "look at how the optimizer state gets into the file: it is that of the earlier checkpoint",
            )  # fmt: skip
    for (left, right), part in series.same.items():
        yield from _same(left, right, part, surely_later=series.order is Order.STEPS)
    if series.stale is None:
        yield Unjudged(NO_MOMENTS)
    elif series.not_compared:
        yield Unjudged(series.not_compared)


def _same(left: str, right: str, part: Same, *, surely_later: bool) -> Iterator[Evidence]:
    if part.weights and not part.moments and part.moving:
        yield Evidence(
            f"all {part.weights} weights of {right} are byte for byte those of {left}, and updates lie between them: "
            "they were not written anew",
            Place(path=right),
            {"earlier": left, "later": right, "weights": part.weights},
            f"resume from another checkpoint than {right}, and look at how the weights get into the file",
        )
    if part.moments and not part.weights:
        yield Evidence(
            f"the whole optimizer of {right} is byte for byte that of {left}, counters and {part.moments} moments, and "
            "the weights are others: it was not written anew",
            Place(path=right),
            {"earlier": left, "later": right, "moments": part.moments},
            f"resume from another checkpoint than {right}, and look at how the optimizer gets into the file",
            Severity.ERROR if surely_later else None,
        )


@also(weights_not_loaded, severity=Severity.WARNING)
def model_keeps_its_keys(series: Series) -> Iterator[Evidence | Unjudged]:
    """The model of a run gains or loses tensors from one checkpoint to the next: a resume built another one."""
    runs = list(series.runs)
    for (left, _), (right, _) in ((one[-1], other[0]) for one, other in pairwise(runs)):
        yield Unjudged(f"{left.name} and {right.name} hold other models: they are not held against each other")
    for run in runs:
        for (left, before), (right, after) in pairwise(run):
            if before.parameters and after.parameters:
                yield from _drift(left, before, right, after)


def _drift(left: Member, before: Described, right: Member, after: Described) -> Iterator[Evidence]:
    added = [name for name in after.parameters if name not in before.parameters]
    removed = [name for name in before.parameters if name not in after.parameters]
    reshaped = [name for name, shape in before.parameters.items() if after.parameters.get(name, shape) != shape]
    said = [
        f"{count(one, 'tensor')} {verb}: {names(one)}"
        for one, verb in ((added, "came"), (removed, "went"), (reshaped, "changed shape"))
        if one
    ]
    if said and after.with_optimizer == before.with_optimizer:
        yield Evidence(
            f"the model is another one in {right.name} than in {left.name} before it: {'; '.join(said)}",
            Place(path=right.name, parameter=(added or removed or reshaped)[0]),
            {"earlier": left.name, "later": right.name, "added": kept(added), "removed": kept(removed),
             "reshaped": kept(reshaped), "earlier_tensors": len(before.parameters),
             "later_tensors": len(after.parameters), "earlier_bytes": before.model_bytes,
             "later_bytes": after.model_bytes},
            "look at how the resume builds its model: an adapter that is added twice, a module that is wrapped again",
        )  # fmt: skip


@also(optimizer_state_absent, severity=Severity.INFO)
def optimizer_stays(series: Series) -> Iterator[Evidence]:
    """The checkpoints of a run hold no optimizer state any more from one on, which is not the last."""
    for run in series.runs:
        with_state = [place for place, (_, one) in enumerate(run) if one.with_optimizer]
        if with_state and len(run) - 1 - with_state[-1] >= 2:
            first = run[with_state[-1] + 1][0]
            yield Evidence(
                f"{first.name} and the {len(run) - 2 - with_state[-1]} after it hold no optimizer state, "
                f"{run[with_state[-1]][0].name} before them does",
                Place(path=first.name),
                {"first_without": first.name, "last_with": run[with_state[-1]][0].name},
                f"resume from {run[with_state[-1]][0].name}, unless the later ones are for release only",
            )


RULES: Final = (moments_move, model_keeps_its_keys, optimizer_stays)
