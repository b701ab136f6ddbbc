"""Optimizers that take turns by a counter: what is told where a load loses it, and of a second resume in a row."""

from collections.abc import Callable
from typing import Any

import pytest

from ckptcheck.finding import Result, Verdict
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render

TURNS = """
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Linear(3, 3), nn.Linear(3, 1)

def build(ctx):
    torch.manual_seed(ctx.seed)
    model = Pair()
    often = torch.optim.SGD(model.high.parameters(), lr=0.1, momentum=0.9)
    seldom = torch.optim.SGD(model.low.parameters(), lr=0.1, momentum=0.9)
    done = {"n": 0, "loads": 0, "resumed": False}
    def batch(s, place=0):
        return torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * s + place))
    def turn(s):
        if done["n"] % 3 == 0:
            seldom.zero_grad()
            model.low(batch(s, 1)).square().mean().backward()
            seldom.step()
    def step(s):
        done["n"] += 1
        FIRST
        often.zero_grad()
        loss = model.high(batch(s)).square().mean()
        loss.backward()
        often.step()
        LAST
        return loss.detach()
    def save(path):
        torch.save([model.state_dict(), often.state_dict(), seldom.state_dict(), dict(done)], path)
    def load(path):
        saved = torch.load(path, weights_only=False)
        for one, state in zip((model, often, seldom), saved):
            one.load_state_dict(state)
        done.update(saved[3])
        done["loads"] += 1
        done["resumed"] = True
        FAULT
    return ckptcheck.Run(model=model, optimizer=[often, seldom], step=step, save=save, load=load)
"""
LOST = 'done["n"] = 0'
TURN = "turn(s)"


def body(fault: str = "pass", first: str = "pass", last: str = TURN) -> str:
    return TURNS.replace("FAULT", fault).replace("FIRST", first).replace("LAST", last)


def codes(result: Result) -> set[str]:
    return {one.code for one in result.findings if not one.evidence.get("without_effect")}


def test_auto_finds_the_lost_turn_that_a_multiple_of_the_period_hides(
    target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    lost = target(body(LOST), "lost")
    assert check(lost, steps=12, resume_at=[6], quick=True).verdict is Verdict.PASS
    result = check(lost, steps=12, resume_at="auto")
    assert result.parts["resume_at"] == [5, 6]
    assert result.cause is not None
    assert (result.cause.code, result.first_divergence.step, result.first_divergence.stage) == ("CK612", 6, "inputs")  # type: ignore[union-attr]
    # After step 5 the count begins anew: updates come after steps 3, 6, ... of that. The next load is after step 6.
    first, second = (one for one in result.findings if one.code == "CK612")
    assert first.message == (
        "optimizer 1 makes 1 update in step 6 of the uninterrupted run and 0 updates in the resumed one"
    )
    assert (second.where.step, second.evidence["run"], second.evidence["against"]) == (8, "resumed@5@6", "resumed@5")
    assert "in step 8 of resumed@5 and" in second.message
    assert codes(result) == {"CK612"}
    part: Any = result.parts["crossed"]
    why = "the run it was resumed from had already diverged"
    assert part["in_a_row"] == [{"run": "resumed@5@6", "source": "resumed@5", "against": "resumed@5", "why": why}]
    lines = render(result, Page(width=110)).splitlines()
    assert lines[0] == "FAIL  steps missing or repeated (CK612), first at step 6, number of updates"
    at = lines.index("First at     step 6, number of updates: optimizer 1")
    assert lines[at + 1].strip() == "1 on the left, 0 on the right"
    assert f"             resumed@5@6: held against resumed@5: {why}" in lines
    full = render(result, Page(width=110, detail=Detail.ALL))
    assert "where: step 8, number of updates, optimizer 1" in full
    clean = check(target(body(), "clean"), steps=12, resume_at="auto")
    assert clean.verdict is Verdict.PASS
    row: Any = clean.parts["crossed"]
    assert row["in_a_row"] == [{"run": "resumed@5@6", "source": "resumed@5", "against": "reference", "why": ""}]


ONCE = f'if done["loads"] == 1: {LOST}'
LATE = 'if done["loads"] == 2: model.low.weight.data.add_(1.0)'


def test_a_second_resume_is_held_against_what_the_first_one_went_on_to_do(
    target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    """The second load restores all that the first resumed run had: nothing more is to be found."""
    result = check(target(body(ONCE), "once"), steps=12, resume_at=[4, 7])
    assert {one.evidence.get("run") for one in result.findings if one.code == "CK612"} == {None}
    trajectory: Any = result.parts["trajectory"]
    assert {row["run"] for row in trajectory} == {"resumed@4", "resumed@7"}
    # A fault of the second load alone is found, whether the first run had diverged or not.
    both = check(target(body(f"{ONCE}\n        {LATE}"), "both"), steps=12, resume_at=[4, 7], quick=True)
    (found,) = (one for one in both.findings if one.code == "CK601")
    assert (found.where.step, found.where.stage, found.evidence["run"]) == (7, "load", "resumed@4@7")
    assert found.message.endswith("(resumed@4@7, held against resumed@4: the run it was resumed from had already "
                                  "diverged)")  # fmt: skip
    late = check(target(body(LATE), "late"), steps=12, resume_at=[4, 7], quick=True)
    (found,) = (one for one in late.findings if one.code == "CK601")
    assert "held against" not in found.message
    assert late.parts["crossed"]["in_a_row"][0]["against"] == "reference"  # type: ignore[index, call-overload]


def test_a_run_that_leaves_its_course_after_its_save_only_is_no_other_measure(
    target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    """Resumed after step 4 the turn of step 6 comes in step 7: one step behind the save after step 5."""
    result = check(target(body(LOST), "after"), steps=8, resume_at=[4, 5], quick=True)
    row: Any = result.parts["crossed"]
    assert row["in_a_row"] == [{"run": "resumed@4@5", "source": "resumed@4", "against": "reference", "why": ""}]


EXTRA = "model.high(batch(s, 2)) if done['resumed'] else None"
"""Another forward pass without an update."""
MASK = "model.high(batch(s, 2)) if done['resumed'] else model.high(batch(s, 3))"
TWO_AND_OTHER = "model.high(batch(s, 2)); model.high(batch(s, 3)) if done['resumed'] else None"
OTHER_AND_MORE = (
    "model.high(batch(s + (s > 8 and done['resumed']), 2)); model.low(batch(s)) if done['resumed'] else None"
)
CALLS = [
    # the turn comes first in the step: what the other optimizer's pass sees comes after it
    (body(LOST, first=TURN, last="pass"), 9, "CK612"),
    # both call the same module, so that what comes later is numbered otherwise
    (body(LOST, first=TURN, last="pass").replace("model.low(batch(s, 1))", "model.high(model.low(batch(s, 1)))"),
     9, "CK612"),
    (body(first=EXTRA), 8, "CK610"),
    (body(last=EXTRA), 8, "CK610"),
    (body(first=TWO_AND_OTHER), 8, "CK610"),
    (body(first=MASK), 8, "CK604"),
    (body(first=TWO_AND_OTHER.replace("batch(s, 2)", "batch(s + done['resumed'], 2)")), 8, "CK604"),
    (body(first=OTHER_AND_MORE), 8, "CK610"),
    (body(first=OTHER_AND_MORE.replace("s > 8", "s > 7")), 8, "CK604"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "step", "code"), CALLS)
def test_a_pass_that_one_run_leaves_out_is_no_other_data(
    source: str, step: int, code: str, target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    result = check(target(source), steps=10, resume_at=[7], quick=True)
    assert result.cause is not None
    assert (result.cause.code, result.first_divergence.step) == (code, step)  # type: ignore[union-attr]
    assert codes(result) == {code}


def test_a_pass_without_an_update_is_told_by_how_often_the_model_is_called(
    target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    result = check(target(body(last=EXTRA)), steps=10, resume_at=[7], quick=True)
    (found,) = (one for one in result.findings if one.code == "CK610")
    assert found.message == "in step 8 the resumed run calls high more often than the uninterrupted one"
    assert (found.evidence["calls_apart"], found.evidence["modules"]) == (1, ["high"])


LEAF = """
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
    def forward(self, x, mask=None):
        return (self.weight * x * (1.0 if mask is None else mask)).sum()
def build(ctx):
    model, resumed = Masked(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(s):
        optimizer.zero_grad()
        more = {"mask": torch.tensor([1.0, 0.0, 1.0])} if SIDE and s == 5 else {}
        loss = model(torch.full((3,), 1.0 + s), **more)
        loss.backward()
        optimizer.step()
        return loss.detach()
    def load(path):
        saved = torch.load(path)
        model.load_state_dict(saved[0]), optimizer.load_state_dict(saved[1]), resumed.append(1)
    save = lambda path: torch.save([model.state_dict(), optimizer.state_dict()], path)
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=save, load=load)
"""


@pytest.mark.parametrize("side", ["resumed", "not resumed"])
def test_an_input_that_one_run_lacks_in_a_call_that_both_make_is_other_data(
    side: str, target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    result = check(target(LEAF.replace("SIDE", side)), steps=6, resume_at=[3], quick=True)
    assert result.cause is not None
    assert (result.cause.code, result.first_divergence.step) == ("CK604", 5)  # type: ignore[union-attr]
