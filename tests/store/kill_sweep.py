"""Kill real saving processes at random moments and look at what they leave. Run by hand:

    python -m tests.store.kill_sweep --random 200 [--seed 1] [--folder DIR]

A child saves one state after the other into one folder; every tensor, hyperparameter and generator says which
step it belongs to. The parent sends SIGKILL, loads what is there, and demands one whole state: the last one that
the child reported, or the one after it.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn, optim

from ckptcheck.store.load import load
from ckptcheck.store.read import read_state
from ckptcheck.store.save import save

WIDTH = 400


class Count:
    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def fields(step: int) -> dict[str, Any]:
    torch.manual_seed(step)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    optimizer = optim.SGD(model.parameters(), lr=0.0, momentum=0.5, weight_decay=step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(step)
            parameter.grad = torch.full_like(parameter, step)
            optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, step)
    counted = Count()
    counted.step = step
    return {"model": model, "optimizer": optimizer, "data": counted}


def child(folder: Path, step: int, told: int) -> None:
    while True:
        step += 1
        save(folder, **fields(step), step=step)
        os.write(told, step.to_bytes(4, "little"))


def whole_step(folder: Path) -> int:
    """The step of the state in the folder; AssertionError when it is not one whole state."""
    there = fields(0)
    step = load(folder, **there)
    assert step is not None
    assert torch.initial_seed() == step
    assert there["data"].step == step
    assert there["optimizer"].param_groups[0]["weight_decay"] == step
    for parameter in there["model"].parameters():
        assert parameter.grad is not None
        for tensor in (parameter, parameter.grad, there["optimizer"].state[parameter]["momentum_buffer"]):
            assert bool((tensor == step).all())
    assert read_state(folder).step == step
    return step


def one_kill(folder: Path, step: int, delay_s: float) -> tuple[int, int, int]:
    """(last step told, step found, files that the kill left over)."""
    hears, tells = os.pipe()
    process = os.fork()
    if not process:
        os.close(hears)
        child(folder, step, tells)
    os.close(tells)
    time.sleep(delay_s)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    told = b""
    while part := os.read(hears, 1 << 16):
        told += part
    os.close(hears)
    last = int.from_bytes(told[-4:], "little") if told else step
    return last, whole_step(folder), len(list(folder.iterdir())) - 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=100, help="how many kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="on the disk to be tested; default: a temporary one")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a child forked from a process with more threads may hang
    draws = random.Random(options.seed)
    with tempfile.TemporaryDirectory(dir=options.folder) as base:
        folder = Path(base) / "s"
        save(folder, **fields(1), step=1)
        state = fields(1)
        started = time.perf_counter()
        save(folder, **state, step=1)
        save_s = time.perf_counter() - started
        step, saves, after_told, mid_save = 1, 0, 0, 0
        for _ in range(options.random):
            last, found, left_over = one_kill(folder, step, draws.uniform(0, 4 * save_s))
            if found not in (last, last + 1):
                print(f"told {last}, found {found}", file=sys.stderr)
                return 1
            saves += found - step
            after_told += found > last
            mid_save += left_over > 0
            step = found
    print(f"{options.random} kills, {saves} saves of {save_s * 1000:.0f} ms: every state whole")
    print(f"{mid_save} kills left files of a save that had not ended, {after_told} came after a swap not yet told")
    return 0


if __name__ == "__main__":
    sys.exit(main())
