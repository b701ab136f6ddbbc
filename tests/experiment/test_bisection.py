"""`verify --bisect` proves causes: what heals a run when it is put back, what does not, from where on it breaks."""

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from ckptcheck.errors import UsageError
from ckptcheck.experiment.bisection import smallest_failing, smallest_healing
from ckptcheck.experiment.overlay import keep, put_back
from ckptcheck.experiment.run import Run
from ckptcheck.experiment.sections import Overlay, Section
from ckptcheck.finding import Finding, Result, Verdict
from ckptcheck.reports.page import Page
from ckptcheck.reports.text import render
from tests.experiment.bisected_target import BODY, LOAD

FAULTS = (
    ("torch's generator", "training.load(path, ['torch'])", ("generator[torch]",), "CK603"),
    ("the schedule", "training.load(path, ['scheduler'])", ("schedule[0]",), "CK602"),
    ("the data's position", "training.load(path, ['data'])", ("data[0]",), "CK604"),
    ("the scaler", "training.load(path, ['scaler'])", ("scaler[0]",), "CK608"),
    ("the average", "training.load(path, ['ema'])", ("ema[0]",), "CK208"),
    ("a buffer", f"{LOAD}; model[1].running_mean.zero_()", ("buffers of 1.running_mean",), "CK605"),
    (
        "both moments",
        f"{LOAD}; [state[key].mul_(2) for state in optimizer.state.values() for key in ('exp_avg', 'exp_avg_sq')]",
        ("state[0].exp_avg", "state[0].exp_avg_sq"),
        "CK601",
    ),
    ("the counters", f"{LOAD}; [one['step'].zero_() for one in optimizer.state.values()]", ("state[0].step",), "CK505"),
    ("one state", f"{LOAD}; del optimizer.state[model[0].weight]", ("state[0] of 0.weight",), "CK202"),
    (
        "one moment of one parameter",
        f"{LOAD}; optimizer.state[model[3].bias]['exp_avg'].zero_()",
        ("state[0].exp_avg of 3.bias",),
        "CK601",
    ),
    ("a rate", f"{LOAD}; optimizer.param_groups[1]['lr'] = 1.0", ("hyperparameters[0].lr",), "CK306"),
    ("gradients", f"{LOAD}; optimizer.zero_grad()", ("gradients",), "CK613"),
    ("a mode", f"{LOAD}; model[2].eval()", ("modes",), None),
    (
        "who is in which group",
        f"{LOAD}; a, b = optimizer.param_groups; a['params'].append(b['params'].pop())",
        ("groups[0]",),
        "CK301",
    ),
    (
        "a stale reference",
        "training.model[3] = nn.Linear(5, 1); training.load(path)",
        ("groups[0]",),
        "CK307",
    ),
    (
        "two faults at once",
        "training.load(path, ['torch', 'ema'])",
        ("ema[0]", "generator[torch]"),
        None,
    ),
)  # fmt: skip
"""A mistake, the load that makes it, the sections that alone heal it, and the cause where it is that of one rule."""

Written = Callable[[str], str]
Check = Callable[..., Result]


def bisect(check: Check, target: Written, load: str, step: int = 3, steps: int = 6) -> Result:
    return check(target(BODY.replace("{fault}", load)), steps=steps, resume_at=[step], quick=True, bisect=True)


def cause_of(result: Result) -> Finding:
    assert result.cause is not None
    return next(one for one in result.findings if one.code == result.cause.code)


@pytest.mark.parametrize(("load", "sections", "cause"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_what_heals_is_found_and_everything_else_does_not_heal(
    load: str, sections: tuple[str, ...], cause: str | None, check: Check, target: Written
) -> None:
    result = bisect(check, target, load)
    part = result.parts["bisection"]
    assert tuple(sorted(part["sections"])) == sections
    assert (part["proved"], part["sufficient"], part["necessary"]) == (True, True, True)
    if cause is not None:
        assert result.cause is not None
        assert (result.cause.code, result.cause.confidence) == (cause, "certain")
        assert cause_of(result).evidence["proved_by"] == part["reason"]


def test_what_nobody_declared_is_not_proved_but_confirmed(check: Check, target: Written) -> None:
    result = bisect(check, target, f"{LOAD}; training.temperature = 1.0")
    part = result.parts["bisection"]
    assert (part["proved"], part["sections"], part["sufficient"]) == (False, [], False)
    assert part["reason"].startswith("no recorded state heals the run")
    assert part["trials"][0]["overlaid"] == ["everything"]
    assert part["trials"][0]["first_divergence"]["step"] == 4
    assert result.cause is not None and result.cause.code in ("CK606", "CK607")
    assert cause_of(result).evidence["confirmed_by"] == part["reason"]
    assert (part["smallest_resume_at"], part["passes_at"]) == (1, None)
    assert "breaks from resume point 1 on, the first there is" in render(result, Page(width=200))


def test_what_heals_in_part_bears_the_cause_out_and_the_rest_is_told(check: Check, target: Written) -> None:
    load = f"{LOAD}; model[1].running_mean.zero_(); training.temperature = 1.0"
    result = bisect(check, target, load, step=1, steps=3)
    part = result.parts["bisection"]
    assert (part["proved"], part["sections"]) == (False, ["buffers of 1.running_mean"])
    assert part["remains"]["step"] == 2
    assert "(CK605 is borne out); something else remains: from step 2 on" in part["reason"]
    assert cause_of(result).evidence["borne_out_by"] in part["reason"]
    assert "In part" in render(result, Page(width=100))


def test_the_smallest_resume_point_is_where_the_mistake_begins_to_matter(check: Check, target: Written) -> None:
    load = f"{LOAD}; training.batches.position = min(training.batches.position, 3)"
    result = bisect(check, target, load, step=7, steps=9)
    part = result.parts["bisection"]
    assert (part["smallest_resume_at"], part["passes_at"], part["resume_at"]) == (4, 3, 7)
    assert part["runs"] == sum(row["name"].startswith("bisect-") for row in result.parts["runs"])
    said = " ".join(render(result, Page(width=100)).split())
    assert "Proved putting back the data's position alone heals the run; everything else put back without it " in said
    assert f"breaks from resume point 4 on, not at 3 ({part['runs']} runs made to find this out)" in said
    assert f"{part['runs']} more to bisect" in said


@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        (("{fault}", LOAD), Verdict.PASS, "nothing to bisect"),
        (("torch.manual_seed(1)", "torch.seed()"), Verdict.INCONCLUSIVE, "training that repeats itself"),
        (("torch.save(kept", "torch.rand(1); torch.save(kept"), Verdict.FAIL, "CK609"),
        (("{fault}", "raise ValueError('no load')"), Verdict.FAIL, "ValueError: no load"),
    ],
)  # fmt: skip
def test_what_cannot_be_bisected_is_said_and_no_run_is_made(
    change: tuple[str, str], verdict: Verdict, reason: str, check: Check, target: Written
) -> None:
    body = BODY.replace(*change).replace("{fault}", LOAD)
    result = check(target(body), steps=4, resume_at=[2], bisect=True)
    part = result.parts["bisection"]
    assert (result.verdict, part["proved"], part["runs"]) == (verdict, False, 0)
    assert reason in part["reason"]


def test_a_save_that_perturbs_elsewhere_takes_nothing_from_the_proof(check: Check, target: Written) -> None:
    body = BODY.replace("torch.save(kept", "self.batches.position == 3 or torch.rand(1); torch.save(kept")
    path = target(body.replace("{fault}", "training.load(path, ['data'])"))
    part = check(path, steps=5, resume_at=[3], quick=True, bisect=True).parts["bisection"]
    assert (part["proved"], part["sections"], part["smallest_resume_at"]) == (True, ["data[0]"], None)
    assert "CK609" in part["points_reason"]


def test_the_limit_on_runs_is_told(check: Check, target: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckptcheck.verdict.bisection.MAX_RUNS", 3)
    part = bisect(check, target, "training.load(path, ['ema'])").parts["bisection"]
    assert (part["proved"], part["runs"]) == (False, 3)
    assert part["reason"] == "stopped after 3 runs: a bisection makes at most 3"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"run": "a", "resume": "b"}, "--bisect is for a target"),
        ({"target": "x.py", "rtol": 0.1}, "--bisect and tolerances exclude each other"),
        ({"target": "x.py", "resume_device": "cuda"}, "--bisect and --resume-device"),
    ],
)
def test_what_no_bisection_can_be_made_of_is_refused(asked: dict[str, Any], said: str, check: Check) -> None:
    with pytest.raises(UsageError, match=said):
        check(bisect=True, **asked)


def test_keeping_a_state_changes_nothing_and_putting_back_only_what_is_chosen(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec("import torch\nfrom torch import nn\nimport ckptcheck\n" + BODY.replace("{fault}", LOAD), names)
    run: Run = names["build"](None)
    for step in (1, 2, 3):
        run.step(step)
    run.model[2].eval()
    before = seen(run)
    kept = keep(tmp_path / "kept", run, 3)
    assert seen(run) == before
    for step in (4, 5, 6):
        run.step(step)
    run.model[2].train()
    run.optimizer.zero_grad()
    moved = seen(run)
    changed = {name for name in before if before[name] != moved[name]}
    assert changed == before.keys() - {"groups", "requires_grad", "flags"}
    for section in sorted(kept, reverse=True):
        now = seen(run)
        put_back(tmp_path / "kept", Overlay((section,)), run)
        after = seen(run)
        assert {name for name in now if now[name] != after[name]} <= {section.kind}, section
    assert seen(run) == before
    bias, weight = (run.optimizer.state[one] for one in (run.model[0].bias, run.model[0].weight))
    moment = bias["exp_avg"].clone()
    for one in (bias, weight):
        one["exp_avg"].fill_(7.0)
        one["step"].fill_(7.0)
    part = Section("state", "0", "exp_avg")
    put_back(tmp_path / "kept", Overlay((part,), (part._replace(name="0.weight"),)), run)
    assert torch.equal(bias["exp_avg"], moment)
    assert bias["step"] == 7 and (weight["exp_avg"] == 7).all()
    run.optimizer.zero_grad()
    keep(tmp_path / "none", run, 6)
    run.step(7)
    put_back(tmp_path / "none", Overlay((Section("gradients"),)), run)
    assert all(one.grad is None for one in run.model.parameters())


def seen(run: Run) -> dict[str, str]:
    """Everything live by kind of section, as exact text."""
    model, optimizer = run.model, run.optimizer
    state = {name: optimizer.state[one] for name, one in model.named_parameters()}
    found: dict[str, Any] = {
        "parameters": dict(model.named_parameters()), "buffers": dict(model.named_buffers()),
        "gradients": [one.grad for one in model.parameters()],
        "requires_grad": [one.requires_grad for one in model.parameters()],
        "modes": [one.training for one in model.modules()],
        "groups": [[id(one) for one in group["params"]] for group in optimizer.param_groups],
        "hyperparameters": [group["lr"] for group in optimizer.param_groups], "state": state,
        "schedule": run.scheduler.state_dict(), "scaler": run.scaler.state_dict(), "ema": run.ema.state_dict(),
        "data": run.data.state_dict(), "extra": run.extra["counted"].state_dict(),
        "generator": (torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()),
        "flags": torch.get_num_threads(),
    }  # fmt: skip
    return {kind: repr(exact(value)) for kind, value in found.items()}


def exact(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, dict):
        return {key: exact(one) for key, one in value.items()}
    return [exact(one) for one in value] if isinstance(value, list | tuple) else value


SECTIONS = tuple(Section("state", str(place)) for place in range(5))


def heals_with(*ways: Sequence[Section]) -> Callable[[Sequence[Overlay]], list[bool]]:
    """A run that goes on exactly when all sections of one of the ways are put back."""
    return lambda overlays: [any(set(way) <= set(one.put) - set(one.but) for way in ways) for one in overlays]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_smallest_set_is_found_whatever_it_is(size: int) -> None:
    for needed in combinations(SECTIONS, size):
        found = smallest_healing(heals_with(needed), SECTIONS, SECTIONS, {})
        assert (set(found.sections or ()), found.necessary) == (set(needed), True)
        # What differs may not be known: then all that can be put back is searched.
        found = smallest_healing(heals_with(needed), SECTIONS, SECTIONS[:1], {})
        assert (set(found.sections or ()), found.necessary) == (set(needed), True)


def test_two_ways_to_heal_are_no_proof_and_none_heals_nothing() -> None:
    found = smallest_healing(heals_with(SECTIONS[:1], SECTIONS[3:]), SECTIONS, SECTIONS, {})
    assert (found.sections, found.necessary) == (SECTIONS[:1], False)
    assert smallest_healing(heals_with(), SECTIONS, SECTIONS, {}).sections is None


def test_a_section_is_narrowed_down_to_the_parts_that_are_needed() -> None:
    outer, other = Section("state", "0"), Section("ema", "0")
    parts = [outer._replace(key=key) for key in ("step", "exp_avg", "exp_avg_sq")]

    def heals(overlays: Sequence[Overlay]) -> list[bool]:
        return [one.has("state", "0", "exp_avg", "weight") and one.has("ema", "0") for one in overlays]

    found = smallest_healing(heals, (outer, other), (outer, other), {outer: parts})
    assert (set(found.sections or ()), found.necessary) == ({parts[1], other}, True)


def test_the_smallest_failing_point_is_found_among_points_that_were_saved() -> None:
    for known in range(1, 41):
        for first in range(1, known + 1):
            saved: set[int] = set()

            def fails(step: int, first: int = first, saved: set[int] = saved) -> bool:
                assert step in saved
                return step >= first

            assert smallest_failing(known, saved.update, fails) == (first, first - 1)
            assert len(saved) <= 13
