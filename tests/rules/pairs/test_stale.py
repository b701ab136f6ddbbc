"""Weights of two steps that are the same, byte for byte: of files that hold nothing else."""

import pytest
import torch

from tests.check_cases.two import written
from tests.rules.pairs.given import said

WEIGHTS = {"one": torch.arange(6.0).reshape(2, 3), "other": torch.arange(4.0), "scale": torch.ones(1)}


@pytest.mark.parametrize(("names", "steps", "told"), [
    (("one", "other"), (3, 6), 2),
    (("one", "other", "scale"), (3, 6), 3),
    (("one",), (3, 6), 0),
    (("one", "scale"), (3, 6), 0),
    (("one", "other"), (6, 6), 0),
    (("one", "other"), (None, None), 0),
])  # fmt: skip
def test_two_parameters_that_rest_from_one_step_to_a_later_one_are_told(tmp_path, names, steps, told):
    sides = [
        {"model": {name: WEIGHTS[name] for name in names}} | ({"step": step} if step is not None else {})
        for step in steps
    ]
    findings, _ = said(written(tmp_path, *sides), "CK106")
    assert [one.evidence["count"] for one in findings] == [told] * bool(told)


def test_one_that_moved_is_enough(tmp_path):
    moved = {**WEIGHTS, "scale": torch.zeros(1)}
    sides = written(tmp_path, {"model": WEIGHTS, "step": 3}, {"model": moved, "step": 6})
    assert said(sides, "CK106")[0] == []
