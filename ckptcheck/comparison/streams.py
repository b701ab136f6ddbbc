"""Tensors of two files read side by side, range by range, on a few threads: which are equal, and how far the rest is.

Plain Python compares the bytes: `bytearray.startswith` is one memcmp. Reading releases the interpreter's lock and
comparing does not, which two threads do not feel; numpy is needed only where something differs.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ckptcheck.comparison.crew import Worker, thread_count, work_off
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.progress import Progress
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorRef, TensorSpec

CHUNK_BYTES: Final = 1 << 20
"""Read at once from each side where bytes are compared."""
RANGE_BYTES: Final = 16 << 20
"""A thread's share: a part of a large tensor, or many small ones."""
MAX_SHARE: Final = 256
"""Small tensors in a share."""
ALONE_BYTES: Final = 4 << 20
"""Less than this, and a second thread would cost more than it brings."""
SMALL_BYTES: Final = 64 << 10
"""Where the average tensor is smaller, threads would only wait for each other's turn with the interpreter."""
TINY_BYTES: Final = 64
"""Tensors up to this size are measured once for all that hold the same bytes: 20,000 equal step counters."""
_PIECE_BLOCKS: Final = 2
"""Blocks of the statistics that are read at once."""

RefPair: TypeAlias = tuple[TensorRef, TensorRef]
_Range: TypeAlias = tuple[int, int, int]
"""Place of the pair, first byte, count of bytes."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to measure of a pair that `is_measurable`. `tolerance` is (rtol, atol), `cast` as of `EqualAfterCast`."""

    pair: RefPair
    tolerance: tuple[float, float] | None = None
    cast: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """How two tensors differ; `beyond` is None without a tolerance, `equal_after_cast` False without a cast."""

    difference: TensorDifference
    beyond: int | None = None
    equal_after_cast: bool = False


class Tally:
    """Tells a progress how many bytes of one side are done; threads share it."""

    def __init__(self, progress: Progress | None, phase: str, total_bytes: int) -> None:
        self._progress, self._phase, self._total_bytes = progress, phase, total_bytes
        self._lock = threading.Lock()
        self._done_bytes = 0

    def add(self, nbytes: int) -> None:
        """So many more."""
        if self._progress:
            with self._lock:
                self._done_bytes += nbytes
                done = self._done_bytes
            self._progress.update("diff", self._phase, done, self._total_bytes)


def find_unequal(pairs: Sequence[RefPair], progress: Progress | None = None) -> set[int]:
    """Places of the pairs whose bytes differ; both of a pair must have the same `nbytes`.

    A pair is read up to the first chunk that differs. It takes two chunks a thread. Raises what `read_into` raises.
    """
    unequal: set[int] = set()
    total_bytes = sum(left.spec.nbytes for left, _ in pairs)
    tally = Tally(progress, "compare", total_bytes)

    def compare(share: list[_Range], worker: Worker) -> None:
        done_bytes = 0
        for place, start, length in share:
            if place not in unequal and not _is_equal(pairs[place], start, length, worker):
                unequal.add(place)
            done_bytes += length
        tally.add(done_bytes)

    work_off(_shares(pairs), compare, _threads(total_bytes, len(pairs)))
    return unequal


def is_measurable(left: TensorSpec, right: TensorSpec) -> bool:
    """Whether two tensors can be compared element by element: one shape, known dtypes, both or none of two parts."""
    known = left.dtype in ITEMSIZE_BYTES and right.dtype in ITEMSIZE_BYTES
    return known and left.shape == right.shape and _parts(left.dtype) == _parts(right.dtype)


def measure(questions: Sequence[Question], progress: Progress | None = None) -> list[Measured]:
    """The answers, in order.

    It takes less than 12 MB, whatever the size of the tensors. Raises what `read_into` raises.

    One thread does it all: numpy gives the interpreter's lock away and takes it back around every call, and at ten
    microseconds a call two threads spend more on that than they gain (1.6 s of wall time for 1.1 s of one thread's
    work, 2.7 s of processor time).
    """
    found: dict[int, Measured] = {}
    known: dict[object, Measured] = {}
    sizes = [one.pair[0].spec.nbytes for one in questions]
    tally = Tally(progress, "measure", sum(sizes))

    def answer(place: int, worker: Worker) -> None:
        question = questions[place]
        if sizes[place] > TINY_BYTES:
            found[place] = _measured(question, worker, tally)
            return
        left, right = question.pair
        key = left.spec, right.spec, bytes(left.fetch()), bytes(right.fetch()), question.tolerance
        if key in known:
            tally.add(sizes[place])
        found[place] = known.get(key) or known.setdefault(key, _measured(question, worker, tally))

    work_off(range(len(questions)), answer, 1)
    return [found[place] for place in range(len(questions))]


def _threads(total_bytes: int, tensors: int) -> int:
    return thread_count() if total_bytes > max(ALONE_BYTES, SMALL_BYTES * tensors) else 1


def _shares(pairs: Sequence[RefPair]) -> Iterator[list[_Range]]:
    share: list[_Range] = []
    share_bytes = 0
    for place, (left, _) in enumerate(pairs):
        nbytes = left.spec.nbytes
        if nbytes > RANGE_BYTES:
            yield from ([(place, at, min(RANGE_BYTES, nbytes - at))] for at in range(0, nbytes, RANGE_BYTES))
            continue
        share.append((place, 0, nbytes))
        share_bytes += nbytes
        if share_bytes >= RANGE_BYTES or len(share) == MAX_SHARE:
            yield share
            share, share_bytes = [], 0
    if share:
        yield share


def _is_equal(pair: RefPair, start: int, length: int, worker: Worker) -> bool:
    left, right = pair
    for at in range(start, start + length, CHUNK_BYTES):
        worker.check()
        size = min(CHUNK_BYTES, start + length - at)
        left_view, right_view = worker.views(size, size)
        left.read_into(at, left_view)
        right.read_into(at, right_view)
        if not worker.left.startswith(right_view):
            return False
    return True


def _measured(question: Question, worker: Worker, tally: Tally) -> Measured:
    from ckptcheck.comparison import blocks
    from ckptcheck.comparison.tensors import RunningDifference

    left, right = question.pair
    running = RunningDifference(left.spec, right.spec, tolerance=question.tolerance, cast=question.cast)
    numel = left.spec.numel
    widths = ITEMSIZE_BYTES[left.spec.dtype], ITEMSIZE_BYTES[right.spec.dtype]
    step = blocks.BLOCK_NUMEL * _PIECE_BLOCKS
    for at in range(0, numel, step):
        worker.check()
        count = min(step, numel - at)
        left_view, right_view = worker.views(count * widths[0], count * widths[1])
        left.read_into(at * widths[0], left_view)
        right.read_into(at * widths[1], right_view)
        running.add(left_view, right_view)
        tally.add(count * widths[0])
    return Measured(running.difference, running.beyond, running.is_equal_after_cast)


def _parts(dtype: str) -> int:
    return 2 if dtype.startswith("complex") or dtype == "float4_e2m1fn_x2" else 1
