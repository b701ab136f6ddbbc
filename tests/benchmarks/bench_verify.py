"""What `verify` costs on a 10M-parameter GPT, against the pure training of the same runs in the same layout.

    python -m tests.benchmarks.bench_verify [STEPS] [REPEATS]

The peer starts as many interpreters as `verify` does, as many side by side, which build the same target and call
its step as often, without recording, saving or loading. Both are whole-process wall times of one run of this
script, taken in turn; the figure is their ratio. Peak memory is that of the largest process of each.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

TARGET = "fixtures/char_gpt.py:build_10m"
ROOT = Path(__file__).resolve().parents[2]
PLAIN = """
import sys, tempfile, pathlib
sys.path.insert(0, "fixtures")
import torch, ckptcheck, char_gpt
first, last = int(sys.argv[1]), int(sys.argv[2])
run = char_gpt.build_10m(ckptcheck.Context(torch.device("cpu"), 0, pathlib.Path(tempfile.mkdtemp())))
for s in range(first, last + 1):
    run.step(s)
print(torch.get_num_threads())
"""


def timed(waves: list[list[list[str]]], environment: dict[str, str]) -> float:
    """Seconds for waves of commands, the commands of a wave side by side."""
    started = time.perf_counter()
    for wave in waves:
        running = [subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL) for command in wave]
        if any(process.wait() for process in running):
            raise SystemExit("a run failed")
    return time.perf_counter() - started


def main(steps: int, repeats: int) -> None:
    """Print the ratio of verify to its peer, pair by pair."""
    half = steps // 2
    plain = [sys.executable, "-c", PLAIN]
    whole = [*plain, "1", str(steps)]
    side_by_side = 2 if (os.cpu_count() or 1) >= 2 else 1
    threads = str(max(1, (os.cpu_count() or 1) // side_by_side))
    peer = [[whole, whole] if side_by_side == 2 else [whole], [[*plain, str(half + 1), str(steps)]]]
    if side_by_side == 1:
        peer.insert(0, [whole])
    options = ["--steps", str(steps), "--resume-at", str(half), "-q"]
    verify = [sys.executable, "-m", "ckptcheck", "verify", TARGET, *options]
    environment = os.environ | {"OMP_NUM_THREADS": threads}
    ratios = []
    for turn in range(repeats):
        pair = timed(peer, environment), timed([[verify]], environment)
        ratios.append(pair[1] / pair[0])
        told = f"training alone {pair[0]:.1f} s, verify {pair[1]:.1f} s, ratio {ratios[-1]:.3f}"
        print(f"turn {turn + 1}: {told}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"verify / training alone, median of {repeats}: {statistics.median(ratios):.3f} ({threads} thread(s) a run)")
    print(f"largest process: {peak:.0f} MiB")


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    main(*(numbers + [20, 3][len(numbers) :]))
