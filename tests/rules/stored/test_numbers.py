"""What the rules of CK5 say of one checkpoint: the numbers in their evidence, and what they do not judge."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Severity
from ckptcheck.optimizers.guessing import guess
from ckptcheck.optimizers.table import OPTIMIZERS, SECOND_MOMENTS
from ckptcheck.readers.reading import read_raw
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, judged
from ckptcheck.rules.stored import numbers
from ckptcheck.rules.stored.stored import WHY_NOT, Stored
from ckptcheck.verdict.reading_through import read_through
from tests.check_cases.numbers import NAN, Masked, after, counter, moment, trained

BY_CODE = {one.code: one for one in reversed(numbers.RULES)}  # the first of a code, over all checkpoints


def stored(path: Path) -> Stored:
    raw = read_raw(path, strict=False)
    checkpoint = explain(raw)
    classes = tuple(guess(one) for one in checkpoint.state.optimizers)
    return Stored(checkpoint, classes=classes, survey=read_through(raw, checkpoint)[1])


def said(code: str, path: Path) -> list[Evidence | Unjudged]:
    one: Rule[Stored] = BY_CODE[code]
    return list(one.check(stored(path)))


def of(change: Callable[[dict[str, Any]], None], folder: Path, code: str, **training: Any) -> list[Evidence | Unjudged]:
    return said(code, after(change, **training)(folder))


def test_counts_and_the_first_place_of_what_is_not_finite(tmp_path):
    def change(state):
        state["model"]["layers.0.weight"][2, 1:3] = torch.tensor([NAN, float("inf")])
        state["model"]["head.bias"][0] = NAN

    (found,) = of(change, tmp_path, "CK501")
    assert found.where.parameter == "layers.0.weight"
    assert found.numbers == {"nan": 1, "inf": 1, "minus_inf": 0, "numel": 36, "first_at": [2, 1],
                             "tensors": ["layers.0.weight", "head.bias"], "count": 2}  # fmt: skip
    assert "2 tensors of the model hold NaN or infinity: layers.0.weight, head.bias" in found.message
    assert "1 NaN and 1 inf of 36 elements, the first at (2, 1)" in found.message


def test_each_key_of_each_optimizer_is_told_on_its_own(tmp_path):
    def change(state):
        for key in ("exp_avg", "exp_avg_sq"):
            state["optimizer"]["state"][0][key][0, 0] = NAN

    found = of(change, tmp_path, "CK501")
    assert [(one.where.optimizer, one.where.key) for one in found] == [(0, "exp_avg"), (0, "exp_avg_sq")]


@pytest.mark.parametrize(("name", "value", "is_told"), [
    ("mask", NAN, True), ("slopes", float("inf"), True), ("best", NAN, True), ("best", -float("inf"), False),
    ("observer.min_val", NAN, True), ("observer.min_val", -float("inf"), False), ("body.bias", -float("inf"), True),
])  # fmt: skip
def test_nan_is_never_a_sentinel_and_a_trained_weight_has_none(name, value, is_told, tmp_path):
    def change(state):
        state["model"][name].view(-1)[0] = value

    assert [one.where.parameter for one in of(change, tmp_path, "CK501", model=Masked)] == [name] * is_told


def test_how_many_elements_are_negative_and_the_first(tmp_path):
    def change(state):
        state["optimizer"]["state"][2]["exp_avg_sq"][3:5, 4] = -2.0

    (found,) = of(change, tmp_path, "CK502")
    assert (found.where.parameter, found.where.key, found.where.optimizer) == ("layers.1.weight", "exp_avg_sq", 0)
    assert (found.numbers["negative"], found.numbers["numel"], found.numbers["first_at"]) == (2, 36, [3, 4])


def test_a_state_key_called_sum_is_a_second_moment_of_adagrad_alone(tmp_path):
    def change(state):
        state["optimizer"]["state"] = {0: {"sum": torch.full((6, 6), -1.0), "own": torch.ones(6, 6)}}

    assert of(change, tmp_path, "CK502") == []


def test_the_next_update_is_told_in_learning_rates(tmp_path):
    def change(state):
        for kept in state["optimizer"]["state"].values():
            kept["exp_avg"].clamp_(-0.002, 0.002)
        kept = state["optimizer"]["state"][3]
        kept["exp_avg"][4], kept["exp_avg_sq"][4] = -0.005, 0.0
        state["optimizer"]["state"][1]["exp_avg_sq"].zero_()
        for group in state["optimizer"]["param_groups"]:
            group["eps"] = 1e-6

    (found,) = of(change, tmp_path, "CK503")
    assert (found.where.parameter, found.where.key) == ("layers.1.bias", "exp_avg_sq")
    largest = float(torch.tensor(0.005))
    assert found.numbers == {"count": 1, "numel": 6, "first_at": [4], "largest": largest, "eps": 1e-6,
                             "factor": largest / 1e-6, "parameters": ["layers.0.bias", "layers.1.bias"]}  # fmt: skip


@pytest.mark.parametrize(("eps", "is_told"), [(1e-8, True), (9e-5, True), (1.1e-4, False), (0.0, True)])
def test_a_first_moment_below_eps_is_no_trouble(eps, is_told, tmp_path):
    def change(state):
        state["optimizer"]["state"][0]["exp_avg_sq"][0, 0] = 0.0
        state["optimizer"]["state"][0]["exp_avg"][0, 0] = 1e-4
        state["optimizer"]["param_groups"][0]["eps"] = eps

    assert len(of(change, tmp_path, "CK503")) == is_told


def test_a_group_without_eps_is_not_judged(tmp_path):
    def change(state):
        state["optimizer"]["state"][0]["exp_avg_sq"].zero_()
        del state["optimizer"]["param_groups"][0]["eps"]

    (found,) = of(change, tmp_path, "CK503")
    assert isinstance(found, Unjudged) and "groups of optimizer 0 have no eps" in found.reason


def test_a_class_that_rotates_its_moments_is_not_judged(tmp_path):
    def change(state):
        for kept in state["optimizer"]["state"].values():
            kept["exp_avg_sq"].zero_()
            kept["GG"] = torch.ones(3)

    (found,) = of(change, tmp_path, "CK503")
    assert isinstance(found, Unjudged) and "its class is not" in found.reason


@pytest.mark.parametrize("value", [0.0, 0, torch.tensor(0)], ids=repr)
def test_a_counter_of_zero_is_told_in_every_form(value, tmp_path):
    (found,) = of(counter(2, value), tmp_path, "CK505")
    assert (found.where.parameter, found.where.key, found.numbers["value"]) == ("layers.1.weight", "step", 0)


@pytest.mark.parametrize(("value", "shown"), [(-1, -1), (2.5, 2.5), (NAN, "nan"), (torch.tensor(-7.0), -7),
                                              (torch.tensor(float("inf")), "inf")], ids=repr)  # fmt: skip
def test_what_is_no_count_is_told_with_its_value(value, shown, tmp_path):
    (found,) = of(counter(2, value), tmp_path, "CK505")
    assert found.numbers["value"] == shown
    assert "no count of updates" in found.message


@pytest.mark.parametrize("value", [1, 7.0, torch.tensor(3), torch.tensor(3.0), 2**60], ids=repr)
def test_any_whole_number_of_updates_is_a_count(value, tmp_path):
    assert of(counter(2, value), tmp_path, "CK505") == []


def test_a_counter_that_is_no_number_at_all_is_not_judged(tmp_path):
    (found,) = of(counter(2, None), tmp_path, "CK505")
    assert isinstance(found, Unjudged) and "step of layers.1.weight in optimizer 0" in found.reason


def test_a_counter_of_zero_beside_moments_of_zero_is_right(tmp_path):
    def change(state):
        kept = state["optimizer"]["state"][2]
        kept["step"] = torch.tensor(0.0)
        kept["exp_avg"].zero_(), kept["exp_avg_sq"].zero_()

    assert of(change, tmp_path, "CK505") == []


def test_moments_of_zero_are_told_only_where_all_are(tmp_path):
    def all_zero(state):
        for kept in state["optimizer"]["state"].values():
            kept["exp_avg"].zero_(), kept["exp_avg_sq"].zero_()

    def all_but_one(state):
        all_zero(state)
        state["optimizer"]["state"][7]["exp_avg"][1] = 1e-30

    def not_stepped(state):
        all_zero(state)
        for kept in state["optimizer"]["state"].values():
            kept["step"] = torch.tensor(0.0)

    (found,) = of(all_zero, tmp_path, "CK506")
    assert found.numbers == {"moments": 16, "step": 3.0}
    assert of(all_but_one, tmp_path, "CK506") == of(not_stepped, tmp_path, "CK506") == []


def test_narrow_moments_are_told_with_both_dtypes(tmp_path):
    def change(state):
        kept = state["optimizer"]["state"][4]
        kept["exp_avg_sq"] = kept["exp_avg_sq"].bfloat16()

    (found,) = of(change, tmp_path, "CK504")
    assert found.numbers == {"dtype": "bfloat16", "parameter_dtype": "float32", "tensors": ["norm.weight.exp_avg_sq"],
                             "count": 1}  # fmt: skip


@pytest.mark.parametrize("key", ["momentum_dtype", "exp_avg_dtype"])
def test_a_class_that_chooses_its_moments_dtype_is_silent(key, tmp_path):
    def change(state):
        for kept in state["optimizer"]["state"].values():
            kept["exp_avg"] = kept["exp_avg"].bfloat16()
        state["optimizer"]["param_groups"][0][key] = torch.bfloat16

    assert of(change, tmp_path, "CK504") == []


def test_a_damaged_moment_is_not_judged_by_any_rule_that_needs_it(tmp_path):
    path = after()(tmp_path)
    wanted = trained()["optimizer"]["state"][0]["exp_avg_sq"].numpy().tobytes()
    content = bytearray(path.read_bytes())
    content[content.index(wanted) + 3] ^= 0x80  # the sign of the first element
    path.write_bytes(content)
    for code in ("CK501", "CK502", "CK503"):
        (found,) = said(code, path)
        assert (
            isinstance(found, Unjudged) and "layers.0.weight.exp_avg_sq: its stored bytes are damaged" in found.reason
        )


def test_what_was_not_surveyed_at_all_is_not_judged(tmp_path):
    checkpoint = stored(after(moment(0, "exp_avg", None, NAN))(tmp_path)).checkpoint
    findings, lacking = judged(numbers.RULES, Stored(checkpoint, classes=tuple(
        guess(one) for one in checkpoint.state.optimizers)), WHY_NOT)  # fmt: skip
    assert findings == []
    assert {one.code for one in lacking} == {"CK501", "CK502", "CK503", "CK506"}


def test_second_moments_and_their_first_ones_are_keys_of_known_classes():
    known = {key for row in OPTIMIZERS for key in row.keys}
    beside = {"exp_avg_var", "max_exp_avg_var"}  # AdaBelief's
    assert SECOND_MOMENTS.keys() - beside <= known
    assert {first for first in SECOND_MOMENTS.values() if first} <= known


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_a_trained_checkpoint_is_silent(code, tmp_path):
    assert said(code, after()(tmp_path)) == []


def test_a_counter_ahead_of_the_trainer_is_a_warning_for_a_second_training_may_count_on(tmp_path):
    from tests.check_cases.changing import of_sample
    from tests.check_cases.numbers import HF, ahead

    found = said("CK505", of_sample(HF, "optimizer.pt", ahead)(tmp_path))
    assert {one.severity for one in found} == {Severity.WARNING}
    assert "more than global_step 2 (trainer_state.json)" in found[0].message


@pytest.mark.parametrize(("lr", "told"), [(float("nan"), ["lr"]), (torch.tensor(float("nan")), ["lr"]), (0.1, [])])
def test_a_rate_that_is_nan_is_told_with_its_group(lr, told, tmp_path):
    model = torch.nn.Linear(3, 2)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": lr}]
    state = torch.optim.SGD(groups, lr=0.1).state_dict()
    torch.save({"model": model.state_dict(), "optimizer": state}, tmp_path / "state.pt")
    found = [one for one in verbs.check(tmp_path / "state.pt").findings if one.code == "CK501"]
    assert [(one.where.optimizer, one.where.group, one.where.key) for one in found] == [(0, 1, key) for key in told]
