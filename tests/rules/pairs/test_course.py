"""Whether two checkpoints are of one training, and which is the earlier one."""

import copy
from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.finding import Verdict
from ckptcheck.rules.pairs.pair import Pair
from tests.check_cases.training import ConvNet, Mlp, saved
from tests.check_cases.two import state_of, two, untouched, written
from tests.rules.pairs.given import diffed

EARLIER = "the right checkpoint is of step 3 and the left one of step 6: hand in the earlier first"
COUNTERS = "the update counters of the right checkpoint are lower: hand in the earlier one first"


def course(sides):
    return Pair(diffed(sides)).course


def test_two_checkpoints_in_a_row_are_judged(tmp_path):
    one = course(two()(tmp_path))
    assert (one.why_not, one.steps, one.prefixes) == ("", (3, 6), None)
    assert {(entry.left, entry.right) for entry in one.counters} == {(3.0, 6.0)}
    assert len(one.counters) == 8
    assert (one.updates, one.advanced) == (3.0, True)


def test_counters_that_did_not_rise_are_known_too(tmp_path):
    sides = two()(tmp_path)
    one = course((sides[0], sides[0]))
    assert {(entry.left, entry.right) for entry in one.counters} == {(3.0, 3.0)}
    assert (one.why_not, one.advanced) == ("", False)


def _without_steps(left, right):
    del left["step"], right["step"]


@pytest.mark.parametrize(("change", "reason"), [(untouched, EARLIER), (_without_steps, COUNTERS)])
def test_the_later_one_first_is_not_judged_and_no_pass(tmp_path, change, reason):
    left, right = two(change)(tmp_path)
    assert course((right, left)).why_not == reason
    result = verbs.diff(right, left, gate="findings")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert {one.reason for one in result.not_judged if one.code == "CK301"} == {reason}
    assert verbs.diff(right, left, gate="findings", select=("CK1",)).verdict is Verdict.PASS


def test_two_trainings_are_not_judged(tmp_path):
    left, _ = two()(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = two(model=ConvNet)(tmp_path / "other")
    assert course((left, other)).why_not.startswith("most names or shapes differ")


def test_a_file_without_weights_and_optimizer_is_not_judged(tmp_path):
    torch.save({"step": 3}, tmp_path / "a.pt")
    assert "neither weights nor optimizer state" in course((tmp_path / "a.pt", tmp_path / "a.pt")).why_not


def test_a_step_that_went_back_while_counters_rose_is_a_fault_and_no_order(tmp_path):
    def back(left, right):
        right["step"] = 1

    assert course(two(back)(tmp_path)).why_not == ""


def _renamed(prefix: str, rest: str = "", only: int = 8):
    def change(left, right):
        names = list(right["model"])[:only]
        right["model"] = {f"{prefix if name in names else rest}{name}": one for name, one in right["model"].items()}

    return change


@pytest.mark.parametrize(("change", "prefixes"), [
    (_renamed("net."), ("", "net.")), (_renamed("a.b."), ("", "a.b.")), (_renamed("module."), None),
    (_renamed("a.", "b.", 4), None), (_renamed("a.", "", 2), None),
])  # fmt: skip
def test_a_prefix_is_one_of_all_names(tmp_path, change, prefixes):
    assert course(two(change)(tmp_path)).prefixes == prefixes


def test_a_prefix_is_seen_between_equal_weights_too(tmp_path):
    torch.manual_seed(0)
    model = Mlp()
    left = copy.deepcopy(saved(model, torch.optim.AdamW(model.parameters())))
    right = copy.deepcopy(left)
    right["model"] = {f"net.{name}": one for name, one in right["model"].items()}
    assert course(written(tmp_path, left, right)).prefixes == ("", "net.")
    Path(tmp_path / "back").mkdir()
    assert course(written(tmp_path / "back", right, left)).prefixes == ("net.", "")


def test_the_most_updates_of_any_parameter_count(tmp_path):
    def lag(left, right):
        state_of(right, "head.bias")["step"] -= 2

    assert course(two(lag)(tmp_path)).updates == 3.0


@pytest.mark.parametrize(("reshaped", "why"), [(0, False), (3, False), (5, True), (8, True)])
def test_of_one_training_most_tensors_have_one_shape(tmp_path, reshaped, why):
    def change(left, right):
        for name in [*right["model"]][:reshaped]:
            right["model"][name] = right["model"][name].new_zeros(3, 3, 3)

    one = course(two(change)(tmp_path))
    assert one.why_not.startswith("most names or shapes differ") is why
