"""Whether a reload gives an optimizer back: told of what keeps something elsewhere, silent of all that does not."""

import pytest
import torch

from ckptcheck.lab.bench import Bench
from ckptcheck.lab.keeping import keeping
from ckptcheck.lab.subject import Subject
from ckptcheck.lab.variants import VARIANTS
from tests.lab import odd_optimizers

LOST = {
    "Lookahead": (("made", "slow"), "the parameter differs"),
    "LookaheadOfTen": (("made", "slow"), "the parameter differs"),
    "KeyedById": ((), "the parameter"),
    "KeyedByIdElsewhere": ((), "the parameter differs"),
    "CountsBesideReferences": (("seen", "made"), "the parameter differs"),
    "PutsItsRateBack": ((), "the parameter differs"),
    "HoldsOldState": (("momenta",), "differ"),
}
KEPT = {"Plain": (), "KeptLookahead": ("made", "slow"), "CountsForItself": ("calls",), "HoldsReferences": ("seen",),
        "SharpnessAware": (), "ScheduleInside": ()}  # fmt: skip
NOT_JUDGED = {"NotRepeating": "does not repeat", "CannotBeSaved": "pickle"}


def kept(make):
    return keeping(Bench(Subject("it", make), VARIANTS[0]))


@pytest.mark.parametrize("name", LOST)
def test_what_a_reload_does_not_give_back_is_told(name):
    outside, words = LOST[name]
    found = kept(getattr(odd_optimizers, name))
    assert (found.exact, found.outside) == (False, outside)
    assert found.difference.startswith("13 steps after a reload of state_dict()")
    assert words in found.difference


@pytest.mark.parametrize("name", KEPT)
def test_what_it_gives_back_is_exact(name):
    found = kept(getattr(odd_optimizers, name))
    assert (found.exact, found.outside, found.difference) == (True, KEPT[name], "")


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD, torch.optim.NAdam, torch.optim.Adafactor])
def test_those_of_torch_are_given_back(make):
    found = kept(make)
    assert (found.exact, found.outside) == (True, ())


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_where_a_reload_can_tell_nothing_it_says_why(name):
    found = kept(getattr(odd_optimizers, name))
    assert found.exact is None
    assert NOT_JUDGED[name] in found.reason
