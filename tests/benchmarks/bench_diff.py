"""What `diff` and `inspect` cost, against `cmp` and against torch, on files that torch itself writes.

    python -m tests.benchmarks.bench_diff [--big] [--turns N]

Makes a pair of 0.8 GB files with Adam state (8 GB with --big) in a temporary folder: an equal one, one in which every
tensor differs, and one tensor of that size alone. Then sparse files that claim 50 GB. Every figure is the whole
process, start included, the best of some turns taken one after the other; peak memory is the process's own. The peer of
`diff` is `cmp` on the equal pair of the same run; torch loads both files and compares every tensor exactly.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MAKE = """
import sys, torch
folder, megabytes = sys.argv[1], int(sys.argv[2])
width, layers = 2048, max(1, megabytes * 1_000_000 // 3 // (2048 * 2049 * 4))
torch.manual_seed(0)
model = torch.nn.ModuleDict({f"l{i}": torch.nn.Linear(width, width) for i in range(layers)})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
def step():
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
def save(name, value):
    torch.save(value, f"{folder}/{name}.pt")
step()
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
save("left", state)
save("same", state)
step()
save("next", {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2})
del model, optimizer, state
one = torch.randn(megabytes * 250_000)
save("one_left", {"model": {"w": one}})
one *= 1.0001
save("one_next", {"model": {"w": one}})
"""
MAKE_SPARSE = """
import sys, torch
from torch._subclasses.fake_tensor import FakeTensorMode
path, tensors, numel = sys.argv[1], int(sys.argv[2]), 12_500_000_000
with FakeTensorMode(), torch.serialization.skip_data(materialize_fake_tensors=True):
    model = {f"layers.{i}.weight": torch.empty(numel // tensors // 100, 100) for i in range(tensors // 3)}
    state = {i: {"exp_avg": torch.empty_like(one), "exp_avg_sq": torch.empty_like(one)}
             for i, one in enumerate(model.values())}
    group = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "params": list(range(len(model)))}
    torch.save({"model": model, "optimizer": {"state": state, "param_groups": [group]}}, path)
"""
TORCH = """
import sys, torch
def leaves(value, path=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}/{key}")
    elif isinstance(value, list):
        yield from leaves(dict(enumerate(value)), path)
    else:
        yield path, value
left, right = (dict(leaves(torch.load(path, weights_only=True))) for path in sys.argv[1:])
unlike = sum(not torch.equal(one, right[path]) if isinstance(one, torch.Tensor) else one != right[path]
             for path, one in left.items())
print(unlike)
"""


@dataclass(frozen=True)
class Cost:
    """Wall time of a process in seconds, and the most memory that it held, in MB."""

    wall_s: float
    peak_mb: float


def cost(command: list[str], turns: int, expected: int = 0) -> Cost:
    """The best of some turns; the process must exit as expected."""
    best = Cost(float("inf"), 0.0)
    for _ in range(turns):
        started_s = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != expected:
            raise SystemExit(f"{' '.join(command)} exited {process.returncode}, not {expected}")
        best = min(best, Cost(wall_s, usage.ru_maxrss / 1024), key=lambda one: one.wall_s)
    return best


def show(
    name: str, found: Cost, peer: Cost | None = None, goal_s: float | None = None, goal_mb: float | None = None
) -> None:
    """Print one row."""
    ratio = f"{found.wall_s / peer.wall_s:7.2f} x" if peer else " " * 9
    goal = f"   goal {goal_s:.2f} s: {'kept' if found.wall_s <= goal_s else 'MISSED'}" if goal_s else ""
    memory = f", {goal_mb} MB: {'kept' if found.peak_mb <= goal_mb else 'MISSED'}" if goal_mb else ""
    print(f"{name:48} {found.wall_s:8.2f} s {ratio} {found.peak_mb:8.0f} MB{goal}{memory}", flush=True)


def ckptcheck(*arguments: object) -> list[str]:
    """The command line of our own tool."""
    return [sys.executable, "-m", "ckptcheck", *map(str, arguments), "--no-progress"]


def make(script: str, *arguments: object) -> None:
    """Run a script that writes files."""
    subprocess.run([sys.executable, "-c", script, *map(str, arguments)], check=True)


def show_diffs(folder: Path, megabytes: int, turns: int) -> None:
    """The table of one size."""
    make(MAKE, folder, megabytes)
    left, same, following = (folder / f"{name}.pt" for name in ("left", "same", "next"))
    copy = folder / "copy.pt"
    subprocess.run(["cp", str(left), str(copy)], check=True)
    print(f"\ntwo files of {left.stat().st_size / 1e9:.2f} GB, model and Adam state; best of {turns}; ratios to cmp")
    peer = cost(["cmp", str(left), str(copy)], turns)
    show("cmp, equal", peer, peer)
    show("diff, equal", cost(ckptcheck("diff", left, same), turns), peer, 0.6 * peer.wall_s + 0.4, 150)
    goal_s = 4 * peer.wall_s + 0.5
    show("diff, every tensor differs", cost(ckptcheck("diff", left, following), turns, 1), peer, goal_s, 400)
    show("diff --stat, every tensor differs", cost(ckptcheck("diff", "--stat", left, following), turns, 1), peer)
    alone = folder / "one_left.pt", folder / "one_next.pt"
    show("diff, one tensor of that size, every element", cost(ckptcheck("diff", *alone), turns, 1), peer, None, 400)
    show("torch.load of both, torch.equal", cost([sys.executable, "-c", TORCH, str(left), str(same)], turns), peer)
    for path in folder.iterdir():
        path.unlink()


def show_inspect(folder: Path, turns: int) -> None:
    """Metadata alone: files that claim 50 GB."""
    print("\nsparse files that claim 50 GB")
    for tensors, goal_s in ((999, 0.5), (19_998, 3.0)):
        path = folder / f"sparse{tensors}.pt"
        make(MAKE_SPARSE, path, tensors)
        show(f"inspect, {tensors} tensors", cost(ckptcheck("inspect", path), turns), None, goal_s)
        path.unlink()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--big", action="store_true", help="also 8 GB files: six of them, and 16 GB of memory")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    show("ckptcheck --version", cost([sys.executable, "-m", "ckptcheck", "--version"], options.turns), None, 0.15)
    with tempfile.TemporaryDirectory() as name:
        show_inspect(Path(name), options.turns)
        for megabytes in (800, 8000) if options.big else (800,):
            show_diffs(Path(name), megabytes, options.turns if megabytes < 8000 else 2)


if __name__ == "__main__":
    main()
