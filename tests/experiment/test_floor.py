"""State-exact on kernels that are not deterministic, imitated: what is judged exactly, and what against the floor."""

from collections.abc import Callable

import pytest

from ckptcheck.experiment.noise import assess, touched_by_save
from ckptcheck.finding import Result, Verdict
from ckptcheck.trace.items import AFTER_SAVE, SAVED, Item
from tests.comparison.written import steps, tensor, write

# Each gradient is off by a relative 1e-7 from another draw in every process, as atomic additions leave it.
BODY = """
import os
class Place:
    def __init__(self): self.at = 0
    def state_dict(self): return {"at": self.at}
    def load_state_dict(self, values): self.at = values["at"]
def build(ctx):
    torch.manual_seed(0)
    batches = torch.randn(40, 8, 6)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    place, hidden = Place(), [1.0]
    def step(s):
        optimizer.zero_grad()
        loss = model(batches[place.at]).square().mean() * hidden[0]
        loss.backward()
        for parameter in model.parameters():
            drawn = torch.frombuffer(bytearray(os.urandom(parameter.numel())), dtype=torch.uint8)
            parameter.grad *= 1 + {size} * (drawn.view_as(parameter) / 127.5 - 1)
        optimizer.step()
        scheduler.step()
        place.at += 1
        return loss
    def save(path):
        torch.save([one.state_dict() for one in (model, optimizer, scheduler, place)], path)
    def load(path):
        saved = torch.load(path)
        for one, values in zip((model, optimizer, scheduler, place), saved):
            if {restored}:
                one.load_state_dict(values)
        {after}
    parts = {"optimizer": optimizer, "scheduler": scheduler, "data": place}
    return ckptcheck.Run(model=model, step=step, save=save, load=load, **parts)
"""
AS_BF16 = """for moments in optimizer.state.values():
            moments["exp_avg"].copy_(moments["exp_avg"].bfloat16())
            moments["exp_avg_sq"].copy_(moments["exp_avg_sq"].bfloat16())"""


def judged(check: Callable, target: Callable, restored: str = "True", after: str = "pass", **options: object) -> Result:
    body = BODY.replace("{size}", "1e-7").replace("{restored}", restored).replace("{after}", after)
    return check(target(body), **{"steps": 8, "resume_at": [3], "policy": "state-exact", **options})


def test_a_clean_resume_passes_and_says_what_was_not_judged_and_how_great_the_floor_was(
    target: Callable, check: Callable
) -> None:
    result = judged(check, target, after="hidden[0] = 1 + 1e-12")
    assert (result.verdict, result.cause) == (Verdict.PASS, None)
    assert {one.severity for one in result.findings} == {"warning"}
    (said,) = [one.reason for one in result.not_judged if "not judged bitwise" in one.reason]
    assert "10 times the floor" in said
    told = result.parts["noise"]["calibration"]  # type: ignore[index, call-overload]
    assert told["factor"] == 10
    widest = told["widest"][0]
    # A gradient is off by at most 2e-7 at once; Adam and the steps before may make tens of that.
    assert 1e-8 < widest["rel_l2"] < 1e-4
    assert widest["max_abs"] > 0
    assert widest["allowed"] >= 10 * widest["rel_l2"]
    assert widest["resumed"] <= widest["allowed"]


FAULTS = {
    "moments lost": (("one is not optimizer", "pass"), "CK201", (3, "load")),
    "schedule lost": (("one is not scheduler", "pass"), "CK602", (3, "load")),
    "data position lost": (("one is not place", "pass"), "CK604", (3, "load")),
    "moments through bfloat16": (("True", AS_BF16), "CK504", (3, "load")),
    "a value that the forward pass reads": (("True", "hidden[0] = 1.01"), "CK606", (4, "loss")),
}


@pytest.mark.parametrize(("fault", "code", "place"), FAULTS.values(), ids=FAULTS)
def test_a_fault_beyond_the_floor_fails_with_its_own_cause(
    fault: tuple[str, str], code: str, place: tuple[int, str], target: Callable, check: Callable
) -> None:
    result = judged(check, target, *fault)
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, code)
    assert (result.first_divergence.step, result.first_divergence.stage) == place


def test_noise_hides_no_lost_data_from_the_exact_policy_either(target: Callable, check: Callable) -> None:
    result = judged(check, target, after="place.at = 0", policy="exact")
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK604")
    later = "hidden[0] = 1.01"  # in what kernels compute it cannot be told from noise
    assert judged(check, target, after=later, policy="exact").verdict is Verdict.INCONCLUSIVE


APART = """
import os
def build(ctx):
    torch.manual_seed(0)
    left, right = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*left.parameters(), *right.parameters()], lr=0.1)
    resumed = ctx.workdir.parent.name.startswith("resumed")
    def step(s):
        optimizer.zero_grad()
        x = torch.full((2, 4), 1.0 + s)
        (left(x).square().mean() / 100 + right(x).square().mean() / 100).backward()
        left.weight.grad *= 1 + int.from_bytes(os.urandom(4), "little") / 2 ** 50
        if resumed and s == 7:
            WHICH.weight.grad *= 1.5
        optimizer.step()
    return ckptcheck.Run(model={"left": left, "right": right}, optimizer=optimizer, step=step)
"""


@pytest.mark.parametrize(("which", "verdict"), [("right", Verdict.FAIL), ("left", Verdict.INCONCLUSIVE)])
def test_a_tensor_that_no_noise_reaches_is_judged_to_the_end(
    which: str, verdict: Verdict, target: Callable, check: Callable
) -> None:
    result = check(target(APART.replace("WHICH", which)), steps=8, resume_at=[4])
    assert result.verdict is verdict
    expected = (7, "right.weight") if which == "right" else (1, "left.weight")
    assert (result.first_divergence.step, result.first_divergence.parameter) == expected


TRAP = """
def build(ctx):
    torch.manual_seed(0)
    batches = torch.randn(40, 16, 6)
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    name = ctx.workdir.parent.name
    def step(s):
        optimizer.zero_grad()
        loss = model(batches[s]).square().mean()
        loss.backward()
        NOISE
        optimizer.step()
        return loss
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step)
"""
FLIPS = """import os
        model[0].bias.grad *= 1 if os.urandom(1)[0] > 127 else -1
        model[2].bias.grad *= 1 + int.from_bytes(os.urandom(4), "little") / 2 ** 54"""


def test_rounding_noise_that_adam_makes_steps_of_is_told_and_no_failure(target: Callable, check: Callable) -> None:
    path = target(TRAP.replace("NOISE", FLIPS))
    result = check(path, steps=8, resume_at=[3], policy="state-exact")
    assert result.verdict is Verdict.PASS
    assert result.parts["noise"]["rounding_gradients"] == ["0.bias"]  # type: ignore[index, call-overload]
    assert any("true gradient of 0.bias is zero" in one.reason for one in result.not_judged)


def test_rounding_noise_is_told_beside_a_divergence(target: Callable, check: Callable) -> None:
    noise = "model[0].bias.grad *= -1 if name.startswith('resumed') else 1"
    result = check(target(TRAP.replace("NOISE", noise)), steps=6, resume_at=[3])
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK606")
    (told,) = [one for one in result.findings if one.code == "CK606"]
    assert told.evidence["rounding_gradients"] == ["0.bias"]
    assert "distance there says nothing" in told.message


def test_the_floor_of_equal_runs_holds_from_the_step_in_which_they_part_and_tells_how_far(tmp_path):
    w, b = Item("param", "w"), Item("param", "b")
    same, apart = tensor(1), tensor(2)._replace(norm=1.25)
    moments = [{w: same, b: same}] * 3
    reference = write(tmp_path / "one.trace", steps(*moments))
    repeat = write(tmp_path / "two.trace", steps(*moments[:2], {w: apart, b: same}))
    again = write(tmp_path / "three.trace", steps(*moments[:2], {w: tensor(3)._replace(norm=0.8), b: same}))
    noise = assess(reference, [repeat, again])
    assert noise.floor == {w: 3}
    # |1.25 - 0.8| of 1.25 is the greater of the two gaps
    assert noise.gaps == {"param": pytest.approx(0.36)}
    for one in (reference, repeat, again):
        one.close()


def test_what_a_save_adds_takes_away_or_changes_is_seen_and_idle_generators_are_not(tmp_path):
    items = [Item("grad", name) for name in ("added", "gone", "changed", "kept")]
    added, gone, changed, kept = items
    drawn, idle = Item("rng", "torch"), Item("rng", "numpy")
    before = {gone: tensor(1), changed: tensor(1), kept: tensor(1), drawn: tensor(1), idle: tensor(1)}
    after = {added: tensor(1), changed: tensor(2), kept: tensor(1), drawn: tensor(2), idle: tensor(2)}
    trace = write(tmp_path / "one.trace", {**steps({kept: tensor(1)}), (1, SAVED): before, (1, AFTER_SAVE): after})
    found = touched_by_save(trace, 1, frozenset({"torch"}))
    assert [one.item for one in found] == [drawn, added, changed, gone]
    trace.close()
