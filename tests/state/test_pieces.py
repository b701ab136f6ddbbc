"""Pieces joined to one tensor; torch's own slicing says what must come out."""

import threading
import tracemalloc
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptcheck.state.pieces import BLOCK_BYTES, Box, Run, check_inside, join_boxes, join_runs
from ckptcheck.state.raw import ReadInto
from ckptcheck.state.tensor import TensorSpec

DTYPES = {1: ("uint8", torch.uint8), 2: ("int16", torch.int16), 4: ("int32", torch.int32), 8: ("int64", torch.int64)}


def held(content: bytes) -> ReadInto:
    """A reader of bytes in memory that refuses to reach beyond them."""

    def read_into(start: int, buffer: memoryview) -> None:
        assert 0 <= start <= start + len(buffer) <= len(content), "reads beyond the piece"
        buffer[:] = content[start : start + len(buffer)]

    return read_into


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def counted(shape: Sequence[int], size: int) -> tuple[TensorSpec, torch.Tensor]:
    """A tensor whose elements all differ as far as their size lets them."""
    name, dtype = DTYPES[size]
    numel = int(torch.Size(shape).numel())
    return TensorSpec(name, tuple(shape)), (torch.arange(numel) * 7 + 1).to(dtype).reshape(tuple(shape))


def cut(tensor: torch.Tensor, parts: Sequence[Sequence[int]]) -> list[Box]:
    """The boxes of a grid: `parts[axis]` are the lengths along an axis."""
    corners: list[tuple[tuple[int, int], ...]] = [()]
    for lengths in parts:
        begins = [sum(lengths[:place]) for place in range(len(lengths))]
        corners = [(*corner, pair) for corner in corners for pair in zip(begins, lengths, strict=True)]
    return [
        Box(
            tuple(begin for begin, _ in corner),
            tuple(length for _, length in corner),
            held(bytes_of(tensor[tuple(slice(begin, begin + length) for begin, length in corner)])),
        )
        for corner in corners
    ]


def read(read_into: ReadInto, start: int, length: int) -> bytes:
    content = bytearray(b"\xee" * length)
    read_into(start, memoryview(content))
    return bytes(content)


@st.composite
def grids(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    parts = st.lists(st.integers(0, 4), min_size=1, max_size=4)
    return draw(st.lists(parts, min_size=0, max_size=4)), draw(st.sampled_from(sorted(DTYPES)))


@settings(max_examples=150, deadline=None)
@given(grids(), st.randoms(use_true_random=False))
def test_any_grid_of_boxes_reads_as_the_tensor_that_was_cut(grid, random):
    parts, size = grid
    spec, whole = counted([sum(lengths) for lengths in parts], size)
    boxes = cut(whole, parts)
    random.shuffle(boxes)
    joined = join_boxes(spec, boxes)
    content = bytes_of(whole)
    assert read(joined, 0, len(content)) == content
    start = random.randint(0, len(content))
    length = random.randint(0, len(content) - start)
    assert read(joined, start, length) == content[start : start + length]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=6), st.sampled_from(sorted(DTYPES)), st.randoms()
)
def test_runs_of_flat_elements_read_as_the_tensor_they_were_cut_from(lengths, size, random):
    spec, whole = counted([sum(length for length, _ in lengths)], size)
    runs, start = [], 0
    for length, begin in lengths:  # each run lies `begin` elements deep in a buffer of its own
        padding = b"\xaa" * begin * size
        runs.append(Run(start, length, held(padding + bytes_of(whole[start : start + length])), begin))
        start += length
    random.shuffle(runs)
    content = bytes_of(whole)
    joined = join_runs(spec, runs)
    assert read(joined, 0, len(content)) == content
    start = random.randint(0, len(content))
    assert read(joined, start, len(content) - start) == content[start:]


def bricks() -> tuple[TensorSpec, torch.Tensor, list[Box]]:
    """A tiling that no grid of whole cuts makes: a pinwheel of four bricks around a hole that a fifth fills."""
    spec, whole = counted((6, 6), 4)
    places = [((0, 0), (2, 4)), ((0, 4), (4, 2)), ((4, 2), (2, 4)), ((2, 0), (4, 2)), ((2, 2), (2, 2))]
    boxes = [
        Box((top, left), (high, wide), held(bytes_of(whole[top : top + high, left : left + wide])))
        for (top, left), (high, wide) in places
    ]
    return spec, whole, boxes


def test_bricks_that_no_grid_makes_are_joined_too():
    spec, whole, boxes = bricks()
    assert read(join_boxes(spec, boxes), 0, spec.nbytes) == bytes_of(whole)


def box(offsets: tuple[int, ...], shape: tuple[int, ...]) -> Box:
    return Box(offsets, shape, held(b""))


BAD_BOXES = {
    "a hole": [box((0, 0), (2, 4))],
    "no piece at all": [],
    "an overlap that makes up for a hole": [box((0, 0), (2, 4)), box((1, 0), (2, 4))],
    "the same piece twice": [box((0, 0), (2, 4)), box((0, 0), (2, 4))],
    "a piece twice beside the whole": [box((0, 0), (4, 4)), box((0, 0), (2, 4))],
    "crossing columns and rows": [box((0, 0), (4, 2)), box((0, 0), (2, 4))],
    "beyond the end": [box((0, 0), (2, 4)), box((2, 0), (3, 4))],
    "before the beginning": [box((-1, 0), (3, 4)), box((2, 0), (2, 4))],
    "a negative length": [box((0, 0), (4, 4)), box((2, 0), (-1, 4))],
    "other dimensions": [box((0,), (16,))],
    "offsets of other dimensions than the shape": [box((0,), (4, 4))],
    "the first row missing": [box((1, 0), (3, 4)), box((1, 0), (1, 4))],
}


OUTSIDE = {
    "beyond the end": ((2, 0), (3, 4)),
    "before the beginning": ((-1, 0), (1, 4)),
    "a negative length": ((2, 0), (-1, 4)),
    "other dimensions": ((0,), (16,)),
}


@pytest.mark.parametrize(("offsets", "shape"), OUTSIDE.values(), ids=OUTSIDE.keys())
def test_a_box_outside_of_the_tensor_is_told_to_be(offsets, shape):
    with pytest.raises(ValueError, match="reaches beyond"):
        check_inside(TensorSpec("float32", (4, 4)), box(offsets, shape))


@pytest.mark.parametrize("boxes", BAD_BOXES.values(), ids=BAD_BOXES.keys())
def test_boxes_that_do_not_tile_the_tensor_are_refused(boxes):
    with pytest.raises(ValueError, match=r"tile|beyond"):
        join_boxes(TensorSpec("float32", (4, 4)), boxes)


BAD_RUNS = {
    "a hole at the start": ([(1, 9)], "element 0 .* by none"),
    "a hole between": ([(0, 4), (5, 5)], "element 4 .* by none"),
    "an overlap": ([(0, 6), (5, 5)], "element 5 .* twice"),
    "too few": ([(0, 9)], "9 elements are held of the 10"),
    "too many": ([(0, 11)], "11 elements are held of the 10"),
}


@pytest.mark.parametrize(("runs", "said"), BAD_RUNS.values(), ids=BAD_RUNS.keys())
def test_runs_that_do_not_fill_the_tensor_are_refused(runs, said):
    with pytest.raises(ValueError, match=said):
        join_runs(TensorSpec("float32", (2, 5)), [Run(start, numel, held(b"")) for start, numel in runs])


def test_a_dtype_of_unknown_size_is_refused():
    with pytest.raises(ValueError, match="float7"):
        join_boxes(TensorSpec("float7", (1,)), [box((0,), (1,))])
    with pytest.raises(ValueError, match="float7"):
        join_runs(TensorSpec("float7", (1,)), [Run(0, 1, held(b""))])


def test_a_thousand_pieces_along_each_axis_are_proved_to_tile_in_few_steps():
    for parts in ([[1] * 1000, [3]], [[3], [1] * 1000], [[1] * 32, [2] * 32], [[1] * 10, [1] * 10, [1] * 10]):
        spec, whole = counted([sum(lengths) for lengths in parts], 2)
        assert read(join_boxes(spec, cut(whole, parts)), 0, spec.nbytes) == bytes_of(whole)


def staircase(size: int) -> tuple[TensorSpec, torch.Tensor, list[Box]]:
    """Each column cut at a row of its own: every cut of the first axis meets a box of every column."""
    spec, whole = counted((size, size), 4)
    boxes = [Box((0, one), (one, 1), held(bytes_of(whole[:one, one : one + 1]))) for one in range(1, size)]
    boxes += [Box((one, one), (size - one, 1), held(bytes_of(whole[one:, one : one + 1]))) for one in range(size)]
    return spec, whole, boxes


def test_a_staircase_is_joined_while_it_is_small_and_refused_where_proving_it_would_take_long():
    spec, whole, boxes = staircase(60)
    assert read(join_boxes(spec, boxes), 0, spec.nbytes) == bytes_of(whole)
    spec, _, boxes = staircase(500)
    with pytest.raises(ValueError, match="do not tile"):
        join_boxes(spec, boxes)


def test_the_rows_of_a_column_shard_cost_no_memory_each():
    rows = 100_000
    spec = TensorSpec("float32", (rows, 64))
    zeros: ReadInto = lambda start, buffer: None  # noqa: E731
    tracemalloc.start()
    try:
        joined = join_boxes(spec, [Box((0, 32 * half), (rows, 32), zeros) for half in range(2)])
        described, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        content = memoryview(bytearray(spec.nbytes))
        joined(0, content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert described < 100_000
    assert peak < spec.nbytes + 2 * BLOCK_BYTES


def test_a_column_shard_larger_than_a_block_is_read_right():
    spec, whole = counted((3000, 700), 4)
    assert spec.nbytes > BLOCK_BYTES
    joined = join_boxes(spec, cut(whole, [[3000], [300, 1, 399]]))
    assert read(joined, 0, spec.nbytes) == bytes_of(whole)
    assert read(joined, 5, spec.nbytes - 9) == bytes_of(whole)[5:-4]


def test_rows_are_read_straight_into_the_buffer():
    spec, whole = counted((6, 5), 4)
    lent: list[int] = []

    def watched(content: bytes) -> ReadInto:
        def read_into(start: int, buffer: memoryview) -> None:
            lent.append(len(buffer))
            held(content)(start, buffer)

        return read_into

    boxes = [Box((2 * part, 0), (2, 5), watched(bytes_of(whole[2 * part : 2 * part + 2]))) for part in range(3)]
    assert read(join_boxes(spec, boxes), 0, spec.nbytes) == bytes_of(whole)
    assert lent == [40, 40, 40]


def test_threads_read_one_joined_tensor_at_once():
    spec, whole = counted((64, 48), 8)
    joined = join_boxes(spec, cut(whole, [[16] * 4, [24] * 2]))
    content, found = bytes_of(whole), {}

    def part(place: int) -> None:
        found[place] = read(joined, place * 1000, 1000)

    threads = [threading.Thread(target=part, args=(place,)) for place in range(24)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(found[place] == content[place * 1000 : place * 1000 + 1000] for place in range(24))
