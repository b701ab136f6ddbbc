"""`ckptcheck probe` as it is called: what reaches the verb, and what is refused before it."""

import pytest

from ckptcheck.finding import Finding, Place, Result, Severity, Verdict
from tests.cli.fakes import FakeVerbs
from tests.cli.refusals import assert_is_refused

GIVEN = {
    "probe Adam": ("Adam", {}),
    "probe --all --exact": ("all", {"exact": True}),
    "probe --exact": ("", {"exact": True}),
    "probe own.py:Lion --arg lr=0.1 --arg betas=(0.9,0.99) --arg name=fast": (
        "own.py:Lion", {"arguments": {"lr": 0.1, "betas": (0.9, 0.99), "name": "fast"}},
    ),
    "probe run.py --freeze body.*=hold --steps 7 --seed 3": (
        "run.py", {"freeze": {"body.*": "hold"}, "steps": 7, "seed": 3},
    ),
    "probe Adam --device cuda:1 --select CK7 --ignore CK704,CK703 --fail-on warning": (
        "Adam", {"device": "cuda:1", "select": ("CK7",), "ignore": ("CK704", "CK703"), "fail_on": "warning"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", GIVEN)
def test_options_reach_the_verb(ckptcheck, line):
    verbs = FakeVerbs(Result("probe", Verdict.PASS))
    assert ckptcheck(*line.split(), verbs=verbs).exit_code == 0
    subject, options = GIVEN[line]
    assert verbs.called["subject"] == subject
    assert {name: verbs.called[name] for name in options} == options


REFUSED = {
    "probe": "Missing argument 'OPTIMIZER' or 'TARGET'; --all",
    "probe --all Adam": "--all and Adam exclude each other",
    "probe Adam --arg lr": "is not NAME=VALUE, such as lr=0.1",
    "probe Adam --arg 1r=2": "is not NAME=VALUE, such as lr=0.1",
    "probe Adam --freeze body.*=hold": "--freeze is for a TARGET",
    "probe --all --freeze body.*=hold": "--freeze is for a TARGET",
    "probe Adam --freeze body.*=keep": "keep",
    "probe Adam --steps 0": "--steps",
    "probe Adam --baselin x": "--baseline",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_go_together_is_refused(ckptcheck, line):
    assert_is_refused(ckptcheck, line, REFUSED[line])


def test_contracts_of_the_project_are_for_its_targets_only(ckptcheck, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckptcheck.toml").write_text('[freeze]\n"body.*" = "hold"\n')
    for subject, freeze in (("Adam", {}), ("--all", {}), ("run.py", {"body.*": "hold"})):
        verbs = FakeVerbs(Result("probe", Verdict.PASS))
        assert ckptcheck("probe", subject, verbs=verbs).exit_code == 0
        assert verbs.called["freeze"] == freeze


@pytest.mark.parametrize(
    ("verdict", "code"), [(Verdict.PASS, 0), (Verdict.FAIL, 1), (Verdict.INCONCLUSIVE, 3)], ids=str
)
def test_the_verdict_is_the_exit_code(ckptcheck, verdict, code):
    finding = Finding("CK701", "none-treated-as-zero", Severity.ERROR, "Own takes none for zeros", Place())
    verbs = FakeVerbs(Result("probe", verdict, findings=(finding,) if verdict is Verdict.FAIL else ()))
    outcome = ckptcheck("probe", "Adam", verbs=verbs)
    assert outcome.exit_code == code
    assert ("none treated as zero (CK701)" in outcome.stdout) == (verdict is Verdict.FAIL)
