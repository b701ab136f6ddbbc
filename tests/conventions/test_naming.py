"""From indices to names: each answer is held against the live optimizer, by the identity of its tensors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.errors import UsageError
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from tests.conventions.made import folder, raw_tree


class Block(nn.Module):
    """Names as in a small transformer, every shape of its own but the norms'."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.wte = nn.Embedding(7, width)
        self.ln_1 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 6)
        self.bn = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.bn(self.fc(self.ln_1(self.wte(inputs)))))


Grouping = Callable[[nn.Module], list[list[str]]]


def names_of(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def split(model: nn.Module, first: Callable[[str, torch.Tensor], bool]) -> list[list[str]]:
    named = dict(model.named_parameters())
    return [
        [name for name, one in named.items() if first(name, one)],
        [name for name, one in named.items() if not first(name, one)],
    ]


GROUPINGS: dict[str, Grouping] = {
    "all in one": lambda model: [names_of(model)],
    "matrices first, as nanoGPT": lambda model: split(model, lambda _, one: one.dim() >= 2),
    "vectors first": lambda model: split(model, lambda _, one: one.dim() < 2),
    "backbone and head": lambda model: split(model, lambda name, _: not name.startswith("head")),
    "one group a parameter": lambda model: [[name] for name in names_of(model)],
    "biases last": lambda model: split(model, lambda name, _: not name.endswith("bias")),
    "biases, weights, norms": lambda model: [
        [name for name in names_of(model) if name.endswith("bias")],
        [name for name, one in model.named_parameters() if not name.endswith("bias") and one.dim() > 1],
        [name for name, one in model.named_parameters() if not name.endswith("bias") and one.dim() < 2],
    ],
}


def trained(model: nn.Module, groups: list[list[str]], kind: Any = torch.optim.AdamW, **options: Any) -> Any:
    named = dict(model.named_parameters())
    optimizer = kind([{"params": [named[name] for name in group]} for group in groups], lr=0.1, **options)
    model(torch.arange(5)).square().sum().backward()
    optimizer.step()
    return optimizer


def explained(model: nn.Module, optimizer: Any, names: list[str] | None = None, **more: Any) -> Checkpoint:
    root = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **more}
    return explain(raw_tree(root), names)


def is_right(found: Checkpoint, model: nn.Module, optimizer: Any) -> bool:
    """Whether every member is the very tensor that the live group holds, and its state the live state."""
    live = {id(one): name for name, one in model.named_parameters()}
    expected = [[live[id(one)] for one in group["params"]] for group in optimizer.param_groups]
    (state,) = found.state.optimizers
    if [list(group.members) for group in state.groups] != expected:
        return False
    for one, kept in optimizer.state.items():
        for key, value in kept.items():
            entry = state.state[live[id(one)]][key]
            assert entry.ref is not None
            if bytes(entry.ref.fetch()) != value.numpy().tobytes():
                return False
    return len(state.state) == len(optimizer.state)


@pytest.mark.parametrize("label", GROUPINGS)
def test_a_known_grouping_is_recognised_and_never_called_certain(label: str) -> None:
    model = Block()
    optimizer = trained(model, GROUPINGS[label](model))
    found = explained(model, optimizer)
    (naming,) = found.namings
    assert naming.source is NameSource.MODEL_ORDER
    assert not naming.certain
    assert is_right(found, model, optimizer)


def test_a_grouping_that_nobody_knows_is_not_named() -> None:
    model = Block()
    names = names_of(model)
    groups = [names[1::2], names[::2]]
    found = explained(model, trained(model, groups))
    (naming,) = found.namings
    assert naming.source is NameSource.NONE
    assert "no known grouping" in naming.reason
    (state,) = found.state.optimizers
    assert state.groups[1].members[0] == f"#{len(groups[0])}"
    assert list(state.state) == [f"#{index}" for index in range(len(names))]


class Twins(nn.Module):
    """Two layers of the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 3, bias=False)
        self.right = nn.Linear(3, 3, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.right(self.left(inputs[:3].float()))


def test_one_of_two_equal_shapes_is_ambiguous() -> None:
    model = Twins()
    found = explained(model, trained(model, [["right.weight"]]))
    (naming,) = found.namings
    assert (naming.source, naming.certain) == (NameSource.NONE, False)
    assert "more than one assignment" in naming.reason


def test_groups_of_equal_shapes_are_taken_in_the_models_order() -> None:
    model = Twins()
    optimizer = trained(model, [["left.weight", "right.weight"]])
    assert is_right(explained(model, optimizer), model, optimizer)


def test_two_groupings_that_both_fit_are_ambiguous() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(3))
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs[:3] * self.scale + self.bias

    model = Two()
    found = explained(model, trained(model, [["bias"], ["scale"]]))
    assert found.namings[0].source is NameSource.NONE


def test_frozen_parameters_that_the_optimizer_holds_have_an_index_and_no_state() -> None:
    model = Block()
    model.fc.weight.requires_grad_(False)
    optimizer = trained(model, [names_of(model)])
    found = explained(model, optimizer)
    assert is_right(found, model, optimizer)
    assert "fc.weight" not in found.state.optimizers[0].state


def test_frozen_parameters_that_the_optimizer_does_not_hold_are_passed_over_where_shapes_tell() -> None:
    model = Block()
    optimizer = trained(model, [[name for name in names_of(model) if not name.startswith("fc")]])
    found = explained(model, optimizer)
    assert found.namings[0].source is NameSource.NONE  # fc.bias, bn.weight and bn.bias have one shape
    model.bn = nn.BatchNorm1d(6, affine=False)
    optimizer = trained(model, [[name for name in names_of(model) if not name.startswith("fc")]])
    found = explained(model, optimizer)
    assert is_right(found, model, optimizer)
    assert found.namings[0].source is NameSource.MODEL_ORDER


def test_indices_that_are_places_in_the_model_are_named_by_them() -> None:
    model = Block()
    names = names_of(model)
    optimizer = trained(model, [names])
    state = optimizer.state_dict()
    kept = [5, 0, 3, 8]
    state = {
        "state": {place: state["state"][place] for place in kept},
        "param_groups": [{**state["param_groups"][0], "params": kept}],
    }
    found = explain(raw_tree({"model": model.state_dict(), "optimizer": state}))
    assert list(found.state.optimizers[0].groups[0].members) == [names[place] for place in kept]
    assert found.namings[0].source is NameSource.MODEL_ORDER


def test_an_optimizer_without_state_is_named_by_the_count_alone_and_says_so() -> None:
    model = Block()
    optimizer = trained(model, [names_of(model)], torch.optim.SGD)
    found = explained(model, optimizer)
    assert is_right(found, model, optimizer)
    assert "no state tells their shapes" in found.namings[0].reason


def test_factored_state_speaks_for_the_shape_of_its_parameter() -> None:
    model = Block()
    optimizer = trained(model, [names_of(model)], torch.optim.Adafactor)
    assert is_right(explained(model, optimizer), model, optimizer)
    broken = optimizer.state_dict()
    broken["state"][0], broken["state"][3] = broken["state"][3], broken["state"][0]
    found = explain(raw_tree({"model": model.state_dict(), "optimizer": broken}))
    assert found.namings[0].source is NameSource.NONE


def test_state_of_another_model_fits_nothing() -> None:
    found = explained(Block(5), trained(Block(4), [names_of(Block())]))
    assert found.namings[0].source is NameSource.NONE
    assert "fit the model's 9 parameters in no known grouping" in found.namings[0].reason


def test_more_indices_than_parameters_are_not_named() -> None:
    found = explained(Twins(), trained(Block(), [names_of(Block())]))
    assert found.namings[0].reason == "9 indices do not fit the model's 2 parameters"


def test_param_names_win_over_everything_and_are_stripped() -> None:
    model = Block()
    wrapped = [(f"module.{name}", one) for name, one in reversed(list(model.named_parameters()))]
    optimizer = torch.optim.AdamW(wrapped, lr=0.1)
    model(torch.arange(5)).square().sum().backward()
    optimizer.step()
    state = {f"module.{name}": one for name, one in model.state_dict().items()}
    found = explain(raw_tree({"model": state, "optimizer": optimizer.state_dict()}), names_of(model))
    assert (found.namings[0].source, found.namings[0].certain) == (NameSource.PARAM_NAMES, True)
    assert is_right(found, model, optimizer)
    assert found.stripped == ("module.",)
    assert "param_names" not in found.state.optimizers[0].groups[0].hyperparameters


def test_state_keyed_by_name_needs_no_inference() -> None:
    model = Block()
    optimizer = trained(model, [names_of(model)])
    state, names = optimizer.state_dict(), names_of(model)
    (group,) = state["param_groups"]
    keyed = {
        "state": {names[index]: kept for index, kept in state["state"].items()},
        "param_groups": [{**group, "params": [names[index] for index in group["params"]]}],
    }
    found = explain(raw_tree({"model": model.state_dict(), "optimizer": keyed}))
    assert (found.namings[0].source, found.namings[0].certain) == (NameSource.KEYS, True)
    assert is_right(found, model, optimizer)


def test_a_list_of_names_by_the_user_is_taken() -> None:
    model = Block()
    names = names_of(model)
    optimizer = trained(model, [names[1::2], names[::2]])
    found = explained(model, optimizer, [*names[1::2], *names[::2]])
    assert (found.namings[0].source, found.namings[0].certain) == (NameSource.USER, True)
    assert is_right(found, model, optimizer)


def test_a_list_of_names_that_is_too_short_is_refused() -> None:
    model = Block()
    with pytest.raises(UsageError, match="8 parameter names were given and the optimizers hold 9 parameters"):
        explained(model, trained(model, [names_of(model)]), names_of(model)[:8])


def test_two_optimizers_are_each_numbered_from_zero() -> None:
    model = Block()
    names = names_of(model)
    first, second = trained(model, [names[:4]]), trained(model, [names[4:]])
    root = {"model": model.state_dict(), "optimizers": [first.state_dict(), second.state_dict()]}
    found = explain(raw_tree(root), names)
    assert [one.groups[0].members for one in found.state.optimizers] == [tuple(names[:4]), tuple(names[4:])]


def test_state_of_an_index_in_no_group_is_kept_under_its_number() -> None:
    model = Twins()
    state = trained(model, [names_of(model)]).state_dict()
    state["state"][9] = state["state"][0]
    found = explain(raw_tree({"model": model.state_dict(), "optimizer": state}))
    assert list(found.state.optimizers[0].state) == ["left.weight", "right.weight", "#9"]


def test_a_tied_parameter_has_one_index() -> None:
    model = Block()
    model.tied = nn.Linear(4, 7, bias=False)
    model.tied.weight = model.wte.weight
    optimizer = trained(model, [names_of(model)])
    assert is_right(explained(model, optimizer), model, optimizer)


def test_a_safetensors_model_keeps_no_order_so_equal_shapes_are_ambiguous() -> None:
    model = Block()
    optimizer = trained(model, [names_of(model)])
    files = {"model.safetensors": dict(sorted(model.state_dict().items())), "optimizer.pt": optimizer.state_dict()}
    found = explain(folder(files))
    assert found.namings[0].source is NameSource.NONE
    assert "does not keep the parameters' order" in found.namings[0].reason


def test_a_safetensors_model_of_unlike_shapes_is_named_by_shape_alone() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2))
    optimizer = trained(model, [names_of(model)])
    files = {"model.safetensors": dict(sorted(model.state_dict().items())), "optimizer.pt": optimizer.state_dict()}
    found = explain(folder(files))
    assert is_right(found, model, optimizer)
    assert not found.namings[0].certain
    assert "shape" in found.namings[0].reason


def test_an_optimizer_alone_is_numbered() -> None:
    model = Twins()
    found = explain(raw_tree(trained(model, [names_of(model)]).state_dict()))
    assert found.namings[0].reason == "no model lies beside the optimizer, so its indices cannot be named"
    assert found.state.optimizers[0].groups[0].members == ("#0", "#1")


def test_shape_alone_does_not_choose_between_two_parameters() -> None:
    model = Twins()
    files = {
        "model.safetensors": model.state_dict(),
        "optimizer.pt": trained(model, [["right.weight"]]).state_dict(),
    }
    assert explain(folder(files)).namings[0].source is NameSource.NONE


def test_shards_whose_index_is_sorted_keep_no_order() -> None:
    model = Block()
    root = {"model": model.state_dict(), "optimizer": trained(model, [names_of(model)]).state_dict()}
    assert explain(raw_tree(root)).namings[0].source is NameSource.MODEL_ORDER
    assert explain(raw_tree(root, "torch-sharded")).namings[0].source is NameSource.NONE


def test_names_of_a_wrapped_model_fit_the_bare_one() -> None:
    model = Block()
    optimizer = torch.optim.AdamW([(f"module.{name}", one) for name, one in model.named_parameters()], lr=0.1)
    model(torch.arange(5)).square().sum().backward()
    optimizer.step()
    found = explained(model, optimizer)
    assert is_right(found, model, optimizer)
    assert found.stripped == ("module.",)
