"""Noise that comes once in many runs is told from a fault: what does not repeat itself is inconclusive, no failure."""

from collections.abc import Callable

import pytest

from ckptcheck.finding import Result, Verdict

BODY = """
import os
def build(ctx):
    torch.manual_seed(0)
    name = ctx.workdir.parent.name
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hidden = [0.0]
    def step(s):
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), 1.0 + s)).square().mean() / 100
        loss.backward()
        if s == 5:
            {perturb}
        model.weight.grad += hidden[0]
        optimizer.step()
        return loss
    def save(path):
        torch.save([model.state_dict(), optimizer.state_dict()], path)
        {saving}
    def load(path):
        model.load_state_dict(torch.load(path)[0])
        {load}
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=save, load=load)
"""
WHOLE = "optimizer.load_state_dict(torch.load(path)[1])"
SOME_NUMBER = "int.from_bytes(os.urandom(4), 'little') / 2 ** 32"


def judged(check: Callable, target: Callable, perturb: str, load: str = WHOLE, saving: str = "pass") -> Result:
    body = BODY.replace("{perturb}", perturb).replace("{load}", load).replace("{saving}", saving)
    return check(target(body), steps=7, resume_at=[3])


@pytest.mark.parametrize("who", ["resumed@3", "reference"], ids=["the resumed run", "the run that saves"])
def test_what_one_run_alone_shows_is_chance(who: str, target: Callable, check: Callable) -> None:
    result = judged(check, target, f"model.weight.grad *= 1.5 if name == {who!r} else 1.0")
    assert (result.verdict, result.exit_code, result.cause.code) == (Verdict.INCONCLUSIVE, 3, "CK611")
    assert (result.first_divergence.step, result.first_divergence.stage) == (5, "grad")
    assert {one.code for one in result.findings if one.severity == "error"} == set()
    (told,) = [one for one in result.findings if one.code == "CK611"]
    assert ("does not repeat itself" in told.message) == (who != "reference")


@pytest.mark.parametrize(
    "by", ["0.5", SOME_NUMBER], ids=["by the same in every process", "by another number in every process"]
)
def test_what_every_resumed_run_shows_and_no_other_is_a_fault(by: str, target: Callable, check: Callable) -> None:
    result = judged(check, target, f"model.weight.grad *= 1 + {by} if name.startswith('resumed') else 1.0")
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK606")
    assert (result.first_divergence.step, result.first_divergence.stage) == (5, "grad")


def test_chance_hides_no_fault_of_the_load(target: Callable, check: Callable) -> None:
    result = judged(check, target, "model.weight.grad *= 1.5 if name == 'resumed@3' else 1.0", load="pass")
    assert (result.verdict, result.cause.code, result.cause.confidence) == (Verdict.FAIL, "CK201", "certain")


def test_a_save_that_perturbs_by_another_number_each_time_is_no_chance(target: Callable, check: Callable) -> None:
    result = judged(check, target, "pass", saving=f"hidden[0] = {SOME_NUMBER}")
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK609")
    assert (result.first_divergence.step, result.first_divergence.stage) == (4, "grad")
