"""Acceptances over real runs: a resumed run that draws from other generators, and one that also loses its schedule."""

from datetime import date
from pathlib import Path

import pytest

from ckptcheck.config import Acceptance
from ckptcheck.finding import Verdict
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render

# The generator is not restored at all; the optimizer's state is lost where the run is resumed after step 4.
BODY = """
def build(ctx):
    torch.manual_seed(ctx.seed)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    def step(s):
        optimizer.zero_grad()
        loss = model(torch.rand(3, 2)).sum()
        loss.backward()
        optimizer.step()
        return loss
    def save(path):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    def load(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        if "resumed@4" not in str(ctx.workdir):
            optimizer.load_state_dict(state["optimizer"])
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=save, load=load)
"""
KNOWN = Acceptance("CK603", "the dropout masks may differ", None, date.max, "ckptcheck.toml, accept[0]")


@pytest.fixture
def verify(check, target):
    path = target(BODY)
    return lambda *points, **more: check(path, steps=5, resume_at=points, quick=True, **more)


def test_a_run_passes_by_its_accepted_cause_and_says_so(verify):
    told = verify(2, accept=[KNOWN])
    assert told.verdict is Verdict.PASS
    assert (told.cause.code, told.first_divergence.step, told.first_divergence.stage) == ("CK603", 2, "load")
    first, *rest = render(told, Page(width=200)).splitlines()
    assert first == "PASS  accepted: rng diverged (CK603), until 9999-12-31"
    said = "Accepted     until 9999-12-31: the dropout masks may differ (ckptcheck.toml, accept[0])"
    assert said in rest


def test_another_cause_at_another_point_still_fails(verify):
    told = verify(2, 4, accept=[KNOWN])
    assert told.verdict is Verdict.FAIL
    assert told.cause.code == "CK603"
    first = render(told, Page(width=200, detail=Detail.VERDICT))
    assert first == "FAIL  optimizer state absent (CK201); accepted: rng diverged (CK603), until 9999-12-31\n"


def test_a_baseline_of_one_point_serves_at_another(verify, tmp_path: Path):
    path = tmp_path / "baseline.json"
    assert verify(2, write_baseline=path).verdict is Verdict.PASS
    assert verify(3, baseline=path).verdict is Verdict.PASS
