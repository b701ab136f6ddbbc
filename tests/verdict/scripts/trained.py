"""Many small trainings in one process: each is a fork of its own, records itself, and is told by its arguments.

    python trained.py FOLDER

The reference makes steps 1 to 12 and saves after every third; the others resume from what it saved.
"""

import gc
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
import torch._dynamo  # each child would import it with its first optimizer

STEPS, SAVED_EVERY = 12, 3
PARTS = ("model", "optimizer", "schedule", "rng")


def train(
    folder: Path, *, load: int = 0, parts: tuple[str, ...] = PARTS, first: int | None = None, last: int = STEPS,
    saves: bool = False, shift: int = 0, noise: float = 0.0, started: Callable[[Any], None] = lambda live: None,
    rate: float | None = None,
) -> None:  # fmt: skip
    """Train; `load` is the step whose checkpoint is loaded, `parts` what of it, `first` the first step then made.

    `shift` moves the data by so many steps, `noise` is added to every input, `started` gets the live objects after
    the load, `rate` is put into the groups then.
    """
    torch.manual_seed(0)
    random.seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4), torch.nn.Linear(4, 4)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    live = {"model": model, "optimizer": optimizer, "schedule": schedule}
    if load:
        saved = torch.load(folder / f"{load}.pt", weights_only=True)
        for part in parts:
            if part == "rng":
                torch.set_rng_state(saved["rng"])
            elif part == "head":  # all but the first layer
                model.load_state_dict({k: v for k, v in saved["model"].items() if k[0] != "0"}, strict=False)
            else:
                live[part].load_state_dict(saved[part])
        if rate is not None:
            optimizer.param_groups[0]["lr"] = rate
        started(live)
    for step in range(first if first is not None else load + 1, last + 1):
        drawn = torch.Generator().manual_seed(step + shift)
        inputs = torch.randn(4, 8, generator=drawn) + noise
        labels = torch.randint(0, 4, (4,), generator=drawn)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        schedule.step()
        if saves and step % SAVED_EVERY == 0:
            state = {name: one.state_dict() for name, one in live.items()}
            torch.save({**state, "rng": torch.get_rng_state()}, folder / f"{step}.pt")


def in_eval(live: Any) -> None:
    live["model"].eval()


def other_decay(live: Any) -> None:
    for group in live["optimizer"].param_groups:
        group["weight_decay"] = 0.25


TRAININGS: dict[str, Callable[[Path], None]] = {
    "reference": partial(train, saves=True),
    "repeat": partial(train),
    "noisy": partial(train, noise=0.5),
    "interrupted": partial(train, last=6),
    "killed": partial(train, last=5),
    "clean": partial(train, load=6),
    "optimizer": partial(train, load=6, parts=("model", "schedule", "rng")),
    "schedule": partial(train, load=6, parts=("model", "optimizer", "rng")),
    "rng": partial(train, load=6, parts=("model", "optimizer", "schedule")),
    "weights": partial(train, load=6, parts=("optimizer", "schedule", "rng")),
    "layer": partial(train, load=6, parts=("head", "optimizer", "schedule", "rng")),
    "data": partial(train, load=6, shift=-6),
    "repeated": partial(train, load=6, shift=-1),
    "decay": partial(train, load=6, started=other_decay),
    "rate": partial(train, load=6, rate=0.5),
    "mode": partial(train, load=6, started=in_eval),
    "older": partial(train, load=3),
    "older-data": partial(train, load=3, first=7),
    "early": partial(train, load=6, last=10),
    "longer": partial(train, load=6, last=14),
    "nothing": partial(train, first=1),
    "end": partial(train, load=12, first=13),
    "newest": partial(train, load=9),
}


def main(folder: Path) -> None:
    gc.freeze()  # who looks through all objects in a child finds few
    for place, (name, training) in enumerate(TRAININGS.items()):
        child = os.fork()
        if not child:
            numpy.random.seed(place)  # as in processes of their own: nothing seeds it, nothing draws from it
            sys.argv = [name]
            training(folder)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
