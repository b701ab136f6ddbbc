"""What `compare` costs on traces of very many tensors and steps.

    python -m tests.benchmarks.bench_compare [--tensors N] [--steps N] [--few] [--keep FOLDER]

Writes traces with `TraceWriter`: each of N parameters with its gradient and two state tensors, four rows a step; with
--few as many parameters that N rows a step are reached. The reference is compared with an equal trace, with one that
differs in every tensor from the middle on, and with one that lists its items in another order. Every figure is the
whole process of `ckptcheck compare`, start included: seconds of wall clock and of processor, and its peak memory. The
peer is a plain read of all rows of both files by SQLite. Four files of up to 0.8 GB lie in a temporary folder.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ckptcheck.state.digest import plain_digest
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.items import NONZERO, STEP, Item, Sample

SPEC = TensorSpec("float32", (64, 64))
GENERATOR = TensorSpec("uint8", (5056,))
SIDES = ("equal", "apart", "order")


def items_of(names: list[str]) -> list[tuple[Item, int | None]]:
    """The items of every parameter, each with its gradient presence."""
    keys = (("param", "", -1), ("grad", "", -1), ("state", "exp_avg", 0), ("state", "exp_avg_sq", 0))
    return [(Item(kind, name, key, place), NONZERO if kind == "grad" else None) for name in names
            for kind, key, place in keys]  # fmt: skip


def content(*what: object) -> bytes:
    """Sixteen bytes for a content."""
    return hashlib.blake2b(repr(what).encode(), digest_size=16).digest()


def text(value: str) -> Sample:
    """A plain value. What measures live values imports torch, whose memory would count as that of what is started."""
    return Sample(None, plain_digest(value), value=value)


def write(path: Path, tensors: int, steps: int, apart: int | None = None, *, shuffled: bool = False) -> None:
    """Write one trace; from step `apart` on it holds other content."""
    names = [f"model.layers.{place}.weight" for place in range(tensors)]
    items = items_of(names)
    if shuffled:
        random.Random(1).shuffle(items)
    writer = TraceWriter(path, {"digest": "xxh3_128"})
    groups = text(json.dumps([{"class": "AdamW", "groups": [names]}]))
    for step in range(1, steps + 1):
        side = apart is not None and step >= apart
        few = [(Item("structure", "groups"), groups), (Item("hyper", "", "lr", 0, 0), text("0.1")),
               (Item("rng", "torch"), Sample(GENERATOR, content(step)))]  # fmt: skip
        writer.write(step, STEP, [*few, *_samples(items, step, side)])
    writer.close(clean=True)


def _samples(items: list[tuple[Item, int | None]], step: int, side: bool) -> Iterator[tuple[Item, Sample]]:
    for item, presence in items:
        yield item, Sample(SPEC, content(step, side, item.kind, item.name, item.key), presence, 1.5 + step)


def measured(left: Path, right: Path) -> tuple[str, float, float, float]:
    """(verdict, seconds, processor seconds, peak MB) of one comparison."""
    command = [sys.executable, "-m", "ckptcheck", "compare", str(left), str(right), "--format", "json"]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    verdict = json.loads(process.stdout.read())["verdict"]
    _, _, used = os.wait4(process.pid, 0)
    return verdict, time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def plain_read(paths: tuple[Path, Path]) -> float:
    """Seconds in which SQLite hands out all rows of two traces."""
    started = time.perf_counter()
    for path in paths:
        base = sqlite3.connect(path)
        for _ in base.execute("SELECT what, digest, presence FROM records"):
            pass
        base.close()
    return time.perf_counter() - started


def main() -> None:
    """Make the traces and print what their comparisons cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--few", action="store_true", help="as many parameters that there are so many rows a step")
    parser.add_argument("--keep", type=Path, help="leave the traces in this folder")
    asked = parser.parse_args()
    tensors = asked.tensors // 4 if asked.few else asked.tensors
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="bench-compare-"))
    try:
        paths = {name: folder / f"{name}.trace" for name in ("reference", *SIDES)}
        for name, path in paths.items():
            apart = asked.steps // 2 if name == "apart" else None
            write(path, tensors, asked.steps, apart, shuffled=name == "order")
        size = paths["reference"].stat().st_size
        print(f"{tensors} parameters, {4 * tensors} rows a step, {asked.steps} steps, {size / 1e6:.0f} MB a trace")
        peer = plain_read((paths["reference"], paths["equal"]))
        print(f"{'':8} {'verdict':8} {'seconds':>8} {'cpu s':>8} {'peak MB':>8} {'/ plain read':>13}")
        for name in SIDES:
            verdict, seconds, used, peak = measured(paths["reference"], paths[name])
            print(f"{name:8} {verdict:8} {seconds:8.1f} {used:8.1f} {peak:8.0f} {seconds / peer:13.2f}")
        print(f"a plain read of all rows of two traces: {peer:.1f} s")
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
