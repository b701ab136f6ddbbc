"""What an experiment says it crossed is what the training did; `auto` goes where something happens."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ckptcheck.errors import UsageError
from ckptcheck.finding import Result, Verdict
from ckptcheck.reports.json import render as as_json
from ckptcheck.reports.page import Page
from ckptcheck.trace.file import open_traces
from ckptcheck.verbs import save, verify
from ckptcheck.verdict.asking import Commands
from ckptcheck.verdict.course import course_of
from ckptcheck.verdict.scripts.asking import settings_of
from ckptcheck.verdict.scripts.parts import crossed_part

ROOT = Path(__file__).resolve().parents[2]
MID_WINDOW, IDLE = "a resume in the middle of an accumulation window", "a step without an update"
BETWEEN = "a resume between updates of an optimizer that rests in some steps"
OVERFLOW, RIGHT_AFTER = "an overflow", "a resume right after an overflow"
WARM_UP, RATE = "the end of the warm-up", "a change of the learning rate"
TRAINED, EPOCH, AVERAGE = "a change of the trainable set", "the end of an epoch", "an update of a moving average"
SAVE, TWICE = "a second save", "a second resume in a row"
EVALUATION = "a resume with modules in evaluation mode"


def row(result: Result, name: str) -> dict[str, Any]:
    """What a result says of a situation."""
    rows: Any = result.parts["crossed"]["situations"]  # type: ignore[index, call-overload]
    return next(one for one in rows if one["name"] == name)


def told(result: Result, name: str) -> tuple[str, list[int], str]:
    one = row(result, name)
    return one["covered"], one["steps"], one["to_cover"]


def points(result: Result) -> dict[int, list[str]]:
    found: Any = result.parts["crossed"]["points"]  # type: ignore[index, call-overload]
    return {one["step"]: one["reasons"] for one in found}


@pytest.fixture(scope="module")
def overflows() -> list[int]:
    """The steps in which the loss scale of fixtures/accumulation.py falls, by training it here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "fixtures"))
        training = runpy.run_path(str(ROOT / "fixtures/accumulation.py"))["Training"]
        run = training(SimpleNamespace(seed=0, device=torch.device("cpu"), workdir=None))
        scales = [run.scaler.get_scale()]
        for step in range(1, 21):
            run.step(step)
            scales.append(run.scaler.get_scale())
    return [step for step in range(1, 21) if scales[step] < scales[step - 1]]


def test_windows_and_overflows_are_those_of_the_training(check: Callable[..., Result], overflows: list[int]) -> None:
    """A step is one micro-batch, every third one updates; the first update overflows."""
    assert overflows[0] == 3
    later = [step for step in overflows if step > 7]
    result = check("fixtures/accumulation.py", resume_at=[7])
    idle = [step for step in range(8, 21) if step % 3 or step in overflows]
    assert told(result, MID_WINDOW) == ("yes", [7], "")
    assert told(result, IDLE) == ("yes", idle, "")
    assert told(result, OVERFLOW) == (("yes", later, "") if later else ("no", [], f"--resume-at {overflows[-1] - 1}"))
    assert told(result, RIGHT_AFTER)[::2] == ("no", f"--resume-at {min(overflows, key=lambda one: abs(one - 10))}")
    assert told(result, WARM_UP) == told(result, RATE) == ("does not apply", [], "")  # AdamW at one rate
    assert told(result, SAVE) == told(result, TWICE) == ("no", [], "--resume-at auto")
    assert told(result, EPOCH) == ("no", [], "")  # an endless stream: no option shows an end
    between = check("fixtures/accumulation.py", resume_at=[9], quick=True)
    assert told(between, MID_WINDOW) == ("no", [], "--resume-at 10")


def test_auto_resumes_around_an_overflow_within_a_window_and_in_the_middle(
    check: Callable[..., Result], overflows: list[int]
) -> None:
    result = check("fixtures/accumulation.py", resume_at=["auto"])
    assert result.verdict is Verdict.PASS
    assert result.parts["resume_at"] == [2, 3, 10]
    within = "in the middle of an accumulation window"
    assert points(result) == {
        2: [within, "right before an overflow"], 3: ["right after an overflow"], 10: [within, "half of the steps"],
    }  # fmt: skip
    assert [told(result, name) for name in (SAVE, TWICE, MID_WINDOW, OVERFLOW, RIGHT_AFTER)] == [
        ("yes", [3, 10], ""), ("yes", [3], ""), ("yes", [2, 10], ""), ("yes", overflows, ""), ("yes", [3], ""),
    ]  # fmt: skip
    assert [one["name"] for one in result.parts["runs"]] == [  # type: ignore[index, call-overload, union-attr]
        "repeat", "reference", "resumed@2", "resumed@3", "resumed@10", "resumed@2@3",
    ]  # fmt: skip


def test_auto_finds_what_half_of_the_steps_hides(check: Callable[..., Result]) -> None:
    lost = "fixtures/accumulation_faults.py:build_gradients_lost"
    assert check(lost, steps=18, quick=True).verdict is Verdict.PASS  # step 9 ends a window: nothing is lost
    result = check(lost, steps=18, resume_at="auto")
    assert result.verdict is Verdict.FAIL
    assert result.cause is not None
    assert result.cause.code == "CK613"


def test_quick_and_repeats_go_with_auto_whose_scout_is_a_repeat(check: Callable[..., Result]) -> None:
    result = check("fixtures/digits_cnn.py", resume_at=["auto", 5], quick=True)
    # 256 digits in batches of 16: step 17 begins the second epoch. 5 is in the middle half of the run, but was asked
    # for, and not picked.
    assert points(result) == {
        5: [], 10: ["half of the steps"], 16: ["right before the end of an epoch"],
        17: ["right after the end of an epoch"],
    }  # fmt: skip
    assert told(result, EPOCH) == ("yes", [17], "")
    assert row(result, EPOCH)["why"] == "step 17: data position goes from 16 to 1"
    assert not {"CK609", "CK611"} & {one.code for one in result.not_judged}
    twice = check("fixtures/store_mlp.py", steps=4, resume_at=["auto"], repeats=2)
    assert points(twice) == {1: ["a quarter of the steps"], 2: ["half of the steps"]}
    assert [one["name"] for one in twice.parts["runs"]][:3] == ["repeat", "reference", "repeat-2"]  # type: ignore[index, call-overload, union-attr]
    assert twice.parts["resume_at"] == [1, 2]


def test_the_end_of_a_warm_up_is_crossed_where_the_resumed_run_still_raises_the_rate(
    check: Callable[..., Result],
) -> None:
    """The rate rises in steps 2 to 16, and step 17 has that of step 16."""
    result = check("fixtures/warmup_linear.py", resume_at=["auto"])
    assert points(result) == {10: ["half of the steps"], 14: ["before the end of the warm-up"]}
    assert told(result, WARM_UP) == ("yes", [17], "")
    # What step 11 uses was set before the save after step 10.
    assert told(result, RATE) == ("yes", [12, 13, 14, 15, 16], "")


UNFREEZING = """
def build(ctx):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    model[1].eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(s):
        optimizer.zero_grad()
        if s == BEGINS:
            model[0].requires_grad_(True)
        batch = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])[[s % 3, (s + 1) % 3]]
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if s == ENDS:
            model[0].requires_grad_(True)
        return loss
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step)
"""


def test_a_change_of_the_trainable_set_is_crossed_where_it_came_after_the_save(
    check: Callable[..., Result], target: Callable[[str], str]
) -> None:
    begins = target(UNFREEZING.replace("BEGINS", "8").replace("ENDS", "0"), "begins")
    result = check(begins, steps=14, resume_at=[7])
    assert told(result, TRAINED) == ("yes", [8], "")
    assert told(result, EVALUATION) == ("yes", [7], "")
    # Three batches in turn: those of steps 1, 2 and 3 come again, the next time in steps 10 and 13.
    assert told(result, EPOCH) == ("yes", [10, 13], "")
    ends = target(UNFREEZING.replace("BEGINS", "0").replace("ENDS", "7"), "ends")
    assert told(check(ends, steps=14, resume_at=[7], quick=True), TRAINED) == ("no", [], "--resume-at 6")
    auto = check(ends, steps=14, resume_at="auto")
    assert told(auto, TRAINED) == ("yes", [8], "")
    assert set(points(auto)) == {3, 4, 6, 8}


def test_what_a_training_has_not_does_not_apply(check: Callable[..., Result]) -> None:
    result = check("fixtures/frozen_backbone.py", quick=True)
    nothing = {MID_WINDOW, BETWEEN, IDLE, OVERFLOW, RIGHT_AFTER, WARM_UP, RATE, TRAINED, AVERAGE, EVALUATION}
    assert set(result.parts["crossed"]["does_not_apply"]) == nothing  # type: ignore[index, call-overload]
    assert result.parts["crossed"]["not_covered"] == [SAVE, TWICE, EPOCH]  # type: ignore[index, call-overload]
    averaged = check("fixtures/ema.py", steps=6, quick=True)
    assert told(averaged, AVERAGE) == ("yes", [4, 5, 6], "")
    by_hand = check("fixtures/hand_written.py", steps=6, quick=True)
    assert told(by_hand, IDLE)[0] == told(by_hand, MID_WINDOW)[0] == "does not apply"
    assert "no optimizer" in row(by_hand, IDLE)["why"]


def test_a_demanded_code_that_was_not_judged_fails(check: Callable[..., Result]) -> None:
    result = check("fixtures/store_mlp.py", steps=4, quick=True, require=["CK609", "CK603"])
    assert (result.verdict, result.exit_code, result.cause) == (Verdict.FAIL, 1, None)
    assert result.parts["required"] == ["CK609"]
    document = json.loads(as_json(result, Page()))
    assert (document["verdict"], document["required"]) == ("fail", ["CK609"])
    assert {"code": "CK609", "reason": "no repeat without saving was made (--quick)"} in document["not_judged"]
    judged = check("fixtures/store_mlp.py", steps=4, require=["CK609", "CK603"])
    assert judged.verdict is Verdict.PASS
    assert "required" not in judged.parts
    scouted = check("fixtures/store_mlp.py", steps=4, quick=True, resume_at="auto", require=["CK609"])
    assert scouted.verdict is Verdict.PASS


SKIPPING = """
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
    def forward(self, x, mask):
        return (self.weight * x * mask).sum()
def build(ctx):
    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    def step(s):
        optimizer.zero_grad(set_to_none=s != 4)
        loss = model(torch.tensor([1e38 if s == 1 else 1.0, 2.0 + s]), torch.tensor([s % 3 != 0, s % 3 != 1]))
        if s == 4:
            return None
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()
    return ckptcheck.Run(model=model, optimizer=optimizer, scaler=scaler, step=step)
"""


def test_what_is_left_of_a_skipped_update_is_no_window(
    forked: None, tmp_path: Path, target: Callable[[str], str]
) -> None:
    """Step 1 overflows, its gradients stay until step 2 clears them; step 4 zeroes them, and makes no update."""
    save(target(SKIPPING), steps=8, output=tmp_path / "saved", trace=tmp_path / "trace")
    (trace,) = open_traces(tmp_path / "trace")
    course = course_of(trace)
    trace.close()
    assert (course.overflows, course.idle, course.windows) == ({1}, {1, 4}, frozenset())
    assert course.epochs == {}  # the masks come again, the batches do not
    assert {"scaler", "updates", "inputs"} <= course.keeps


def test_a_script_is_resumed_where_most_lies_ahead(forked: None, tmp_path: Path) -> None:
    save("fixtures/warmup_linear.py", steps=20, output=tmp_path / "saved", trace=tmp_path / "trace")
    (trace,) = open_traces(tmp_path / "trace")
    asked = settings_of(Commands(run="a {dir}", resume="b {ckpt}", resume_at=("auto",)))
    assert (asked.resume_at, [*asked.preferred([trace])]) == (None, [14])
    part: Any = crossed_part(trace, 14)
    assert part["points"] == [{"step": 14, "reasons": ["before the end of the warm-up"]}]
    assert part["covered"] == ["a resume in a fresh process", WARM_UP, RATE]
    # What a recorded script does not show is not claimed, one way or the other.
    assert not {SAVE, TWICE, IDLE, MID_WINDOW, EPOCH, EVALUATION} & {*part["not_covered"], *part["does_not_apply"]}
    plain = settings_of(Commands(run="a {dir}", resume="b {ckpt}", resume_at=(7,)))
    assert (plain.resume_at, [*plain.preferred([trace])]) == (7, [])
    trace.close()


REFUSED = [
    ({"require": ["CK603"], "ignore": ["CK6"]}, "--require CK603: --ignore CK6 leaves it out"),
    ({"require": ["CK603"], "select": ["CK2"]}, "--require CK603: --select CK2 leaves it out"),
    ({"require": ["CK6"], "select": ["CK2", "CK614"], "ignore": ["CK614"]}, "--require CK6: --ignore CK614"),
    ({"require": ["CK102"]}, "--require CK102: verify judges no such rule here"),
    ({"require": ["CK615"]}, "it is judged of --run and --resume"),
    ({"resume_at": ["half"]}, "--resume-at 'half' is no step: give a number, or auto"),
    ({"resume_at": ["auto", 20]}, "--resume-at 20 is outside 1..19"),
    ({"resume_at": ["auto"], "steps": 1}, "--steps 1 leaves no step to resume into"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_cannot_be_asked_for_is_refused_before_a_run_is_made(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        verify("absent.py", **options)
