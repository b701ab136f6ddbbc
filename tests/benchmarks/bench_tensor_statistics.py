"""Full statistics of two tensors against a plain comparison of their bytes: `python bench_tensor_statistics.py [MB]`.

Prints milliseconds, nanoseconds an element, and the ratio to `bytes == bytes` on an equal pair in the same run,
both single-threaded in memory; then the time of a diff of many small tensors.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ckptcheck.comparison.tensors import compare_bytes
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec

NARROW_BITS = {"bfloat16": "<u2", "float8_e4m3fn": "u1"}


def best_s(call: Callable[[], Any], times: int = 3) -> float:
    """The shortest of a few runs, in seconds."""
    seconds = []
    for _ in range(times):
        start_s = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start_s)
    return min(seconds)


def pair(dtype: str, numel: int, case: str) -> tuple[bytearray, bytearray]:
    """Left and right bytes of (numel,) elements: normal deviates and, by case, none, one or every element moved."""
    rng = np.random.default_rng(0)
    if dtype.startswith("int"):
        left = rng.integers(-(2**31), 2**31, numel).astype(dtype)
    elif dtype in NARROW_BITS:
        top = (rng.standard_normal(numel).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        left = top if dtype == "bfloat16" else (top & 0xBF).astype(np.uint8)
    else:
        left = rng.standard_normal(numel).astype(dtype)
    right = left.copy()
    bits = right.view(f"<u{left.itemsize}")
    if case == "one differs":
        bits[numel // 2] ^= 1
    elif case == "all differ":
        bits ^= np.uint8(1)
    elif case == "unrelated":
        right = rng.permutation(left)
    return bytearray(left.tobytes()), bytearray(right.tobytes())


def show(dtype: str, case: str, megabytes: int) -> None:
    """Print one row."""
    numel = megabytes * 1_000_000 // ITEMSIZE_BYTES[dtype]
    left, right = pair(dtype, numel, case)
    equal = bytearray(left)
    spec = TensorSpec(dtype, (numel,))
    plain_s = best_s(lambda: left == equal)
    full_s = best_s(lambda: compare_bytes(memoryview(left), memoryview(right), spec, spec))
    each_ns = full_s / numel * 1e9
    print(f"{dtype:14} {case:12} {full_s * 1e3:9.1f} ms {each_ns:7.2f} ns/element {full_s / plain_s:7.1f} x bytes ==")


def main() -> None:
    """Print the table."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    for dtype in ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "int64"):
        for case in ("equal", "one differs", "all differ", "unrelated"):
            show(dtype, case, megabytes)
    small = [pair("float32", 1024, "all differ") for _ in range(100)]
    spec = TensorSpec("float32", (1024,))
    many_s = best_s(lambda: [compare_bytes(memoryview(a), memoryview(b), spec, spec) for a, b in small])
    print(f"a float32 tensor of 1024 elements: {many_s / len(small) * 1e6:.0f} us")


if __name__ == "__main__":
    main()
