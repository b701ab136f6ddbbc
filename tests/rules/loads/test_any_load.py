"""Files with several things wrong, and targets that are built otherwise: each load is tried and judged."""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.check_cases.training import Mlp, Tied, decay_groups
from tests.rules.faults import is_legible
from tests.rules.loads.dry import dry_run, judge
from tests.rules.loads.live import adamw, cosine, file_of, named, own_load, run_of
from tests.rules.pairs.test_any_pair import CHANGES

LOADS = range(160)
TOGETHER = 20


def _in_groups(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(decay_groups(model), lr=1e-3)


def _in_other_groups(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([*reversed(decay_groups(model))], lr=2e-3)


def _reversed(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([*reversed([*model.named_parameters()])], lr=1e-3)


def _momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _head_alone(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.head.parameters(), lr=1e-3)


def _wider() -> nn.Module:
    model = Mlp()
    model.spare = nn.Linear(6, 6)
    return model


def _without_norm() -> nn.Module:
    model = Mlp()
    model.norm.requires_grad_(False)
    return model


def _half() -> nn.Module:
    return Mlp().bfloat16()


OPTIMIZERS: tuple[Callable[[Any], Any], ...] = (
    adamw, adamw, named, named, _in_groups, _in_other_groups, _reversed, _momentum, _head_alone,
)  # fmt: skip
MODELS: tuple[Callable[[], nn.Module], ...] = (Mlp, Mlp, Mlp, _wider, _without_norm, _half, Tied)


def _step(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def _longer(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)


SCHEDULES: tuple[Any, ...] = (None, cosine, cosine, _step, _longer)


def _changed(draw: random.Random) -> Callable[[dict[str, Any]], None]:
    chosen = draw.sample(sorted(CHANGES), draw.choice((0, 1, 1, 2)))

    def change(state: dict[str, Any]) -> None:
        torch.manual_seed(7)  # whatever was drawn before
        for name in chosen:
            left, right = copy.deepcopy((state, state))
            try:
                CHANGES[name](left, right)
            except (KeyError, IndexError, ValueError, AttributeError, StopIteration, TypeError):
                continue  # it is about something that this file does not have
            state.clear()
            state.update(right)

    return change


def _tried(folder: Path, draw: random.Random) -> None:
    saved, optimizer, schedule = draw.choice((Mlp, Mlp, Mlp, Tied)), draw.choice(OPTIMIZERS[:6]), draw.choice(SCHEDULES)
    path = file_of(folder, saved(), optimizer, schedule=schedule, change=_changed(draw))
    alike = draw.random() < 0.5
    model = saved() if alike else draw.choice(MODELS)()
    ours = (optimizer if alike and draw.random() < 0.6 else draw.choice(OPTIMIZERS))(model)
    more = {"scheduler": made(ours)} if (made := draw.choice((schedule, *SCHEDULES))) is not None else {}
    run = run_of(model, ours, **more)
    if draw.random() < 0.4:
        parts = draw.choice((("model", "optimizer"), ("model",), ("optimizer",), ("model", "optimizer", *more)))

        def after() -> None:
            for group in ours.param_groups if draw.random() < 0.3 else ():
                group["lr"] = 0.5

        run = own_load(run, parts=parts, after=after)
    dry = dry_run(path, run)
    findings, not_judged = judge(dry)
    assert is_legible(tuple(findings))
    assert all(one.reason for one in not_judged)


@pytest.mark.parametrize("first", range(LOADS.start, LOADS.stop, TOGETHER))
def test_any_load_is_tried_and_judged_legibly(first, tmp_path):
    for seed in range(first, first + TOGETHER):
        folder = tmp_path / str(seed)
        folder.mkdir()
        torch.manual_seed(seed)
        _tried(folder, random.Random(seed))
