"""The names that Lightning's callback BaseFinetuning keeps of each group's parameters."""

from typing import Any

import pytest
import torch

from ckptcheck.conventions.explaining import explain
from ckptcheck.state.checkpoint import NameSource, Naming
from tests.check_cases.training import Mlp, train
from tests.conventions.made import raw_tree


def file(change: Any = lambda groups: None, **callbacks: Any) -> tuple[Naming, tuple[str, ...]]:
    """How the optimizer of a training whose head is in a group of its own is named, and its members."""
    model = Mlp()
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW([{"params": [one for _, one in part]} for part in (named[6:], named[:6])])
    train(model, optimizer)
    state = optimizer.state_dict()
    told = [{"lr": 0.001, "params": [name for name, _ in part]} for part in (named[6:], named[:6])]
    change(told)
    metadata = {"internal_optimizer_metadata": {0: told}}
    checkpoint = explain(
        raw_tree(
            {
                "pytorch-lightning_version": "2.5.0",
                "state_dict": model.state_dict(),
                "optimizer_states": [state],
                "callbacks": {"ModelCheckpoint{}": {"dirpath": ""}, "Thaw": metadata, **callbacks},
            }
        )
    )
    (optimizer_state,) = checkpoint.state.optimizers
    return checkpoint.namings[0], optimizer_state.members


def test_the_callbacks_names_name_the_groups_parameters() -> None:
    naming, members = file()
    assert (naming.source, naming.certain) == (NameSource.PARAM_NAMES, True)
    assert members[:3] == ("head.weight", "head.bias", "layers.0.weight")


def second_group_gone(groups: list[dict[str, Any]]) -> None:
    del groups[1]


def one_name_gone(groups: list[dict[str, Any]]) -> None:
    del groups[1]["params"][0]


def numbers_for_names(groups: list[dict[str, Any]]) -> None:
    groups[0]["params"] = [0, 1]


@pytest.mark.parametrize("change", [second_group_gone, one_name_gone, numbers_for_names])
def test_names_of_other_groups_are_left_alone(change: Any) -> None:
    naming, _ = file(change)
    assert naming.source is not NameSource.PARAM_NAMES


def test_two_callbacks_that_both_keep_names_are_left_alone() -> None:
    naming, _ = file(Second={"internal_optimizer_metadata": {0: []}})
    assert naming.source is not NameSource.PARAM_NAMES
