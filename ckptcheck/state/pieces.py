"""A tensor whose bytes lie in pieces: shards of several ranks, or slices of flat buffers, read as one."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ckptcheck.state.raw import ReadInto
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec


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


def join_runs(spec: TensorSpec, runs: Sequence[Run]) -> ReadInto:
    """Read a tensor from runs of its flat elements. ValueError where they leave a hole, overlap or reach too far."""
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
    size = ITEMSIZE_BYTES[spec.dtype]
    starts = [run.start * size for run in ordered]

    def read_into(start_bytes: int, buffer: memoryview) -> None:
        place = bisect_right(starts, start_bytes) - 1
        while buffer:
            run = ordered[place]
            skipped = start_bytes - starts[place]
            length = min(run.numel * size - skipped, len(buffer))
            run.read_into(run.begin * size + skipped, buffer[:length])
            start_bytes, buffer, place = start_bytes + length, buffer[length:], place + 1

    return read_into


def join_boxes(spec: TensorSpec, boxes: Sequence[Box]) -> ReadInto:
    """Read a tensor from boxes. ValueError where they do not tile it exactly."""
    for one in boxes:
        ends = [offset + length for offset, length in zip(one.offsets, one.shape, strict=True)]
        if len(ends) != len(spec.shape) or any(end > most for end, most in zip(ends, spec.shape, strict=True)):
            raise ValueError(f"a piece of shape {one.shape} at {one.offsets} reaches beyond {spec}")
    held = [one for one in boxes if math.prod(one.shape)]
    total = sum(math.prod(one.shape) for one in held)
    if total != spec.numel or _overlap(held):
        raise ValueError(f"pieces of {total} elements do not tile the {spec.numel} of {spec}")
    return join_runs(spec, [run for one in held for run in _rows(one, spec.shape)])


def _overlap(boxes: Sequence[Box]) -> bool:
    ordered = sorted(boxes, key=lambda one: one.offsets)
    for place, one in enumerate(ordered):
        for other in ordered[place + 1 :]:
            if one.offsets and other.offsets[0] >= one.offsets[0] + one.shape[0]:
                break
            if all(
                a < b + n and b < a + m
                for a, m, b, n in zip(one.offsets, one.shape, other.offsets, other.shape, strict=True)
            ):
                return True
    return False


def _rows(box: Box, shape: tuple[int, ...]) -> Iterator[Run]:
    """The longest runs of the whole that are contiguous in both the whole and the box."""
    inner = len(shape)
    length = 1
    while inner and box.shape[inner - 1] == shape[inner - 1]:
        inner -= 1
        length *= shape[inner]
    if inner:  # this dimension is cut, but its part is contiguous
        inner -= 1
        length *= box.shape[inner]
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    outer = box.shape[:inner]
    index = [0] * inner
    base = sum(offset * stride for offset, stride in zip(box.offsets, strides, strict=True))
    for row in range(math.prod(outer)):
        start = base + sum(place * stride for place, stride in zip(index, strides[:inner], strict=True))
        yield Run(start, length, box.read_into, row * length)
        for axis in reversed(range(inner)):
            index[axis] += 1
            if index[axis] < outer[axis]:
                break
            index[axis] = 0
