"""Views of a storage are gathered as torch gathers them, from any byte on, in bounded memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.source import FilePool
from ckptcheck.readers.tensor_bytes import SCRATCH_BYTES, Gathered, Held, is_row_major, merged

SHAPES = st.lists(st.integers(0, 5), max_size=4)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), shape=SHAPES, size=st.sampled_from([1, 2, 4, 8, 16]))
def test_any_view_read_from_any_byte_is_what_torch_makes_of_it(
    data: st.DataObject, shape: list[int], size: int
) -> None:
    stride = data.draw(st.lists(st.integers(0, 40), min_size=len(shape), max_size=len(shape)))
    offset = data.draw(st.integers(0, 9))
    numel = offset + 1 + sum(max(length - 1, 0) * step for length, step in zip(shape, stride, strict=True))
    content = np.random.default_rng(0).bytes(numel * size)
    bytes_view = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(numel, size)
    expected = bytes_view.as_strided((*shape, size), (*(step * size for step in stride), 1), offset * size)
    whole = expected.contiguous().numpy().tobytes()
    read = Gathered(Held(content), offset * size, tuple(shape), tuple(stride), size)
    start = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, len(whole) - start))
    buffer = memoryview(bytearray(length))
    read(start, buffer)
    assert bytes(buffer) == whole[start : start + length]


@settings(max_examples=100, deadline=None)
@given(shape=SHAPES, stride=st.lists(st.integers(0, 6), min_size=4, max_size=4))
def test_row_major_is_what_torch_calls_contiguous(shape: list[int], stride: list[int]) -> None:
    steps = stride[: len(shape)]
    live = torch.zeros(200).as_strided(shape, steps)
    assert is_row_major(tuple(shape), tuple(steps)) == live.is_contiguous()
    lengths, merged_steps = merged(tuple(shape), tuple(steps))
    assert np.prod(lengths, dtype=int) == np.prod(shape, dtype=int)
    assert len(lengths) == len(merged_steps) <= len(shape)


@pytest.mark.parametrize("turned", [(1, 0), (0, 1)])
def test_a_large_turned_matrix_takes_little_memory(tmp_path: Path, turned: tuple[int, int]) -> None:
    matrix = np.arange(1_500 * 2_000, dtype="<u4").reshape(1_500, 2_000)
    path = tmp_path / "matrix"
    path.write_bytes(matrix.tobytes())
    live = matrix.transpose(turned)
    stride = tuple(step // 4 for step in live.strides)
    read = Gathered(FilePool().open(path), 0, live.shape, stride, 4)
    expected, buffer = live.tobytes(), memoryview(bytearray(700_000))
    read(0, buffer)
    tracemalloc.start()
    for start in range(3, len(expected), len(buffer)):
        block = buffer[: len(expected) - start]
        read(start, block)
        assert block == expected[start : start + len(block)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * SCRATCH_BYTES


def test_a_row_wider_than_what_is_looked_at_at_once_is_repeated(tmp_path: Path) -> None:
    row = np.random.default_rng(1).bytes(3 * SCRATCH_BYTES)
    path = tmp_path / "row"
    path.write_bytes(row)
    read = Gathered(FilePool().open(path), 0, (3, len(row)), (0, 1), 1)
    buffer = memoryview(bytearray(3 * len(row)))
    read(0, buffer)
    assert bytes(buffer) == row * 3


@pytest.mark.parametrize(("size", "swap"), [(4, 4), (8, 4), (2, 2), (16, 8)])
def test_bytes_are_swapped_within_each_part(size: int, swap: int) -> None:
    content = bytes(range(96))
    expected = np.frombuffer(content, f">u{swap}").astype(f"<u{swap}").tobytes()
    read = Gathered(Held(content), 0, (96 // size,), (1,), size, swap)
    for start in (0, 1, 5, 16):
        buffer = memoryview(bytearray(33))
        read(start, buffer)
        assert bytes(buffer) == expected[start : start + 33]


def test_bytes_that_are_not_there_are_said_to_be_missing() -> None:
    with pytest.raises(DamagedCheckpointError, match="missing"):
        Gathered(Held(b"1234"), 0, (3,), (1,), 2)(0, memoryview(bytearray(6)))
