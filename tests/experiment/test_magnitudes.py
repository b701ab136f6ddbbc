"""The second pass measures exactly: against values that torch itself computes on the same training."""

from collections.abc import Callable

import torch
from torch import nn

from ckptcheck.finding import Verdict

BODY = """
def build(ctx):
    torch.manual_seed(3)
    model = nn.Linear(5, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    def step(s):
        optimizer.zero_grad()
        loss = model(torch.full((2, 5), 1.0 / s)).square().sum()
        loss.backward()
        optimizer.step()
        return loss
    def save(path):
        torch.save([model.state_dict(), optimizer.state_dict()], path)
    def load(path):
        saved = torch.load(path)
        model.load_state_dict(saved[0])
        {after}
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=save, load=load)
"""
FORGETS_MOMENTS = "pass"
HALVES_A_MOMENT = """optimizer.load_state_dict(saved[1])
        optimizer.state[model.bias]["exp_avg"].mul_(0.5)"""


def trained(steps: int, forget_after: int | None = None) -> tuple[nn.Linear, torch.optim.Adam]:
    """The same training by hand, without the tool; the moments are forgotten after a step."""
    torch.manual_seed(3)
    model = nn.Linear(5, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        model(torch.full((2, 5), 1.0 / step)).square().sum().backward()
        optimizer.step()
        if step == forget_after:
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, optimizer


def rows(result, **wanted) -> list[dict]:
    return [row for row in result.parts["trajectory"] if all(row[key] == value for key, value in wanted.items())]


def test_every_step_of_the_curve_is_exact(target: Callable[[str], str], check: Callable) -> None:
    torch.set_num_threads(1)
    result = check(target(BODY.format(after=FORGETS_MOMENTS)), steps=6, resume_at=[3])
    assert result.verdict is Verdict.FAIL
    for step in (4, 5, 6):
        left, right = trained(step)[0].weight.detach(), trained(step, forget_after=3)[0].weight.detach()
        gap = (right.double() - left.double()).abs()
        (row,) = rows(result, step=step, stage="param", parameter="weight")
        assert row["differing"] == int((left != right).sum())
        assert row["numel"] == 15
        assert row["max_abs"] == gap.max().item()
        assert gap[tuple(row["max_abs_at"])] == gap.max()
        assert abs(row["rel_l2"] - (gap.norm() / left.double().norm()).item()) < 1e-12


def test_the_load_is_measured_too(target: Callable[[str], str], check: Callable) -> None:
    torch.set_num_threads(1)
    result = check(target(BODY.format(after=HALVES_A_MOMENT)), steps=6, resume_at=[3])
    model, optimizer = trained(3)
    moment = optimizer.state[model.bias]["exp_avg"].double()
    (row,) = rows(result, step=3, stage="load", section="state")
    assert (row["parameter"], row["key"], row["optimizer"]) == ("bias", "exp_avg", 0)
    assert row["max_abs"] == (moment / 2).abs().max().item()
    assert abs(row["rel_l2"] - 0.5) < 1e-12
    assert row in result.parts["magnitudes"]


def test_two_failing_resume_points_are_both_measured(target: Callable[[str], str], check: Callable) -> None:
    result = check(target(BODY.format(after=FORGETS_MOMENTS)), steps=6, resume_at=[2, 4])
    assert result.verdict is Verdict.FAIL
    assert result.first_divergence.step == 2
    for run in ("resumed@2", "resumed@4"):
        assert any(row["max_abs"] for row in rows(result, run=run, stage="param"))
