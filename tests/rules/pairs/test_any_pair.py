"""Two checkpoints of one training with several things done to them: judged over both and over the later."""

import copy
import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ckptcheck import verbs
from tests.check_cases import following, pairs
from tests.check_cases.training import Mlp, Tied
from tests.check_cases.two import Backbone, Saved, frozen, half_and_half, more_steps, parameters, two
from tests.rules.faults import is_legible

PAIRS = range(160)
TOGETHER = 20
CHANGES: dict[str, Callable[[Saved, Saved], None]] = {
    name: one for module in (pairs, following) for name, one in vars(module).items()
    if inspect.isfunction(one) and [*inspect.signature(one).parameters] == ["left", "right"]
}  # fmt: skip
"""What the cases do to two checkpoints, one at a time."""
SCHEDULES: tuple[Any, ...] = (
    None, lambda one: torch.optim.lr_scheduler.CosineAnnealingLR(one, 20),
    lambda one: torch.optim.lr_scheduler.StepLR(one, 2, 0.5),
)  # fmt: skip
CONTRACTS = ("hold", "no-update", "no-grad", "removed", "reset")


def _several(draw: random.Random) -> Callable[[Saved, Saved], None]:
    chosen = draw.sample(sorted(CHANGES), draw.choice((1, 2, 2, 3)))

    def change(left: Saved, right: Saved) -> None:
        torch.manual_seed(7)  # whatever the training before it has drawn
        for name in chosen:
            tried = copy.deepcopy((left, right))
            try:
                CHANGES[name](*tried)
            except (KeyError, IndexError, ValueError, AttributeError, StopIteration, TypeError):
                continue  # what it would change is gone already, or is not in this training
            for side, one in zip((left, right), tried, strict=True):
                side.clear()
                side.update(one)

    return change


@pytest.mark.parametrize("first", range(PAIRS.start, PAIRS.stop, TOGETHER))
def test_any_two_checkpoints_are_judged_legibly(first, tmp_path):
    for seed in range(first, first + TOGETHER):
        draw = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        sides = two(
            _several(draw), model=draw.choice((Mlp, Mlp, Backbone, Tied)),
            groups=draw.choice((half_and_half, parameters)),
            optimizer=draw.choice((torch.optim.AdamW, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop)),
            between=more_steps, schedule=draw.choice(SCHEDULES),
        ) if draw.random() < 0.8 else two(
            _several(draw), model=Backbone, between=frozen(draw.choice(("none", "zero")), evaluated=draw.random() < 0.5)
        )  # fmt: skip
        try:
            made = sides(folder)
        except KeyError:
            continue  # a model without such groups
        freeze = {draw.choice(("*", "*.weight", "*.bias")): draw.choice(CONTRACTS)} if draw.random() < 0.4 else {}
        told = verbs.diff(*made, gate="findings", freeze=freeze)
        assert is_legible(told.findings), seed
        assert is_legible(verbs.check(made[1], purpose=draw.choice(("auto", "resume", "release"))).findings), seed
