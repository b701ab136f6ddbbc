"""Which steps of a trace are recorded whole: with `--every N` of some there is only what they began with."""

from typing import Final

from ckptcheck.trace.items import STEP
from ckptcheck.trace.reading import Trace

OF_BEGIN: Final = frozenset({"rng", "hyper", "structure"})
"""Kinds that are kept of a step after one that is sampled."""


def whole_steps(trace: Trace) -> list[int]:
    """The steps of which more is recorded than what they began with, ascending."""
    if not is_thinned(trace):
        return trace.steps
    begins = {number for number, (item, _) in trace.table.items() if item.kind in OF_BEGIN}
    found, known = [], dict[str, bool]()
    for step in trace.steps:
        listing = trace.columns(step, STEP)[0]
        if listing not in known:
            known[listing] = any(int(one) not in begins for one in listing.split(",") if one)
        if known[listing]:
            found.append(step)
    return found


def is_thinned(trace: Trace) -> bool:
    """Whether only some of the steps were sampled."""
    return int(trace.header.get("every") or 1) > 1
