"""The nine exact transitions, against numbers that were worked out by hand."""

from fractions import Fraction

import pytest
import torch

from ckptcheck.finding import Verdict
from ckptcheck.lab import exact

BY_HAND = (
    "1", "99/100", "1", "(1, 2)", "(41/50, 9/5)", "(1, 0)", "(1, 9/5)", "(329/500, 81/50)", "1 and 99/100",
)  # fmt: skip


def test_fractions_and_float64_steps_come_to_the_numbers_of_the_design(probe):
    result = probe(exact=True)
    assert result.verdict is Verdict.PASS
    by_implementation = {}
    for one in result.parts["exact"]:
        by_implementation.setdefault(one["implementation"], []).append(one)
    assert set(by_implementation) == {"for", "foreach", "fused"}
    for found in by_implementation.values():
        assert tuple(one["expected"] for one in found) == BY_HAND
        assert tuple(one["observed"] for one in found) == BY_HAND
        assert all(one["passed"] and one["ulp"] <= exact.MOST_ULP for one in found)


def test_the_last_case_by_hand():
    # 2 -> 9/5 -> 81/50; 1 - 1/10 * 9/5 = 41/50; 41/50 - 1/10 * 81/50 = 410/500 - 81/500
    assert exact.expected(exact.CASES[7]) == (Fraction(410 - 81, 500), Fraction(81, 50))


@pytest.mark.parametrize(
    ("place", "broken"), [(0, False), (1, True), (2, False), (4, True), (5, False), (6, False), (7, True)]
)
def test_an_optimizer_that_decays_otherwise_is_told(monkeypatch, place, broken):
    real = torch.optim.SGD.step

    def step(self, closure=None):
        """Steps a hundredth of a millionth too far wherever it steps at all."""
        before = [one.detach().clone() for one in self.param_groups[0]["params"]]
        real(self)
        for old, one in zip(before, self.param_groups[0]["params"], strict=True):
            one.data.add_((one.data - old) * 1e-8)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    assert list(exact.transitions("cpu"))[place].passed is not broken


def test_what_rests_must_rest_to_the_bit(monkeypatch):
    real = torch.optim.SGD.step

    def step(self, closure=None):
        real(self)
        for one in self.param_groups[0]["params"]:
            one.data.mul_(1 + 2.0**-52)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    found = list(exact.transitions("cpu"))
    assert [found[place].passed for place in (0, 3, 6)] == [False, False, False]
    assert found[1].passed  # a unit in the last place is rounding where it moves


def test_a_transition_that_fails_fails_the_probe(probe, tmp_path):
    """The user's own module is imported before the steps are made, and here it breaks torch's SGD."""
    path = tmp_path / "breaking.py"
    path.write_text(
        "import torch\nreal = torch.optim.SGD.step\n"
        "def step(self, closure=None):\n"
        "    real(self)\n"
        "    for one in self.param_groups[0]['params']: one.data.mul_(0.5)\n"
        "torch.optim.SGD.step = step\n"
        "class Own(torch.optim.RMSprop): pass\n"
    )
    result = probe(f"{path}:Own", exact=True)
    assert result.verdict is Verdict.FAIL
    assert result.findings == ()
    assert not any(one["passed"] for one in result.parts["exact"])
