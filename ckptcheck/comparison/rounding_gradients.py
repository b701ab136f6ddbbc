"""Parameters whose true gradient is zero, so that what they are given is rounding noise."""

from collections.abc import Iterable
from statistics import median
from typing import Final

from ckptcheck.trace.items import STEP, Sample
from ckptcheck.trace.reading import Trace

TINY: Final = 1e-5
"""The size of an element beside that of other gradients' up to which it is rounding noise: float32 has 24 bits."""
LOOKED_AT: Final = 3
"""How many steps are looked at."""


def rounding_gradients(traces: Iterable[Trace], after: int) -> frozenset[str]:
    """The parameters whose gradient is tiny beside the others in the first steps after a step, in every run.

    A bias in front of a normalisation has a gradient of exactly zero; kernels leave rounding noise of it, which Adam
    makes whole steps of. Its distance says nothing of two runs, and it has no effect on what the model computes.
    """
    found: frozenset[str] | None = None
    for trace in traces:
        for step in [one for one in trace.steps if one > after][:LOOKED_AT]:
            tiny = _tiny(trace, step)
            found = tiny if found is None else found & tiny
    return found or frozenset()


def _tiny(trace: Trace, step: int) -> frozenset[str]:
    sizes = {
        item.name: size
        for item, sample in trace.samples(step, STEP).items()
        if item.kind == "grad" and (size := _size(sample)) is not None
    }
    usual = median(sizes.values()) if sizes else 0.0
    return frozenset(name for name, size in sizes.items() if 0.0 < size <= TINY * usual)


def _size(sample: Sample) -> float | None:
    """The root mean square of a gradient's elements; None where it has no norm."""
    if isinstance(sample.value, int | float):
        return abs(float(sample.value))
    if sample.norm is None or sample.spec is None or not sample.spec.numel:
        return None
    return float(sample.norm / sample.spec.numel**0.5)
