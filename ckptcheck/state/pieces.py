"""A tensor whose bytes lie in pieces: shards of several ranks, or slices of flat buffers, read as one."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from ckptcheck.state.raw import ReadInto, Stretch, stretches
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec

STEPS_PER_BOX: Final = 200
"""Steps that proving a tiling may take for each box: shards of a mesh take a few, only a made-up heap takes more."""
BLOCK_BYTES: Final = 4 << 20
"""Most bytes that are read at once of pieces whose rows are scattered over the whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """A piece of a tensor: where it begins in each dimension, how long it is there, and its row-major bytes."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    read_into: ReadInto


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A piece of a tensor's row-major elements, from element `start` on, `numel` long, at `begin` in its own bytes."""

    start: int
    numel: int
    read_into: ReadInto
    begin: int = 0


@dataclass(frozen=True, slots=True)
class _Region:
    """Neighbouring bytes of the whole: a fixed index in the first dimensions, a range in the next, all of the rest."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Target:
    """A region, and the memory that its bytes go to."""

    region: _Region
    buffer: memoryview


def join_runs(spec: TensorSpec, runs: Sequence[Run]) -> ReadInto:
    """Read a tensor from runs of its flat elements. ValueError where they leave a hole, overlap or reach too far."""
    size = _itemsize(spec)
    ordered = sorted((run for run in runs if run.numel), key=lambda run: run.start)
    end = 0
    for run in ordered:
        if run.start != end:
            raise ValueError(
                f"element {min(run.start, end)} of {spec} is held {'twice' if run.start < end else 'by none'}"
            )
        end += run.numel
    if end != spec.numel:
        raise ValueError(f"{end} elements are held of the {spec.numel} of {spec}")
    return _Row(tuple(ordered), size, tuple(run.start * size for run in ordered))


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A `ReadInto` of runs without a hole; `starts` are their first bytes."""

    runs: tuple[Run, ...]
    size: int
    starts: tuple[int, ...]

    def __call__(self, start_bytes: int, buffer: memoryview) -> None:
        for run, skipped, length in self._parts(start_bytes, len(buffer)):
            run.read_into(run.begin * self.size + skipped, buffer[:length])
            buffer = buffer[length:]

    def stretches(self, start_bytes: int, nbytes: int) -> tuple[Stretch, ...] | None:
        """As `ckptcheck.state.raw.stretches`: those of all runs, or None."""
        found: list[Stretch] = []
        done = 0
        for run, skipped, length in self._parts(start_bytes, nbytes):
            part = stretches(run.read_into, run.begin * self.size + skipped, length)
            if part is None:
                return None
            found += (one._replace(start=one.start + done) for one in part)
            done += length
        return tuple(found)

    def _parts(self, start_bytes: int, nbytes: int) -> Iterator[tuple[Run, int, int]]:
        """The runs that hold some bytes: each with those of it that come before, and how many it gives."""
        place = bisect_right(self.starts, start_bytes) - 1
        while nbytes:
            run = self.runs[place]
            skipped = start_bytes - self.starts[place]
            length = min(run.numel * self.size - skipped, nbytes)
            yield run, skipped, length
            start_bytes, nbytes, place = start_bytes + length, nbytes - length, place + 1


def join_boxes(spec: TensorSpec, boxes: Sequence[Box]) -> ReadInto:
    """Read a tensor from boxes; ValueError where they do not tile it exactly.

    A box is never cut into its rows: it is read in neighbouring bytes, at most `BLOCK_BYTES` at once where they must
    be scattered, as those of a column shard; boxes of whole rows lie one after the other.
    """
    size = _itemsize(spec)
    for one in boxes:
        check_inside(spec, one)
    held = [one for one in boxes if math.prod(one.shape)]
    total = sum(math.prod(one.shape) for one in held)
    if total != spec.numel or not _tile(held, spec.shape):
        raise ValueError(f"pieces of {total} elements do not tile the {spec.numel} of {spec}")
    if len(held) == 1:
        return held[0].read_into
    if all(one.shape[1:] == spec.shape[1:] for one in held):
        inner = math.prod(spec.shape[1:])
        return join_runs(spec, [Run(one.offsets[0] * inner, math.prod(one.shape), one.read_into) for one in held])
    return _Joined(
        (*spec.shape, size), [Box((*one.offsets, 0), (*one.shape, size), one.read_into) for one in held]
    ).read


def check_inside(spec: TensorSpec, box: Box) -> None:
    """ValueError where the box reaches beyond the tensor or has other dimensions."""
    fits = len(box.offsets) == len(box.shape) == len(spec.shape) and all(
        min(begin, length) >= 0 and begin + length <= most
        for begin, length, most in zip(box.offsets, box.shape, spec.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"a piece of shape {box.shape} at {box.offsets} reaches beyond {spec}")


def _itemsize(spec: TensorSpec) -> int:
    if spec.dtype not in ITEMSIZE_BYTES:
        raise ValueError(f"the dtype {spec.dtype} is not known")
    return ITEMSIZE_BYTES[spec.dtype]


def _tile(boxes: Sequence[Box], shape: tuple[int, ...]) -> bool:
    """Whether boxes, none of them empty and all inside, cover each element once.

    Between two neighbouring cuts of the first dimension the same boxes are met, and they must tile what is left of it.
    """
    waiting: list[tuple[Sequence[Box], int]] = [(boxes, 0)] if math.prod(shape) else []
    steps = STEPS_PER_BOX * (len(boxes) + 1)
    while waiting:
        some, axis = waiting.pop()
        if axis == len(shape):
            if len(some) != 1:
                return False
            continue
        for band in _bands(some, axis, shape[axis]):
            steps -= len(band) + 1
            if not band or steps < 0:
                return False
            waiting.append((band, axis + 1))
    return True


def _bands(boxes: Sequence[Box], axis: int, length: int) -> Iterator[list[Box]]:
    """The boxes met between each two neighbouring cuts of an axis; an empty list where none is."""
    starting = sorted(boxes, key=lambda one: one.offsets[axis])
    ends = {one.offsets[axis] + one.shape[axis] for one in boxes}
    cuts = sorted({0, *(one.offsets[axis] for one in boxes), *ends})
    met: list[Box] = []
    place = 0
    for cut in cuts:
        if cut == length:
            return
        if cut in ends:
            met = [one for one in met if one.offsets[axis] + one.shape[axis] > cut]
        while place < len(starting) and starting[place].offsets[axis] == cut:
            met.append(starting[place])
            place += 1
        yield list(met)
    yield []  # the last cut is not the end: nothing covers the rest


class _Joined:
    """Boxes that tile a whole, some cut across its rows; the last dimension of all is the bytes of an element."""

    def __init__(self, shape: tuple[int, ...], boxes: list[Box]) -> None:
        self.shape = shape
        self.boxes = sorted(boxes, key=lambda one: one.offsets)
        self.begins = [one.offsets[0] for one in self.boxes]
        self.reach = list(accumulate((one.offsets[0] + one.shape[0] for one in self.boxes), max))
        self.strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))

    def read(self, start: int, buffer: memoryview) -> None:
        """A `ReadInto`."""
        for begin in range(0, len(buffer), BLOCK_BYTES):
            part = buffer[begin : begin + BLOCK_BYTES]
            place = 0
            for region in self._regions(start + begin, start + begin + len(part)):
                length = math.prod(region.shape)
                self._fill(region, part[place : place + length])
                place += length

    def _regions(self, start: int, stop: int) -> Iterator[_Region]:
        """Bytes `start` to `stop` as the fewest regions, in order; at most two for each dimension."""
        while start < stop:
            axis = next(
                one for one, stride in enumerate(self.strides) if start % stride == 0 and start + stride <= stop
            )
            stride = self.strides[axis]
            index = tuple(start // each % length for each, length in zip(self.strides, self.shape, strict=True))
            count = min((stop - start) // stride, self.shape[axis] - index[axis])
            yield _Region(index, (*(1 for _ in range(axis)), count, *self.shape[axis + 1 :]))
            start += count * stride

    def _fill(self, region: _Region, out: memoryview) -> None:
        for box in self._met(region):
            begins = tuple(map(max, region.offsets, box.offsets))
            ends = map(min, _ends(region.offsets, region.shape), _ends(box.offsets, box.shape))
            lengths = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
            if min(lengths) <= 0:
                continue
            # In the box the part is contiguous, as the region is in the whole.
            skipped = _position(begins, box.offsets, box.shape)
            if _is_run(lengths, region.shape):
                place = _position(begins, region.offsets, region.shape)
                box.read_into(skipped, out[place : place + math.prod(lengths)])
            else:
                _scatter(box, skipped, begins, lengths, _Target(region, out))

    def _met(self, region: _Region) -> Iterator[Box]:
        """The boxes that a region may meet."""
        low, high = region.offsets[0], region.offsets[0] + region.shape[0]
        return iter(self.boxes[bisect_right(self.reach, low) : bisect_left(self.begins, high)])


def _ends(offsets: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[int]:
    return (begin + length for begin, length in zip(offsets, shape, strict=True))


def _position(index: tuple[int, ...], offsets: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Where an index of the whole lies in the row-major bytes of a piece."""
    position = 0
    for at, offset, length in zip(index, offsets, shape, strict=True):
        position = position * length + at - offset
    return position


def _is_run(lengths: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a part of a region is contiguous in it."""
    axis = next((one for one, length in enumerate(shape) if length > 1), len(shape))
    return lengths[axis + 1 :] == shape[axis + 1 :]


def _scatter(box: Box, skipped: int, begins: tuple[int, ...], lengths: tuple[int, ...], out: _Target) -> None:
    """Read neighbouring bytes of a box, from byte `skipped` on, to where they lie apart in a region."""
    import numpy as np

    scratch = bytearray(math.prod(lengths))
    box.read_into(skipped, memoryview(scratch))
    place = tuple(
        slice(begin - offset, begin - offset + length)
        for begin, offset, length in zip(begins, out.region.offsets, lengths, strict=True)
    )
    whole = np.frombuffer(out.buffer, np.uint8).reshape(out.region.shape)
    whole[place] = np.frombuffer(scratch, np.uint8).reshape(lengths)
