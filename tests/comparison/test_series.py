"""Moments of two checkpoints of one run, where no counter tells of an update between them."""

import pytest
import torch

from ckptcheck.comparison.series import Stale, stale_moments
from tests.comparison.held import checkpoint, optimizer

MOMENTS = {"exp_avg": torch.arange(1.0, 9.0)}


def side(weight, step, moments=MOMENTS):
    return checkpoint({"w": weight}, optimizer([["w"]], {"w": moments}), step=step)


@pytest.mark.parametrize(("left", "right", "stale"), [
    (torch.ones(8), torch.zeros(8), Stale(1, ("w",))), (torch.ones(8), torch.ones(8), None),
    (torch.ones(8), torch.zeros(4), None), (torch.ones(8), 1.0, None), (1.0, torch.ones(8), None), (1.0, 2.0, None),
])  # fmt: skip
def test_a_weight_that_moved_tells_of_an_update_and_one_that_cannot_be_read_does_not(left, right, stale):
    assert stale_moments(side(left, 1), side(right, 2)) == stale
    assert stale_moments(side(left, 2), side(right, 2)) is None, "no step was made between"


@pytest.mark.parametrize(("moments", "stale"), [
    ({"exp_avg": torch.arange(2.0, 10.0)}, Stale(1, ())), ({"exp_avg": torch.ones(4)}, None), ({}, None),
])  # fmt: skip
def test_moments_that_moved_or_have_another_form_are_not_stale(moments, stale):
    assert stale_moments(side(torch.ones(8), 1), side(torch.zeros(8), 2, moments)) == stale
