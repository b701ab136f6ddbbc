"""Cases of a dry-run: a checkpoint and the training that shall load it. Each starts a process."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from tests.check_cases.case import Faulty, Legal, Make

FIXTURES = Path(__file__).parents[2] / "fixtures"
TARGET = str(FIXTURES / "loading.py")


def of_training(change: Callable[[dict[str, Any]], object] = lambda state: None, steps: int = 3) -> Make:
    """What the training of `fixtures/loading.py` saves after some real steps, changed."""

    def make(folder: Path) -> Path:
        if str(FIXTURES) not in sys.path:
            sys.path.append(str(FIXTURES))
        import loading

        training = loading.Training(SimpleNamespace(device=torch.device("cpu"), seed=0, workdir=folder))
        for step in range(1, steps + 1):
            training.step(step)
        state = training.checkpoint()
        change(state)
        torch.save(state, folder / "state.pt")
        return folder / "state.pt"

    return make


def target(factory: str = "build") -> dict[str, str]:
    return {"target": f"{TARGET}:{factory}"}


def prefixed(state: dict[str, Any]) -> None:
    state["model"] = {f"model.{name}": one for name, one in state["model"].items()}


def without_schedule(state: dict[str, Any]) -> None:
    del state["scheduler"]


def weights_alone(state: dict[str, Any]) -> None:
    model = state["model"]
    state.clear()
    state["model"] = model


FAULTY: tuple[Faulty, ...] = (
    Faulty("a target has two weights of one shape in each other's group", of_training(), "CK301", "layers.1.weight",
           options=target("build_swapped"), mechanism="group_silent"),
    Faulty("a target binds the state of equal shapes to each other", of_training(), "CK302", "layers.2.weight",
           options=target("build_swapped"), mechanism="order"),
    Faulty("a target's load forgets the optimizer", of_training(), "CK201", "layers.0.weight",
           options=target("build_forgetful")),
    Faulty("a target's load leaves a module as it was built", of_training(), "CK309", "head.weight",
           options=target("build_forgetful")),
    Faulty("a target replaced a layer after its optimizer was built", of_training(), "CK307", "head.weight",
           options=target("build_replaced"), mechanism="stale_ref"),
    Faulty("a target freezes what was trained when the file was saved", of_training(), "CK405", "layers.0.weight",
           options=target("build_replaced"), mechanism="refreeze"),
    Faulty("a target lacks the prefix that the file's names have", of_training(prefixed), "CK310", options=target(),
           mechanism="prefix"),
    Faulty("a target has a schedule and the file has none", of_training(without_schedule), "CK204",
           severity="warning", options=target()),
    Faulty("a target trains on from weights alone", of_training(weights_alone), "CK201", "layers.0.weight",
           severity="warning", options=target()),
    Faulty("a target's load overrules the weight decay", of_training(), "CK306", severity="warning",
           options=target("build_careless")),
    Faulty("a target's load puts moments through bfloat16", of_training(), "CK504",
           "layers.0.weight", severity="warning", options=target("build_careless")),
)  # fmt: skip
LEGAL: tuple[Legal, ...] = (
    Legal("a target loads what it saved itself", of_training(), target(), silent=("CK201", "CK301", "CK306", "CK602")),
    Legal("a target loads what it saved before its first step", of_training(steps=0), target()),
)
