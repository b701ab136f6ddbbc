"""CK4 over two checkpoints: by contract, and by what the two show."""

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.errors import UsageError
from ckptcheck.finding import Severity, Verdict
from tests.check_cases.frozen import _decayed_by_hand, _dropped, _removed
from tests.check_cases.pairs import _late_group, _without_head
from tests.check_cases.two import Backbone, freeze, frozen, head_steps, two
from tests.rules.pairs.given import said

W = "backbone.0.weight"
HOLD = {"backbone.*": "hold"}


def test_without_a_contract_the_rules_about_contracts_are_not_judged(tmp_path):
    sides = two(model=Backbone, between=frozen("zero"))(tmp_path)
    for code in ("CK401", "CK402", "CK403", "CK404"):
        findings, not_judged = said(sides, code)
        assert findings == []
        assert [one.reason for one in not_judged] == ["no freeze contract was given"]


def test_a_move_is_told_with_how_far_and_since_which_counter(tmp_path):
    sides = two(model=Backbone, between=frozen("zero"))(tmp_path)
    left, right = (torch.load(side, weights_only=True)["model"][W].double() for side in sides)
    found = said(sides, "CK401", freeze=HOLD)[0][0]
    numbers = found.evidence
    assert (found.where.parameter, found.where.optimizer) == (W, 0)
    assert numbers["max_abs"] == (right - left).abs().max().item()
    assert numbers["rel_l2"] == pytest.approx(((right - left).norm() / left.norm()).item())
    assert (numbers["left_count"], numbers["right_count"], numbers["numel"]) == (3, 6, 36)
    assert "over 3 updates (its counter went from 3 to 6)" in found.message
    state = said(sides, "CK402", freeze=HOLD)[0][0]
    assert (state.where.parameter, state.where.key, state.evidence["left_count"]) == (W, "exp_avg", 3)


def test_weight_decay_alone_is_said_of_a_move(tmp_path):
    sides = two(model=Backbone, optimizer=torch.optim.SGD, momentum=0.9, weight_decay=0.1,
                between=_decayed_by_hand)(tmp_path)  # fmt: skip
    found = said(sides, "CK401", freeze=HOLD)[0][0]
    assert found.evidence["decay_factor"] == (1 - 0.01 * 0.1) ** 3
    assert "weight decay alone explains it" in found.message
    assert said(sides, "CK402", freeze=HOLD) == ([], [])


def test_buffers_are_one_warning_that_counts_them(tmp_path):
    (found,), _ = said(two(model=Backbone, between=frozen(evaluated=False))(tmp_path), "CK404", freeze=HOLD)
    assert (found.severity, found.evidence["count"]) == (Severity.WARNING, 3)


def test_a_read_gradient_and_a_membership_are_errors(tmp_path):
    sides = two(model=Backbone, between=frozen("zero"))(tmp_path)
    for contract, said_of in (("no-grad", "updates read a gradient of it"), ("removed", "is in optimizer 0")):
        findings, _ = said(sides, "CK403", freeze={W: contract})
        assert [(one.severity, one.where.parameter) for one in findings] == [(Severity.ERROR, W)]
        assert said_of in findings[0].message


def test_what_was_not_compared_is_not_judged(tmp_path):
    sides = two(model=Backbone, between=frozen("zero"))(tmp_path)
    findings, not_judged = said(sides, "CK401", freeze=HOLD, only=("optimizer",))
    assert findings == []
    assert not_judged[0].reason.startswith("--only or --ignore leaves the values out: backbone.0.weight")


def test_the_parameters_that_stalled_are_named_once_and_not_under_a_contract(tmp_path):
    sides = two(model=Backbone, between=frozen())(tmp_path)
    (found,), _ = said(sides, "CK405")
    assert (found.severity, found.evidence["counter"], found.evidence["updates_of_others"]) == (Severity.WARNING, 3, 3)
    assert len(found.evidence["frozen"]) == 4
    assert said(sides, "CK405", freeze=HOLD) == ([], [])


def test_what_had_stalled_before_and_what_all_share_is_no_change(tmp_path):
    def before(left, right):
        for side in (left, right):
            side["optimizer"]["state"][0]["step"] -= 2

    (found,), _ = said(two(before, model=Backbone, between=frozen())(tmp_path), "CK405")
    assert W not in found.evidence["frozen"]

    def nobody(left, right):
        right |= {"model": left["model"], "optimizer": left["optimizer"]}

    assert said(two(nobody, model=Backbone)(tmp_path), "CK405") == ([], [])


def test_who_came_into_the_optimizer_is_a_warning(tmp_path):
    (found,), _ = said(two(groups=_without_head, between=_late_group)(tmp_path), "CK405")
    assert (found.severity, found.evidence["thawed"]) == (Severity.WARNING, ["head.weight", "head.bias"])


def test_who_left_the_optimizer_is_told_by_ck303_unless_its_contract_says_so(tmp_path):
    sides = two(model=Backbone, between=_removed)(tmp_path)
    assert said(sides, "CK405")[0] == []
    assert len(said(sides, "CK303")[0][0].evidence["parameters"]) == 4
    assert said(sides, "CK303", freeze={"backbone.*": "removed"}) == ([], [])


def test_dropped_state_is_told_of_what_rested(tmp_path):
    sides = two(model=Backbone, between=_dropped)(tmp_path)
    for contracts in (None, HOLD, {"backbone.*": "no-update"}):
        (found,), _ = said(sides, "CK406", freeze=contracts)
        assert found.evidence["keys"] == ["step", "exp_avg", "exp_avg_sq"]
    for contract in ("reset", "removed"):
        assert said(sides, "CK406", freeze={"backbone.*": contract}) == ([], [])


def test_a_store_that_says_requires_grad_tells_who_was_frozen(tmp_path):
    def half_frozen(model, optimizer):
        freeze(model)
        head_steps(model, optimizer)

    torch.manual_seed(0)
    model = Backbone()
    optimizer = torch.optim.AdamW(list(model.named_parameters()), lr=1e-2)
    head_steps(model, optimizer)
    torch.save({"model": model, "optimizer": optimizer.state_dict(), "step": 3}, tmp_path / "left.pt")
    half_frozen(model, optimizer)
    torch.save({"model": model, "optimizer": optimizer.state_dict(), "step": 6}, tmp_path / "right.pt")
    findings, _ = said((tmp_path / "left.pt", tmp_path / "right.pt"), "CK405")
    assert {one.severity for one in findings} == {Severity.WARNING}
    assert "4 parameters changed requires_grad; no longer trained: backbone.0.weight" in findings[0].message
    # only a part of the way is bound by a contract
    held, not_judged = said((tmp_path / "left.pt", tmp_path / "right.pt"), "CK401", freeze=HOLD)
    assert held == []
    assert not_judged[0].reason.startswith("requires_grad changed in between")


def test_a_contract_fails_the_comparison_and_a_pattern_on_nothing_is_refused(tmp_path):
    sides = two(model=Backbone, between=frozen("zero"))(tmp_path)
    assert verbs.diff(*sides, freeze={"head.*": "no-grad"}).verdict is Verdict.FAIL
    assert verbs.diff(*two(model=Backbone, between=frozen())(tmp_path), freeze=HOLD).verdict is Verdict.PASS
    with pytest.raises(UsageError, match=r"--freeze bakbone.\*=hold matches no parameter .* backbone.0.weight"):
        verbs.diff(*sides, freeze={"bakbone.*": "hold"})
    with pytest.raises(UsageError, match="names no contract"):
        verbs.diff(*sides, freeze={"backbone.*": "cold"})


def test_a_demanded_code_that_cannot_be_judged_fails(tmp_path):
    sides = two(model=Backbone)(tmp_path)
    assert verbs.diff(*sides, gate="findings").verdict is Verdict.PASS
    assert verbs.diff(*sides, require=("CK301",)).verdict is Verdict.PASS
    assert verbs.diff(*sides, require=("CK401",)).verdict is Verdict.FAIL
