"""What recording costs a GPT of ten and of a hundred million parameters, at 512 tokens a step, on one thread.

    python -m tests.benchmarks.bench_record [STEPS_OF_10M] [STEPS_OF_100M] [REPEATS]

Two processes run the same script, one of them recorded as `ckptcheck record` does it, and take turns step by step, so
that whatever else the machine does meets both. The figure is the median of the ratios of such pairs, with quartiles,
of the wall time and of the time that the training thread had a processor. The first steps are left out; with 0 steps a
size is. Run it on a machine with two idle processors: the digests are made on the second one.
"""

import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptcheck.trace.file import open_traces
from ckptcheck.trace.injection.environment import recorded
from ckptcheck.trace.script.orders import Orders

SCRIPT = Path(__file__).with_name("gpt_script.py")
SIZES = {"10M": (384, 6), "100M": (768, 14)}
"""Width and depth."""
WARM_UP = 4


class Training:
    """A process that takes a step when it is told to."""

    def __init__(self, size: tuple[int, int], environment: Mapping[str, str]) -> None:
        command = [sys.executable, str(SCRIPT), *map(str, size)]
        self._process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def step(self) -> list[float]:
        """The three times of a step."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        return self._line()

    def end(self) -> list[float]:
        """Parameters, peak memory in bytes, loss."""
        assert self._process.stdin
        self._process.stdin.close()
        last = self._line()
        if self._process.wait():
            raise SystemExit("a training failed")
        return last

    def _line(self) -> list[float]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a training ended early")
        return json.loads(line)  # type: ignore[no-any-return]


def told(ratios: list[float]) -> str:
    """The median of ratios over one, and the quartiles."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle - 1:+.1%} (quartiles {low - 1:+.1%} to {high - 1:+.1%})"


def pair(size: tuple[int, int], steps: int, environment: Mapping[str, str], folder: Path) -> list[Any]:
    """The times of each pair of steps, and what the two processes say at their ends."""
    plain = Training(size, environment)
    watched = Training(size, recorded(Orders(traces=folder / "traces"), folder / "orders.json", environment))
    times = []
    for step in range(steps):
        first, second = (plain, watched) if step % 2 else (watched, plain)
        one, other = first.step(), second.step()
        times.append((one, other) if first is plain else (other, one))
    return [times[WARM_UP:], plain.end(), watched.end()]


def trace_said(folder: Path, steps: int) -> str:
    """What the trace took on disk, and what it says of its own cost."""
    (trace,) = open_traces(folder / "traces")
    (rows,) = sqlite3.connect(trace.path).execute("SELECT count(*) FROM records").fetchone()
    size = trace.path.stat().st_size
    spent_s = trace.header["recording_s"]
    trace.close()
    return f"trace {size / rows:.1f} bytes a row ({rows} rows); in the recorder {1e3 * spent_s / steps:.1f} ms a step"


def measure(name: str, steps: int, repeats: int) -> None:
    """Print the figures of one size."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    everything: list[Any] = []
    for turn in range(repeats):
        with tempfile.TemporaryDirectory() as place:
            times, plain, watched = pair(SIZES[name], steps, environment, Path(place))
            said = trace_said(Path(place), steps)
        everything += times
        wall, thread, all_threads = ([right[k] / left[k] for left, right in times] for k in range(3))
        step_s = statistics.median(left[0] for left, _ in times)
        print(f"{name} ({plain[0] / 1e6:.1f}M parameters), turn {turn + 1}: step {1e3 * step_s:.0f} ms;", end=" ")
        print(f"wall {told(wall)}; training thread {told(thread)}; all threads {told(all_threads)}")
        print(f"  {said}; peak memory {plain[1] / 2**20:.0f} MiB alone, {watched[1] / 2**20:.0f} recorded", flush=True)
        if plain[2] != watched[2]:
            raise SystemExit(f"the losses differ: {plain[2]} alone, {watched[2]} recorded")
    for k, what in enumerate(("wall time", "time of the training thread")):
        print(
            f"{name}: recorded / alone, {what}: {told([right[k] / left[k] for left, right in everything])}", flush=True
        )


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    small, large, turns = numbers + [100, 20, 3][len(numbers) :]
    for name, steps in (("10M", small), ("100M", large)):
        if steps > WARM_UP + 1:
            measure(name, steps, turns)
