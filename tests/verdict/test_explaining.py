"""Which rules are explained, and which commands judge them."""

import pytest

from ckptcheck.errors import UsageError
from ckptcheck.rules.table import BY_CODE
from ckptcheck.verdict.explaining import explain

JUDGES = {
    "CK101": {"check", "diff --gate findings"},
    "CK106": {"check", "diff --gate findings"},
    "CK202": {"verify", "compare", "record", "check", "diff --gate findings"},
    "CK207": {"check", "diff --gate findings"},
    "CK305": {"check"},
    "CK307": {"verify", "compare", "record", "check --target", "diff --gate findings"},
    "CK401": {"verify", "check", "diff --gate findings"},
    "CK502": {"check", "diff --gate findings"},
    "CK609": {"verify"},
    "CK610": {"verify", "compare"},
    "CK611": {"verify"},
    "CK615": {"verify"},
    "CK703": {"probe"},
}
"""Some of each kind, by hand."""


def codes(asked):
    return [card["code"] for card in explain(asked).parts["cards"]]


def test_without_a_code_all_are_told_in_order():
    assert codes(None) == sorted(BY_CODE)
    assert explain(None).parts["asked"] is None


@pytest.mark.parametrize("asked", ["CK402", "ck402", " CK402 ", "frozen-state-drift", "Frozen-State-Drift"])
def test_a_rule_is_asked_for_by_its_code_or_its_name(asked):
    assert codes(asked) == ["CK402"]
    assert explain(asked).parts["asked"] == "CK402"


@pytest.mark.parametrize("asked", ["CK7", "CK", "CK61", "ck5"])
def test_the_beginning_of_codes_is_a_family(asked):
    assert codes(asked) == [code for code in sorted(BY_CODE) if code.startswith(asked.upper())]
    assert len(codes(asked)) > 1


@pytest.mark.parametrize(("asked", "said"), [
    ("CK4022", "there is no rule 'CK4022'; did you mean CK402"),
    ("CK999", "there is no rule 'CK999'; did you mean CK"),
    ("CK8", "there is no rule 'CK8'; "),
    ("frozen-state-drft", "did you mean frozen-state-drift"),
    ("frozen_state_drift", "did you mean frozen-state-drift"),
    ("", "there is no rule ''; without a code, explain lists them all"),
    ("banana", "there is no rule 'banana'; without a code, explain lists them all"),
])  # fmt: skip
def test_what_is_no_rule_is_refused_with_the_nearest(asked, said):
    with pytest.raises(UsageError) as refused:
        explain(asked)
    assert said in str(refused.value)


def test_the_commands_that_judge_a_rule_are_told():
    told = {card["code"]: set(card["commands"]) for card in explain().parts["cards"]}
    assert {code: told[code] for code in JUDGES} == JUDGES
    assert all(told.values())


def test_a_result_is_whole_and_its_rows_hold_plain_values():
    result = explain("CK201")
    (card,) = result.parts["cards"]
    assert (card["name"], card["severity"]) == ("optimizer-state-absent", "error")
    assert card["fix"] == "Save `optimizer.state_dict()` and load it after the model."
    assert card["reports"][0] == {
        "url": "https://github.com/OpenNMT/OpenNMT-py/issues/617",
        "said": "Adam's state was loaded, then a setter built the optimizer anew and dropped it",
    }
    assert (result.exit_code, bool(result)) == (0, True)
