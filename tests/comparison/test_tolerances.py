"""What a tolerance is for: what training computes, unless a role asks for more."""

from collections.abc import Mapping
from dataclasses import fields, replace

import pytest
import torch

from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState
from tests.comparison.held import checkpoint, diff, entry, optimizer

EXACT_ALL_THE_SAME = {
    "rng": checkpoint(rng={"torch": torch.tensor([1, 2], dtype=torch.uint8), "numpy": 1.0}),
    "hyper": checkpoint({}, optimizer([["w"]], {}, [{"lr": 1.0}])),
    "schedule": checkpoint(schedule={"_last_lr[0]": 1.0}),
    "progress": checkpoint(progress={"epoch": 1.0}),
    "data": checkpoint(data={"weights": torch.ones(2)}),
    "integers": checkpoint({"w": torch.ones(2, dtype=torch.int64)}),
    "truth": checkpoint(buffers={"mask": torch.ones(2, dtype=torch.bool)}),
    "counter": checkpoint({}, optimizer([["w"]], {"w": {"step": torch.tensor(1.0)}}, [{}])),
    "count": checkpoint({}, optimizer([["w"]], {"w": {"clipped": 1}}, [{}])),
    "scaler": checkpoint(scaler={"scale": 1.0}),
    "other": checkpoint(extra={"loss": 1.0}),
}


def grown(one):
    """The checkpoint with 1 added to all of its numbers."""

    def more(each):
        if each.ref is None:
            return entry(each.value + 1)
        value = torch.frombuffer(bytearray(each.ref.fetch()), dtype=getattr(torch, each.spec.dtype))
        return entry((value + 1).to(value.dtype).view(each.spec.shape) if value.dtype != torch.bool else ~value)

    def tree(value):
        if isinstance(value, Entry):
            return more(value)
        if isinstance(value, Mapping):
            return {key: tree(each) for key, each in value.items()}
        if isinstance(value, Parameter | Optimizer | Group | TrainingState):
            return replace(value, **{each.name: tree(getattr(value, each.name)) for each in fields(value)})
        return tuple(map(tree, value)) if isinstance(value, tuple) else value

    return replace(one, state=tree(one.state))


@pytest.mark.parametrize("kind", EXACT_ALL_THE_SAME)
def test_a_tolerance_of_no_role_is_for_what_training_computes_in_floating_point(kind):
    left = EXACT_ALL_THE_SAME[kind]
    assert diff(left, left).same_content
    assert not diff(left, grown(left), rtol=10.0, atol=1000.0).same_content


@pytest.mark.parametrize("left", [
    checkpoint({"w": torch.ones(2)}), checkpoint(buffers={"w": torch.ones(2, dtype=torch.float16)}),
    checkpoint({}, optimizer([["w"]], {"w": {"exp_avg": torch.ones(2), "norm": 1.0}}, [{}])),
    checkpoint(ema={"w": torch.ones(2), "decay": 1.0}),
])  # fmt: skip
def test_what_training_computes_is_equal_within_a_tolerance_of_no_role(left):
    assert not diff(left, grown(left)).same_content
    assert diff(left, grown(left), rtol=1.0).same_content


@pytest.mark.parametrize(("kind", "role", "same"), [
    ("hyper", "hyper", True), ("schedule", "scheduler", True), ("data", "data", True), ("counter", "state", True),
    ("count", "state", True), ("integers", "param", True), ("progress", "progress", True), ("truth", "buffer", False),
    ("rng", "rng", False),
])  # fmt: skip
def test_a_role_can_ask_for_more_but_for_generators_and_truth_values(kind, role, same):
    left = EXACT_ALL_THE_SAME[kind]
    assert diff(left, grown(left), tolerances={role: (0.0, 1000.0)}).same_content is same
