"""Where a tensor's bytes lie, and how its logical row-major little-endian bytes are read from there."""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.source import Source
from ckptcheck.state.raw import Stretch, Watch

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_BYTES: Final = 1 << 20
"""How much is read at once by whoever reads all there is."""
SCRATCH_BYTES: Final = 1 << 20
"""How much of a storage is looked at at once to gather a view that is not row-major."""
_GAP_BYTES: Final = 1 << 14
"""Bytes between two wanted ones that are rather read along than skipped by another read."""
COMPONENT_BYTES: Final = {"complex128": 8, "complex64": 4, "complex32": 2}
"""Bytes that a byte order applies to, where that is not the whole element."""


class ByteRun(Protocol):
    """Bytes by position: a `Source`, a member of an archive, or memory. Several threads may read at once."""

    @property
    def nbytes(self) -> int:
        """How many there are."""
        ...

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start` on. DamagedCheckpointError where there are fewer bytes."""
        ...


def blocks(run: ByteRun) -> Iterator[memoryview]:
    """All bytes, `BLOCK_BYTES` at a time in one buffer; each block holds until the next is asked for."""
    buffer = memoryview(bytearray(min(BLOCK_BYTES, run.nbytes)))
    for start in range(0, run.nbytes, BLOCK_BYTES):
        block = buffer[: run.nbytes - start]
        run.read_into(start, block)
        yield block


def home_of(run: ByteRun) -> tuple[Hashable, int] | None:
    """What positions in a run count in, and its first one; None for memory. Raises what `located` raises."""
    if isinstance(run, Source) or not hasattr(run, "located"):
        found: tuple[Hashable, int] | None = run.home() if hasattr(run, "home") else None
        return found
    source: Source = run.located()
    return source.home()


def watched(run: ByteRun, watch: Watch | None) -> Iterator[memoryview]:
    """As `blocks`; each is shown to `watch` first, where it can be said where it lies."""
    home = home_of(run) if watch is not None and run.nbytes else None
    start = 0
    for block in blocks(run):
        if watch is not None and home is not None:
            watch(home[0], home[1] + start, block)
        start += len(block)
        yield block


def _stretch(run: ByteRun, begin: int, nbytes: int) -> tuple[Stretch, ...] | None:
    home = home_of(run)
    return None if home is None else (Stretch(home[0], home[1] + begin, 0, nbytes),)


class LateSource(ByteRun, Protocol):
    """A run that is one stretch of a file, known only when somebody reads it."""

    def located(self) -> Source:
        """The stretch. DamagedCheckpointError where it is not sound."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Contiguous:
    """A tensor whose bytes lie row-major and little-endian in one stretch of a file, from byte `begin` of `run` on."""

    run: Source | LateSource
    begin: int = 0

    def __call__(self, start_bytes: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start_bytes` of the tensor on."""
        self.run.read_into(self.begin + start_bytes, buffer)

    def stretches(self, start_bytes: int, nbytes: int) -> tuple[Stretch, ...] | None:
        """As `ckptcheck.state.raw.stretches`."""
        return _stretch(self.run, self.begin + start_bytes, nbytes)

    def located(self) -> tuple[Source, int]:
        """The file's window and where in it the tensor begins, for whoever reads positions on his own."""
        return (self.run if isinstance(self.run, Source) else self.run.located()), self.begin


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Bytes in memory."""

    content: bytes

    @property
    def nbytes(self) -> int:
        """How many there are."""
        return len(self.content)

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start` on."""
        if start < 0 or start + len(buffer) > len(self.content):
            raise DamagedCheckpointError(f"bytes {start} to {start + len(buffer)} of {len(self.content)} are missing")
        buffer[:] = memoryview(self.content)[start : start + len(buffer)]


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """A tensor whose bytes lie with strides, in another byte order, or in no plain file.

    Attributes:
        run: its storage.
        begin: byte of the first element.
        shape: as long as `stride`.
        stride: in elements, not negative.
        itemsize: bytes of an element.
        swap: bytes that lie in reverse order; 1 where none do.
    """

    run: ByteRun
    begin: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int
    swap: int = 1

    def __call__(self, start_bytes: int, buffer: memoryview) -> None:
        """Fill `buffer`; beside it at most a few times `SCRATCH_BYTES` are held, whatever the strides."""
        size = self.itemsize
        first, head = divmod(start_bytes, size)
        if head:
            lead = min(size - head, len(buffer))
            buffer[:lead] = self._elements(first, 1)[head : head + lead]
            first, buffer = first + 1, buffer[lead:]
        whole = len(buffer) // size
        self._fill(first, buffer[: whole * size])
        if len(buffer) % size:
            buffer[whole * size :] = self._elements(first + whole, 1)[: len(buffer) % size]

    def in_memory_order(self) -> tuple["Gathered", tuple[int, ...]]:
        """The same elements with the axes in the order in which they lie, and which axis each was.

        A transposed tensor is read from its first byte to its last, where row by row it would be read many times.
        """
        axes = tuple(sorted(range(len(self.shape)), key=lambda axis: -self.stride[axis]))
        shape, stride = (tuple(of[axis] for axis in axes) for of in (self.shape, self.stride))
        return Gathered(self.run, self.begin, shape, stride, self.itemsize, self.swap), axes

    def stretches(self, start_bytes: int, nbytes: int) -> tuple[Stretch, ...] | None:
        """As `ckptcheck.state.raw.stretches`: None where the elements are strided or their bytes swapped."""
        is_plain = self.swap == 1 and is_row_major(self.shape, self.stride)
        return _stretch(self.run, self.begin + start_bytes, nbytes) if is_plain else None

    def _elements(self, first: int, count: int) -> bytearray:
        content = bytearray(count * self.itemsize)
        self._fill(first, memoryview(content))
        return content

    def _fill(self, first: int, buffer: memoryview) -> None:
        import numpy as np

        if not buffer:
            return
        shape, stride = merged(self.shape, self.stride)
        target = np.frombuffer(buffer, f"V{self.itemsize}")
        done = 0
        for offset, box, box_stride in _boxes(first, len(target), shape, stride, 0):
            numel = math.prod(box)
            self._gather(target[done : done + numel].reshape(box), offset, box_stride)
            done += numel
        if self.swap > 1:
            target.view(f"u{self.swap}").byteswap(inplace=True)

    def _gather(self, target: "NDArray[Any]", offset: int, stride: tuple[int, ...]) -> None:
        """Fill a box from element `offset` of the storage on; what lies far apart is read piece by piece."""
        import numpy as np

        nbytes = _span(target.shape, stride) * self.itemsize
        gap = max(stride, default=0) * self.itemsize
        if target.flags.c_contiguous and is_row_major(target.shape, stride):
            self.run.read_into(self.begin + offset * self.itemsize, target.reshape(-1).view("u1").data)
        elif nbytes <= SCRATCH_BYTES and (gap <= _GAP_BYTES or nbytes <= 4 * target.nbytes):
            content = bytearray(nbytes)
            self.run.read_into(self.begin + offset * self.itemsize, memoryview(content))
            steps = tuple(step * self.itemsize for step in stride)
            target[...] = np.ndarray(target.shape, target.dtype, content, strides=steps)
        else:
            self._gather_parts(target, offset, stride)

    def _gather_parts(self, target: "NDArray[Any]", offset: int, stride: tuple[int, ...]) -> None:
        """Fill a box slice by slice along its longest stride, as many rows at once as may be looked at at once."""
        import numpy as np

        axis = max(range(target.ndim), key=lambda one: stride[one] if target.shape[one] > 1 else -1)
        length, step = target.shape[axis], stride[axis]
        before = (slice(None),) * axis
        inner = _span(target.shape, stride) - (length - 1) * step
        rows = 1 + max(SCRATCH_BYTES // self.itemsize - inner, 0) // max(step, 1)
        if 1 < rows < length:
            for first in range(0, length, rows):
                self._gather(target[(*before, slice(first, first + rows))], offset + first * step, stride)
        else:
            rest = stride[:axis] + stride[axis + 1 :]
            rows_first = np.moveaxis(target, axis, 0)
            for place in range(length):
                self._gather(rows_first[place, ...], offset + place * step, rest)


def is_row_major(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether elements lie in row-major order without gaps; a tensor without elements does."""
    expected = 1
    for length, step in zip(reversed(shape), reversed(stride), strict=True):
        if length != 1:
            if step != expected:
                return 0 in shape
            expected *= length
    return True


def _span(shape: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Elements from the first to the last of a box that has elements."""
    return 1 + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))


def merged(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same elements in the same order with as few dimensions as can be: (length, stride) of each."""
    lengths: list[int] = []
    steps: list[int] = []
    for length, step in zip(shape, stride, strict=True):
        if length == 1:
            continue
        if lengths and steps[-1] == step * length:
            lengths[-1] *= length
            steps[-1] = step
        else:
            lengths.append(length)
            steps.append(step)
    return tuple(lengths), tuple(steps)


def _boxes(
    first: int, count: int, shape: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """The boxes that `count` row-major elements from `first` on consist of: (offset in the storage, shape, stride)."""
    if not shape:
        yield offset, (), ()
        return
    inner = math.prod(shape[1:])
    while count:
        row, within = divmod(first, inner)
        if within == 0 and count >= inner:
            rows = count // inner
            used = rows * inner
            yield offset + row * stride[0], (rows, *shape[1:]), stride
        else:
            used = min(inner - within, count)
            yield from _boxes(within, used, shape[1:], stride[1:], offset + row * stride[0])
        first, count = first + used, count - used
