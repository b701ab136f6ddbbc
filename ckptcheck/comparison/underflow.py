"""A second look at second moments that have zeros, beside their first moments, where the zeros are."""

from dataclasses import dataclass, field
from typing import Final

from ckptcheck.comparison.counting import Lost
from ckptcheck.comparison.crew import Worker
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorRef

BLOCK_NUMEL: Final = 1 << 16
"""Elements read at once of each."""


@dataclass(slots=True)
class Zeros:
    """Stretches of a tensor that have zeros: pairs of first index and the one behind the last."""

    spans: list[tuple[int, int]] = field(default_factory=list)

    def add(self, start: int, numel: int) -> None:
        """One more; it is joined to the last one where it follows it."""
        if self.spans and self.spans[-1][1] == start:
            self.spans[-1] = self.spans[-1][0], start + numel
        else:
            self.spans.append((start, start + numel))


def find_lost(refs: tuple[TensorRef, TensorRef], dtypes: tuple[str, str], zeros: Zeros, worker: Worker) -> Lost:
    """Elements that are zero in the second moment and not in the first; `refs` and part `dtypes` in this order.

    Raises what `read_into` raises.
    """
    widths = ITEMSIZE_BYTES[dtypes[0]], ITEMSIZE_BYTES[dtypes[1]]
    lost = Lost()
    for begin, end in zeros.spans:
        for start in range(begin, end, BLOCK_NUMEL):
            worker.check()
            numel = min(BLOCK_NUMEL, end - start)
            views = worker.views(numel * widths[0], numel * widths[1])
            for ref, width, view in zip(refs, widths, views, strict=True):
                ref.read_into(start * width, view)
            lost.add(*views, dtypes, start)
    return lost
