"""Another environment is named where only numbers differ; operations that are not deterministic are named too."""

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from ckptcheck.cli.main import door
from ckptcheck.finding import Verdict

# Means of a million numbers are summed in another order by two threads.
BODY = """
def build(ctx):
    torch.manual_seed(0)
    resumed = ctx.workdir.parent.name.startswith("resumed")
    torch.set_num_threads(2 if resumed and {threads} else 1)
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64)) if {large} else nn.Linear(64, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **({"fused": resumed} if {fused} else {}))
    trained = torch.compile(model, backend="eager") if resumed and {compiled} == "wrapped" else model
    if resumed and {compiled} == "in place":
        model.compile(backend="eager")
    x = torch.randn(4096, 64)
    def step(s):
        optimizer.zero_grad()
        loss = ((model(x * s) if {large} else trained(x[:2] * s)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss
    def save(path):
        torch.save([model.state_dict(), optimizer.state_dict()], path)
    def load(path):
        saved = torch.load(path)
        model.load_state_dict(saved[0])
        fused = optimizer.param_groups[0]["fused"]
        {load}
        optimizer.param_groups[0]["fused"] = fused
    return ckptcheck.Run(model=trained, optimizer=optimizer, step=step, save=save, load=load)
"""
WHOLE = "optimizer.load_state_dict(saved[1])"
ASKED = {"threads": "False", "fused": "False", "compiled": "False", "large": "True", "load": WHOLE}
CASES = {
    "threads": ({"threads": "True"}, Verdict.FAIL, "CK614", "num_threads"),
    "threads without effect": ({"threads": "True", "large": "False"}, Verdict.PASS, None, "num_threads"),
    "a fused update": ({"fused": "True"}, Verdict.FAIL, "CK614", "fused"),
    "compiled without effect": ({"compiled": "'in place'", "large": "False"}, Verdict.PASS, None, "compiled_modules"),
    "wrapped without effect": ({"compiled": "'wrapped'", "large": "False"}, Verdict.PASS, None, "compiled_modules"),
    "lost moments beside threads": ({"threads": "True", "load": "pass"}, Verdict.FAIL, "CK201", "num_threads"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_another_environment_is_named_and_takes_no_blame_for_faults(
    case: tuple[dict[str, str], Verdict, str | None, str], target: Callable, check: Callable
) -> None:
    asked, verdict, code, key = case
    body = BODY
    for name, value in {**ASKED, **asked}.items():
        body = body.replace("{" + name + "}", value)
    result = check(target(body), steps=5, resume_at=[2])
    assert (result.verdict, result.cause.code if result.cause else None) == (verdict, code)
    (told,) = [one for one in result.findings if one.code == "CK614"]
    assert key in told.message
    assert told.severity == "warning"


# put_ of one place twice: torch names it. The noise itself is drawn, since a CPU puts in the same order each time.
PUTS = """
import os
def build(ctx):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(s):
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), 1.0 + s)).square().mean() / 100
        loss.backward()
        drawn = torch.tensor(list(os.urandom(2))) / 255
        model.bias.grad.put_(torch.tensor([0, 0]), drawn)
        optimizer.step()
        return loss
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step)
"""


def test_an_operation_that_is_not_deterministic_is_named(target: Callable, check: Callable) -> None:
    result = check(target(PUTS), steps=4)
    assert result.verdict is Verdict.INCONCLUSIVE
    (told,) = [one for one in result.findings if one.code == "CK611"]
    assert told.evidence["operations"] == ["put_"]
    assert "no deterministic implementation of put_" in told.message


UNSEEDED = """
import random
def build(ctx):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(s):
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), random.random())).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step)
"""


def test_the_generator_that_nobody_seeds_is_named(target: Callable, check: Callable) -> None:
    result = check(target(UNSEEDED), steps=4)
    (told,) = [one for one in result.findings if one.code == "CK611"]
    assert told.evidence["generators"] == ["python"]
    assert "the python generator differ" in told.fix


@pytest.mark.parametrize(("choice", "code"), [(None, 3), ("fail", 1), ("pass", 0)])
def test_an_inconclusive_verdict_exits_as_asked_and_stays_inconclusive_in_the_json(
    choice: str | None, code: int, target: Callable, check: Callable
) -> None:
    options = ["--on-inconclusive", choice] if choice else []
    said = ["verify", target(UNSEEDED), "--steps", "4", "--format", "json", "--no-progress", *options]
    made = CliRunner().invoke(door, said)
    assert (made.exit_code, json.loads(made.stdout)["verdict"]) == (code, "inconclusive")
