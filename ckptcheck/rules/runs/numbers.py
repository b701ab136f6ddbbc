"""CK5: numbers that a checkpoint changed."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

from ckptcheck.comparison.states import EntryDifference
from ckptcheck.comparison.tensor_difference import NARROW_DTYPES
from ckptcheck.finding import Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.words import at_load, count, kept, names, shown
from ckptcheck.state.tensor import ITEMSIZE_BYTES

NEIGHBOURS: Final = 1000
"""Entries that are looked at to tell whether a tensor of zeros was rounded to them."""


@rule("CK504", "dtype-narrowed", Severity.WARNING, "load")
def dtype_narrowed(case: Case) -> Iterator[Evidence]:
    """Values came back through a narrower dtype than they were saved from.

    Why: low bits of weights or moments are lost at every resume; second moments may become zero.
    Example: moments saved as bf16 to halve the file, or state cast to a bf16 parameter's dtype.
    Fix: save in the dtype that training uses.
    Limits: values that the narrow dtype holds exactly cannot be told; needs the values, not only digests.
    """
    narrowed: list[tuple[EntryDifference, str]] = []
    for one in (*case.loaded("param"), *case.loaded("state"), *case.loaded("ema"), *case.loaded("buffer")):
        through = narrowed_to(case, one)
        if through is not None and case.other_step is None:
            narrowed.append((one, through))
    if narrowed:
        first = narrowed[0][0]
        found = [f"{one.name}.{one.key}" if one.key else one.name for one, _ in narrowed]
        through = Counter(kind for _, kind in narrowed).most_common(1)[0][0]
        yield Evidence(
            f"{count(narrowed, 'tensor')} equal the saved values rounded to {through}: {names(found)}",
            at_load(case.step, optimizer=first.optimizer, parameter=first.name, key=first.key or None),
            {"rounded_through": through, "tensors": kept(found), "count": len(narrowed)},
            f"save these tensors as they are, not as {through}",
        )


def narrowed_to(case: Case, one: EntryDifference) -> str | None:
    """The narrower dtype through which an entry's values came back; None where they did not, or none can tell."""
    return _narrower(one) or _rounded(case, one)


def _narrower(one: EntryDifference) -> str | None:
    """The right side's dtype, where it is a narrower one."""
    if one.left is None or one.right is None or one.left.spec is None or one.right.spec is None:
        return None
    sizes = [ITEMSIZE_BYTES.get(spec.dtype, 0) for spec in (one.left.spec, one.right.spec)]
    return one.right.spec.dtype if 0 < sizes[1] < sizes[0] else None


def _rounded(case: Case, one: EntryDifference) -> str | None:
    through = _measured(case, one)
    if through is None or _as_built(case, one):
        return None  # what was never loaded may be all ones, which fit every dtype
    if _is_zero(one):  # so do zeros: what came back beside them tells whether small values were rounded away
        return _seen_beside(case, one, through)
    return through


def _seen_beside(case: Case, one: EntryDifference, narrowest: str) -> str | None:
    """The dtype through which entries that are not zero came back, where zeros may have come through it too."""
    beside = (_measured(case, other) for other in islice(case.loaded(one.section), NEIGHBOURS) if not _is_zero(other))
    wider = NARROW_DTYPES[NARROW_DTYPES.index(narrowest) :]
    return next((found for found in beside if found in wider), None)


def _measured(case: Case, one: EntryDifference) -> str | None:
    measured = case.difference_of(one)
    # A value or two may fit a narrower dtype by chance.
    return measured.rounded_through if measured is not None and measured.differing > 2 else None


def _is_zero(one: EntryDifference) -> bool:
    return one.right is not None and one.right.norm == 0


def _as_built(case: Case, one: EntryDifference) -> bool:
    """Whether an entry is, after the load, still what the factory made it."""
    if case.built is None or one.right is None:
        return False
    parameter = case.built.parameters.get(one.name) if one.section == "param" else None
    optimizers = case.built.optimizers
    place = one.optimizer if one.optimizer is not None else len(optimizers)
    before = {
        "param": parameter.entry if parameter is not None else None,
        "state": optimizers[place].state.get(one.name, {}).get(one.key) if place < len(optimizers) else None,
        "buffer": case.built.buffers.get(one.name),
        "ema": case.built.sections.get("ema", {}).get(one.name),
    }.get(one.section)
    return before is not None and before.digest == one.right.digest


@rule("CK505", "step-counter-mismatch", Severity.ERROR, "load")
def step_counter_mismatch(case: Case) -> Iterator[Evidence]:
    """The update counter of a parameter's state differs from what was saved.

    Why: bias correction and schedules that read it are wrong from the next update on.
    Example: the counter is set to 0, or rebuilt from an epoch number.
    Fix: save and load the counter with the rest of the state.
    Limits: counters that lag behind for frozen parameters are the same on both sides and silent.
    """
    for one in case.bound:
        if one.counted and case.other_step is None and case.load is not None:
            name, key = one.counted[0]
            pair = [side.optimizers[one.optimizer].state[name][key] for side in (case.load.left, case.load.right)]
            values = [shown(entry) for entry in pair]
            both = isinstance(values[0], int | float) and isinstance(values[1], int | float)
            yield Evidence(
                f"{key} of {count(one.counted, 'parameter')} in optimizer {one.optimizer} was {values[0]} when saved "
                f"and is {values[1]} after the load: {names(name for name, _ in one.counted)}",
                at_load(case.step, optimizer=one.optimizer, parameter=name, key=key),
                {
                    "saved": values[0],
                    "loaded": values[1],
                    "off_by": values[1] - values[0] if both else None,  # type: ignore[operator]
                    "parameters": kept(name for name, _ in one.counted),
                },
                "restore the counter with the rest of the optimizer's state",
            )


RULES = (dtype_narrowed, step_counter_mismatch)
