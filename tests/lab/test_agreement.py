"""An implementation held against the loop over parameters: what it changes, and by how many bits it is off."""

import numpy
import pytest
import torch

from ckptcheck.lab.agreement import agreements
from ckptcheck.lab.subject import Subject, torch_subject
from ckptcheck.lab.variants import Variant


class _Plain(torch.optim.Optimizer):
    """Signs of gradients, and a count of its steps; foreach in one of several ways of its own."""

    way = ""

    def __init__(self, params, lr=0.5, foreach=False):
        super().__init__(params, {"lr": lr, "foreach": foreach})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            other = self.way if group["foreach"] else ""
            for p in group["params"]:
                if p.grad is None or (other == "skips zeros" and not p.grad.any()):
                    continue
                p.sub_(group["lr"] * p.grad.sign())
                if other == "one bit" and self.state[p].get("count", 0) == 4:
                    p.view(-1)[0] = float(numpy.nextafter(numpy.float32(p.view(-1)[0].item()), numpy.float32(9e9)))
                if other == "counts twice":
                    self.state[p]["count"] = self.state[p].get("count", 0) + 1
                self.state[p]["count"] = self.state[p].get("count", 0) + 1


def _found(way):
    kind = type("Own", (_Plain,), {"way": way})
    told = {one.grad: one for one in agreements(Subject("Own", kind), [Variant("")], "cpu")}
    assert set(told) == {"none", "zero"}
    return told


def test_the_same_steps_have_the_same_bits():
    for one in _found("").values():
        assert (one.bitwise, one.max_ulp, one.max_abs, one.same_contract, one.state_ulp) == (True, 0, 0.0, True, {})
        assert (one.implementation, one.steps, one.raised) == ("foreach", 6, "")


def test_one_that_leaves_zeros_out_has_another_contract_for_zeros_only():
    found = _found("skips zeros")
    assert (found["none"].same_contract, found["none"].bitwise) == (True, True)
    assert (found["zero"].same_contract, found["zero"].bitwise) == (False, False)
    assert found["zero"].max_abs == 0  # the sign of zero is zero: its count alone is another


def test_one_bit_of_one_value_is_seen():
    found = _found("one bit")
    assert (found["none"].bitwise, found["none"].max_ulp) == (False, 1)
    assert found["none"].same_contract
    assert 0 < found["none"].max_abs < 1e-6


def test_numbers_that_are_no_tensors_are_held_against_each_other():
    found = _found("counts twice")
    assert (found["none"].bitwise, found["none"].max_abs, found["none"].same_contract) == (False, 0.0, True)


def test_an_implementation_that_refuses_is_told_with_its_words():
    found = [
        one for one in agreements(torch_subject("Adam", {}), [Variant("")], "cpu") if one.implementation == "capturable"
    ]
    assert len(found) == 2
    assert all("capturable" in one.raised and not one.bitwise for one in found)


@pytest.mark.parametrize(("variant", "fused"), [({}, True), ({"momentum": 0.9}, False)])
def test_fused_sgd_is_bitwise_without_momentum_only(variant, fused):
    found = [one for one in agreements(torch_subject("SGD", {}), [Variant("", variant)], "cpu")
             if one.implementation == "fused"]  # fmt: skip
    assert all(one.bitwise for one in found) is fused
    assert all(one.same_contract for one in found)
