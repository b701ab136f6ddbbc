"""Pairs of tensors read in ranges, on threads: what is equal, how far the rest is, and how it ends."""

import threading
import time
import tracemalloc

import numpy as np
import pytest
import torch

from ckptcheck.comparison import crew, streams
from ckptcheck.comparison.streams import Question, find_unequal, is_measurable, measure
from ckptcheck.comparison.tensors import compare_bytes, count_beyond
from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.source import FilePool
from ckptcheck.state.raw import RawTensor
from ckptcheck.state.tensor import TensorSpec
from tests.comparison.held import of_bytes, raw_tensor

BYTES = "uint8"


def side(content: bytes) -> RawTensor:
    return of_bytes(content, TensorSpec(BYTES, (len(content),)))


def zeros(nbytes: int, flipped: int | None = None) -> RawTensor:
    """All zero bytes but one, made when they are read: as large as you like."""

    def read_into(start_bytes: int, buffer: memoryview) -> None:
        buffer[:] = bytes(len(buffer))
        if flipped is not None and start_bytes <= flipped < start_bytes + len(buffer):
            buffer[flipped - start_bytes] = 1

    return RawTensor(TensorSpec(BYTES, (nbytes,)), read_into)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(streams, "CHUNK_BYTES", 8)
    monkeypatch.setattr(streams, "RANGE_BYTES", 20)
    monkeypatch.setattr(streams, "ALONE_BYTES", 0)
    monkeypatch.setattr(streams, "SMALL_BYTES", 0)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 19, 20, 21, 40, 61])
def test_any_single_byte_that_differs_is_found_wherever_chunks_and_ranges_end(small_chunks, length):
    content = bytes(range(length))
    for place in range(length):
        other = bytearray(content)
        other[place] ^= 0x80
        assert find_unequal([(side(content), side(content)), (side(content), side(bytes(other)))]) == {1}


def test_equal_pairs_of_all_sizes_are_equal_and_empty_ones_too(small_chunks):
    sizes = [0, 1, 8, 19, 20, 21, 100, 0, 3]
    assert find_unequal([(side(bytes(size)), side(bytes(size))) for size in sizes]) == set()


def test_a_short_tensor_is_not_held_against_what_a_longer_one_left_in_the_buffer(small_chunks):
    pairs = [(side(b"abcdefgh"), side(b"abcdefgh")), (side(b"ab"), side(b"ab")), (side(b"ax"), side(b"ab"))]
    assert find_unequal(pairs) == {2}


def test_a_pair_is_read_no_further_than_its_first_difference(small_chunks, monkeypatch):
    monkeypatch.setattr(streams, "thread_count", lambda: 1)
    reads: list[int] = []
    spec = TensorSpec(BYTES, (1000,))
    find_unequal([(of_bytes(bytes(1000), spec, reads=reads), of_bytes(b"\1" * 1000, spec))])
    assert reads == [8]


def test_large_tensors_are_shared_among_threads():
    seen: set[int] = set()
    both = threading.Barrier(2, timeout=10)

    def read_into(start_bytes: int, buffer: memoryview) -> None:
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both.wait()  # passes only once a second thread reads
        buffer[:] = bytes(len(buffer))

    spec = TensorSpec(BYTES, (64 << 20,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "thread_count", lambda: 2)
        assert find_unequal([(RawTensor(spec, read_into), zeros(64 << 20))]) == set()
    assert len(seen) == 2


def test_memory_does_not_grow_with_the_size_of_the_tensors():
    tracemalloc.start()
    try:
        assert find_unequal([(zeros(1 << 29), zeros(1 << 29, flipped=(1 << 29) - 1))]) == {0}
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        measure([Question((zeros(1 << 25), zeros(1 << 25, flipped=99)))])
        _, measuring_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 * streams.CHUNK_BYTES * crew.MAX_THREADS
    assert measuring_bytes < 12 << 20


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_damage_that_a_thread_meets_reaches_the_caller(small_chunks, monkeypatch, threads):
    monkeypatch.setattr(streams, "thread_count", lambda: threads)

    def cut_short(start_bytes: int, buffer: memoryview) -> None:
        if start_bytes + len(buffer) > 500:
            raise DamagedCheckpointError("cut short")
        buffer[:] = bytes(len(buffer))

    broken = RawTensor(TensorSpec(BYTES, (1000,)), cut_short)
    with pytest.raises(DamagedCheckpointError, match="cut short"):
        find_unequal([(broken, zeros(1000))])
    with pytest.raises(DamagedCheckpointError, match="cut short"):
        measure([Question((broken, zeros(1000)))])


def test_an_interrupt_ends_the_other_threads_at_their_next_chunk(small_chunks, monkeypatch):
    monkeypatch.setattr(streams, "thread_count", lambda: 2)
    reads = 0

    def read_into(start_bytes: int, buffer: memoryview) -> None:
        nonlocal reads
        reads += 1
        if threading.current_thread() is threading.main_thread() and reads > 10:
            raise KeyboardInterrupt
        buffer[:] = bytes(len(buffer))

    before = threading.active_count()
    endless = RawTensor(TensorSpec(BYTES, (1 << 24,)), read_into)
    with pytest.raises(KeyboardInterrupt):
        find_unequal([(endless, zeros(1 << 24))])
    assert threading.active_count() == before
    assert reads < 100_000  # of two million


class Heard:
    def __init__(self):
        self.said = []

    def update(self, run, phase, step, steps):
        self.said.append((run, phase, step, steps))


def test_progress_is_told_of_bytes_and_ends_at_all_of_them(small_chunks, monkeypatch):
    monkeypatch.setattr(streams, "thread_count", lambda: 1)
    heard = Heard()
    find_unequal([(zeros(50), zeros(50)), (zeros(5), zeros(5, flipped=2))], heard)
    assert heard.said[-1] == ("diff", "compare", 55, 55)
    assert [step for *_, step, _ in heard.said] == sorted(step for *_, step, _ in heard.said)
    measure([Question((zeros(500), zeros(500, flipped=7)))], heard)
    assert heard.said[-1] == ("diff", "measure", 500, 500)
    measure([Question((zeros(5), zeros(5, flipped=2))) for _ in range(3)], heard)
    assert heard.said[-1] == ("diff", "measure", 15, 15)


def test_files_are_compared_through_their_windows(tmp_path):
    content = np.random.default_rng(0).bytes(5_000_000)
    for name, middle in (("left", b"\0"), ("right", b"\1")):
        (tmp_path / name).write_bytes(content[:4_000_000] + middle + content[4_000_001:])
    pools = FilePool(), FilePool()
    sources = [pool.open(tmp_path / name) for pool, name in zip(pools, ("left", "right"), strict=True)]
    spec = TensorSpec(BYTES, (1_000_000,))
    windows = [
        [RawTensor(spec, one.window(at, 1_000_000).read_into) for one in sources] for at in range(0, 5_000_000, 10**6)
    ]
    assert find_unequal([(left, right) for left, right in windows]) == {4}
    for pool in pools:
        pool.close()


NAN, INF = float("nan"), float("inf")
MEASURED = [
    ("float32", 300_000),
    ("float64", 140_000),
    ("bfloat16", 140_000),
    ("float8_e4m3fn", 140_000),
    ("float8_e8m0fnu", 70_000),
    ("complex64", 70_000),
    ("int64", 140_000),
    ("bool", 70_000),
    ("float4_e2m1fn_x2", 140_001),
]


@pytest.mark.parametrize("share_alike", [0, 19])
@pytest.mark.parametrize(("dtype", "numel"), MEASURED)
def test_a_streamed_difference_is_that_of_the_whole_bytes(dtype, numel, share_alike):
    rng = np.random.default_rng(1)
    spec = TensorSpec(dtype, (numel,))
    contents = [bytearray(rng.bytes(spec.nbytes)) for _ in range(2)]
    if dtype == "bool":
        contents = [bytearray(byte & 1 for byte in one) for one in contents]
    alike = spec.nbytes * share_alike // 20 // 16 * 16
    contents[1][:alike] = contents[0][:alike]
    whole = compare_bytes(memoryview(contents[0]), memoryview(contents[1]), spec, spec)
    beyond = count_beyond(memoryview(contents[0]), memoryview(contents[1]), spec, spec, rtol=0.5, atol=1e-3)
    pair = of_bytes(bytes(contents[0]), spec), of_bytes(bytes(contents[1]), spec)
    found = measure([Question(pair, tolerance=(0.5, 1e-3)), Question(pair)])
    assert [one.difference for one in found] == [whole, whole]
    assert [one.beyond for one in found] == [beyond, None]
    assert whole.differing > 0


def test_two_dtypes_are_measured_by_value_each_side_with_its_own_width():
    values = torch.linspace(-3, 3, 200_001)
    left, right = raw_tensor(values), raw_tensor(values.bfloat16())
    (found,) = measure([Question((left, right))])
    exact = (values.double() - values.bfloat16().double()).abs()
    assert found.difference.differing == int((exact > 0).sum())
    assert found.difference.max_abs == float(exact.max())
    assert found.difference.max_abs_at == (int(exact.argmax()),)
    assert found.difference.rounded_through == "bfloat16"


def test_four_bit_floats_are_compared_nibble_by_nibble_the_low_one_first():
    spec = TensorSpec("float4_e2m1fn_x2", (2, 2))
    left = bytes([0x10, 0x32, 0x54, 0x76])  # 0 .5 | 1 1.5 | 2 3 | 4 6
    right = bytes([0x10, 0x3A, 0x57, 0x76])  # third number -1, fifth 6
    (found,) = measure([Question((of_bytes(left, spec), of_bytes(right, spec)))])
    one = found.difference
    assert (one.numel, one.differing, one.first_at, one.sign_flips) == (8, 2, (0, 1, 0), 1)
    assert (one.max_abs, one.max_abs_at) == (4.0, (1, 0, 0))
    assert one.rel_l2 == pytest.approx(((2**2 + 4**2) / (0.25 + 1 + 2.25 + 4 + 9 + 16 + 36)) ** 0.5)
    assert (one.max_ulp, one.median_ulp) == (4, 3)  # -1 is 2 below zero and 1 is 2 above; 2 and 6 are 3 apart


@pytest.mark.parametrize(
    ("left", "right", "cast", "equal"),
    [
        (torch.tensor([1.0, 1.001]), torch.tensor([1.0, 1.0]), "bfloat16", True),
        (torch.tensor([1.0, 1.001]), torch.tensor([1.0, 1.0]), "float16", False),
        (torch.tensor([1.0, 1.02]), torch.tensor([1.0, 1.0]), "bfloat16", False),
        (torch.tensor([1.0, NAN, -0.0]), torch.tensor([1.0, NAN, -0.0]).bfloat16(), "bfloat16", True),
        (torch.tensor([0.0]), torch.tensor([-0.0]), "bfloat16", False),
        (torch.tensor([1e39], dtype=torch.float64), torch.tensor([INF]), "float32", True),
        (torch.tensor([1 + 2.0**-40], dtype=torch.float64), torch.tensor([1.0]), "float32", True),
        (torch.tensor([1 + 2.0**-40], dtype=torch.float64), torch.tensor([1.0]), "float64", False),
        (torch.tensor([1]), torch.tensor([1.0]), "float32", False),
        (torch.tensor([1.001 + 1j]), torch.tensor([1.0 + 1j]), "bfloat16", True),
        (torch.tensor([1.0 + 1.02j]), torch.tensor([1.0 + 1j]), "bfloat16", False),
    ],
)
def test_equal_after_cast_is_what_torch_finds_when_it_casts(left, right, cast, equal):
    (found,) = measure([Question((raw_tensor(left), raw_tensor(right)), cast=cast)])
    assert found.equal_after_cast is equal


def test_tiny_tensors_of_equal_bytes_share_one_measurement_and_others_do_not():
    pairs = [(torch.tensor(5.0), torch.tensor(6.0)), (torch.tensor(5.0), torch.tensor(7.0))] * 3
    found = measure([Question((raw_tensor(left), raw_tensor(right))) for left, right in pairs])
    assert [one.difference.max_abs for one in found] == [1.0, 2.0] * 3
    assert found[0] is found[2]


@pytest.mark.parametrize(
    ("left", "right", "can"),
    [
        (("float32", (2,)), ("float16", (2,)), True),
        (("float32", (2,)), ("float32", (1, 2)), False),
        (("complex64", (2,)), ("complex128", (2,)), True),
        (("complex64", (2,)), ("float32", (2,)), False),
        (("float4_e2m1fn_x2", (2,)), ("float8_e5m2", (2,)), False),
        (("float6_e3m2fn", (2,)), ("float6_e3m2fn", (2,)), False),
    ],
)
def test_only_tensors_of_one_shape_and_known_numbers_can_be_measured(left, right, can):
    assert is_measurable(TensorSpec(*left), TensorSpec(*right)) is can


def test_jobs_are_each_done_once_by_any_number_of_threads():
    done: list[int] = []
    crew.work_off(range(1000), lambda job, worker: done.append(job), threads=4)
    assert sorted(done) == list(range(1000))


def test_a_thread_that_fails_stops_the_others():
    done: list[int] = []

    def work(job: int, worker: crew.Worker) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("no")
        time.sleep(0.001)
        done.append(job)

    with pytest.raises(ValueError, match="no"):
        crew.work_off(range(20_000), work, threads=2)
    assert len(done) < 5_000
