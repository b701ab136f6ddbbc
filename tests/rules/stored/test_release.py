"""What a release must not hold, and how much that weighs."""

import pytest
import torch

from ckptcheck import verbs
from tests.check_cases.changing import put, trained
from tests.check_cases.training import Mlp


def told(path, **options):
    found = [one for one in verbs.check(path, **options).findings if one.code == "CK210"]
    return [(str(one.severity), one.evidence) for one in found]


def test_what_only_a_training_needs_is_told_with_its_bytes(tmp_path):
    state = trained()
    path = put(tmp_path, state)
    ((severity, evidence),) = told(path, purpose="release")
    tensors = [one for kept in state["optimizer"]["state"].values() for one in kept.values()]
    nbytes = sum(one.numel() * one.element_size() for one in tensors)
    assert severity == "error"
    assert evidence["parts"] == [
        {"part": "optimizer state", "bytes": nbytes},
        {"part": "generators", "bytes": state["rng"]["torch"].numel()},
    ]
    assert evidence["bytes"] == nbytes + state["rng"]["torch"].numel()
    assert told(path) == []


def test_what_nobody_called_a_release_is_warned_of_only(tmp_path):
    path = put(tmp_path, {"model": Mlp().state_dict(), "ema": Mlp().state_dict()})
    ((severity, evidence),) = told(path)
    assert severity == "warning"
    assert [one["part"] for one in evidence["parts"]] == ["averaged weights beside the model"]


@pytest.mark.parametrize(("purpose", "weight"), [("auto", "info"), ("release", "warning")])
def test_arguments_of_the_training_weigh_less(tmp_path, purpose, weight):
    path = put(tmp_path, {"model": Mlp().state_dict(), "args": {"lr": 0.1, "token": "hf_x", "data": "/home/me"}})
    assert [severity for severity, _ in told(path, purpose=purpose)] == [weight]


def test_an_average_is_what_is_released_where_the_model_is_not_there(tmp_path):
    average = Mlp().state_dict()
    assert told(put(tmp_path, {"ema": average}), purpose="release") == []
    both = put(tmp_path, {"ema": average, "model": Mlp().state_dict()})
    assert [severity for severity, _ in told(both, purpose="release")] == ["error"]


class Settings:
    """A class of the training script."""


@pytest.mark.parametrize(("value", "purpose", "weight"), [
    (Settings, "auto", "warning"), (Settings, "release", "error"), (torch.nn.Linear, "auto", None),
    (torch.nn.Linear, "release", "warning"),
])  # fmt: skip
def test_a_pickled_class_weighs_more_in_what_others_load(tmp_path, value, purpose, weight):
    one = value() if value is Settings else value(2, 2)
    path = put(tmp_path, {"model": Mlp().state_dict(), "made": one})
    found = [str(one.severity) for one in verbs.check(path, purpose=purpose).findings if one.code == "CK104"]
    assert found == ([weight] if weight else [])
