"""`explain`: the card of a rule, a family, the table."""

import json

import pytest

from ckptcheck.rules.table import BY_CODE
from tests.cli.refusals import assert_is_refused


@pytest.mark.parametrize("code", BY_CODE)
def test_every_code_has_a_card_that_fits_a_terminal(ckptcheck, monkeypatch, code):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = ckptcheck("explain", code)
    lines = outcome.stdout.splitlines()
    assert outcome.exit_code == 0
    assert lines[0] == f"{code} {BY_CODE[code].name} ({BY_CODE[code].severity})"
    assert [line.split()[0] for line in lines if line[:1] not in ("", " ", "C")] == [
        "What", "Why", "Example", "Fix", "Limits", "Judged", *["Reports"] * ("Reports" in outcome.stdout),
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80


def test_a_public_report_stands_with_its_link(ckptcheck):
    said = ckptcheck("explain", "optimizer-state-absent").stdout
    assert "a refactoring lost the call that applies the loaded state; no test resumed:" in said
    assert "\n               https://github.com/NVIDIA-NeMo/Automodel/issues/763\n" in said


def test_without_a_code_each_rule_has_a_line(ckptcheck):
    said = ckptcheck("explain").stdout
    assert said.startswith(f"{len(BY_CODE)} rules\n")
    begun = [line.split()[:3] for line in said.splitlines() if line.startswith("CK")]
    assert begun == [[code, one.severity, f"{one.name}:"] for code, one in BY_CODE.items()]


def test_json_holds_the_parts(ckptcheck, tmp_path):
    path = tmp_path / "card.json"
    told = json.loads(ckptcheck("explain", "ck402", "--format", "json", "--report", f"json={path}").stdout)
    assert (told["command"], told["verdict"], told["asked"]) == ("explain", "pass", "CK402")
    assert [sorted(card) for card in told["cards"]] == [
        ["code", "commands", "example", "fix", "limits", "name", "reports", "severity", "what", "why"]
    ]
    assert json.loads(path.read_text()) == told


def test_quiet_is_the_first_line(ckptcheck):
    assert ckptcheck("explain", "CK402", "-q").stdout == "CK402 frozen-state-drift (error)\n"


@pytest.mark.parametrize(("line", "said"), [
    ("explain CK4022", "there is no rule 'CK4022'; did you mean CK402?"),
    ("explain nonsense", "there is no rule 'nonsense'"),
    ("explain CK402 --format junit", "a card has no form junit: choose text or json"),
    ("explain CK402 --report sarif=x", "a card has no form sarif: choose text or json"),
])  # fmt: skip
def test_what_is_no_rule_is_one_line_and_exit_2(ckptcheck, line, said):
    assert_is_refused(ckptcheck, line, said)
