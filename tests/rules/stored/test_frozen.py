"""CK4 on one checkpoint: what of a freeze contract it can break, and what two are needed for."""

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.errors import UsageError
from ckptcheck.finding import Verdict
from tests.check_cases.training import Mlp, saved, train


@pytest.fixture
def path(tmp_path):
    """A training of which `layers.0` was frozen after two steps, its state kept, and `head` never optimized."""
    model = Mlp()
    optimizer = torch.optim.Adam([p for name, p in model.named_parameters() if not name.startswith("head")])
    train(model, optimizer, 2)
    model.layers[0].requires_grad_(False)
    train(model, optimizer, 1)
    torch.save(saved(model, optimizer), tmp_path / "state.pt")
    return tmp_path / "state.pt"


def told(path, **contracts):
    freeze = {glob.replace("_", "."): contract for glob, contract in contracts.items()}
    result = verbs.check(path, freeze=freeze, select=("CK4",))
    return result, [(one.code, str(one.severity), one.where.parameter) for one in result.findings]


def test_state_under_reset_that_is_still_there_is_told(path):
    result, found = told(path, **{"layers_0_*": "reset"})
    assert found == [("CK402", "error", "layers.0.weight")]
    assert result.verdict is Verdict.FAIL
    assert result.findings[0].evidence["parameters"] == ["layers.0.weight", "layers.0.bias"]


def test_a_parameter_under_removed_that_is_still_in_a_group_is_told(path):
    assert told(path, **{"layers_0_*": "removed"})[1] == [("CK403", "error", "layers.0.weight")]


@pytest.mark.parametrize("contract", ["removed", "reset"])
def test_a_contract_that_is_kept_is_silent(path, contract):
    result, found = told(path, **{"head_*": contract})
    assert (found, result.verdict) == ([], Verdict.PASS)


@pytest.mark.parametrize(("contract", "codes"), [
    ("hold", {"CK401", "CK402"}), ("no-update", {"CK401"}), ("no-grad", {"CK403"}),
])  # fmt: skip
def test_what_only_two_checkpoints_show_is_not_judged(path, contract, codes):
    result, found = told(path, **{"layers_0_*": contract})
    assert found == []
    assert {one.code for one in result.not_judged if "diff --freeze" in one.reason} == codes


def test_the_last_glob_binds(path):
    assert told(path, **{"*": "removed", "layers_*": "hold", "norm_*": "hold"})[1] == []


def test_a_pattern_that_matches_nothing_is_refused(path):
    with pytest.raises(UsageError, match=r"--freeze nope\.\*=hold matches no parameter of the checkpoint"):
        verbs.check(path, freeze={"nope.*": "hold"})


def test_without_a_contract_nothing_is_said_unless_it_was_demanded(path):
    assert not [one for one in verbs.check(path).not_judged if one.code.startswith("CK4")]
    demanding = verbs.check(path, require=("CK401",))
    assert demanding.verdict is Verdict.FAIL
    assert [one.reason for one in demanding.not_judged if one.code == "CK401"] == ["no freeze contract was given"]
