"""From indices to names: each answer is held against the live optimizer, by the identity of its tensors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.errors import UsageError
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from ckptcheck.verdict.inspection import described
from tests.conventions.made import folder, raw_tree

NO_RULE = "parameters of one shape stand in several groups; no known grouping rule fits"


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
    "head and backbone": lambda model: split(model, lambda name, _: name.startswith("head")),
    "by shape, some groups empty": lambda model: [[], *split(model, lambda _, one: one.shape[0] == 6), []],
}

RULED: dict[str, Grouping] = {
    "one group a parameter": lambda model: [[name] for name in names_of(model)],
    "biases last": lambda model: split(model, lambda name, _: not name.endswith("bias")),
    "biases, weights, norms": lambda model: [
        [name for name in names_of(model) if name.endswith("bias")],
        [name for name, one in model.named_parameters() if not name.endswith("bias") and one.dim() > 1],
        [name for name, one in model.named_parameters() if not name.endswith("bias") and one.dim() < 2],
    ],
}
"""Groupings that put parameters of one shape into several groups, as a known rule does."""

UNFORCED: dict[str, Grouping] = {
    "every other one": lambda model: [names_of(model)[1::2], names_of(model)[::2]],
    "second half and first half": lambda model: split(model, lambda name, _: name[:2] in ("bn", "he")),
}
"""Groupings that put parameters of one shape into several groups: another assignment fits as well."""


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
def test_a_grouping_that_shapes_force_is_recognised_and_never_called_certain(label: str) -> None:
    model = Block()
    optimizer = trained(model, GROUPINGS[label](model))
    found = explained(model, optimizer)
    (naming,) = found.namings
    assert naming.source is NameSource.MODEL_ORDER
    assert not naming.certain
    assert is_right(found, model, optimizer)


@pytest.mark.parametrize("label", RULED)
def test_a_grouping_that_one_known_rule_alone_makes_is_recognised_and_never_called_certain(label: str) -> None:
    model = Block()
    optimizer = trained(model, RULED[label](model))
    found = explained(model, optimizer)
    (naming,) = found.namings
    assert (naming.source, naming.certain) == (NameSource.GROUPING, False)
    assert "the only known grouping rule that fits: " in naming.reason
    assert is_right(found, model, optimizer)


@pytest.mark.parametrize("label", UNFORCED)
def test_groups_that_share_a_shape_are_not_named(label: str) -> None:
    model = Block()
    groups = UNFORCED[label](model)
    found = explained(model, trained(model, groups))
    (naming,) = found.namings
    assert (naming.source, naming.reason) == (NameSource.NONE, NO_RULE)
    (state,) = found.state.optimizers
    assert state.groups[1].members[0] == f"#{len(groups[0])}"
    assert list(state.state) == [f"#{index}" for index in range(len(names_of(model)))]


def test_a_frozen_parameter_of_a_shape_in_a_group_leaves_the_groups_unnamed() -> None:
    """Any of the three of shape (6) could be the one that is held."""
    model = Block()
    groups = [["fc.weight", "bn.weight"], ["head.weight", "head.bias"]]
    naming = explained(model, trained(model, groups)).namings[0]
    assert naming.source is NameSource.NONE
    assert "fit in more than one way" in naming.reason


@pytest.mark.parametrize("frozen", [("fc.weight",), ("head.weight", "fc.weight", "wte.weight"), ("ln_1.bias",)])
def test_members_without_state_are_the_rest_where_one_group_has_them(frozen: tuple[str, ...]) -> None:
    model = Block()
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    optimizer = trained(model, GROUPINGS["matrices first, as nanoGPT"](model))
    found = explained(model, optimizer)
    assert found.namings[0].source is NameSource.MODEL_ORDER
    assert is_right(found, model, optimizer)


def test_a_member_without_state_does_not_part_groups_that_share_a_shape() -> None:
    model = Block()
    model.fc.weight.requires_grad_(False)
    naming = explained(model, trained(model, UNFORCED["every other one"](model))).namings[0]
    assert (naming.source, naming.reason) == (NameSource.NONE, NO_RULE)


def test_members_without_state_in_two_groups_are_named_by_a_rule_alone() -> None:
    for label, source in (("matrices first, as nanoGPT", NameSource.GROUPING), ("head and backbone", NameSource.NONE)):
        model = Block()
        for name in ("fc.weight", "head.bias") if source is NameSource.NONE else ("fc.weight", "fc.bias"):
            model.get_parameter(name).requires_grad_(False)
        optimizer = trained(model, GROUPINGS[label](model))
        found = explained(model, optimizer)
        assert found.namings[0].source is source
        if source is NameSource.NONE:
            assert "several groups have parameters without state" in found.namings[0].reason
        else:
            assert is_right(found, model, optimizer)


def test_a_member_without_state_that_could_be_one_of_another_groups_shape_is_not_named() -> None:
    model = Block()
    model.get_parameter("bn.bias").requires_grad_(False)
    groups = [["wte.weight", "bn.bias"], [name for name in names_of(model) if name not in ("wte.weight", "bn.bias")]]
    naming = explained(model, trained(model, groups)).namings[0]
    assert naming.source is NameSource.NONE
    assert "more than one assignment" in naming.reason


def test_groups_without_any_state_are_not_named_by_their_sizes() -> None:
    model = Block()
    groups = GROUPINGS["matrices first, as nanoGPT"](model)
    assert explained(model, trained(model, groups, torch.optim.SGD)).namings[0].source is NameSource.NONE


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
    assert found.namings[0].reason == "9 indices fit the model's parameters in order; no state tells their shapes"


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
    assert "do not fit the model's 9 parameters in order" in found.namings[0].reason


def test_more_indices_than_parameters_are_not_named() -> None:
    found = explained(Twins(), trained(Block(), [names_of(Block())]))
    assert found.namings[0].reason == "9 indices do not fit the model's 2 parameters"


def test_an_index_that_is_listed_twice_has_the_name_of_its_first_place() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    state["param_groups"][0]["params"][1] = 0
    found = explain(raw_tree({"model": model.state_dict(), "optimizer": state})).state.optimizers[0]
    assert found.groups[0].members == ("0.weight", "0.weight", "1.weight", "1.bias")
    assert {name: one["momentum_buffer"].spec.shape for name, one in found.state.items()} == {
        "0.weight": (2, 3), "1.weight": (2, 2), "1.bias": (2,), "#1": (2,),
    }  # fmt: skip


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


def changed(names: list[str], *swaps: tuple[int, str]) -> list[str]:
    for place, name in swaps:
        names = [*names[:place], name, *names[place + 1 :]]
    return names


@pytest.mark.parametrize(
    ("swaps", "said"),
    [
        ([(2, "wte.weight")], "'wte.weight' was given for two parameters"),
        ([(3, "fc.weigth")], "'fc.weigth' was given for the parameter of index 3, and the file's model has none"),
        (
            [(0, "fc.weight"), (3, "wte.weight")],
            r"'fc.weight' was given for the parameter of index 0, whose exp_avg is \[7, 4\]; the model's fc.weight is "
            r"\[6, 4\]",
        ),
    ],
)
def test_a_list_of_names_that_contradicts_the_file_is_refused(swaps: list[tuple[int, str]], said: str) -> None:
    model = Block()
    with pytest.raises(UsageError, match=said) as refused:
        explained(model, trained(model, [names_of(model)]), changed(names_of(model), *swaps))
    assert "\n" not in str(refused.value)


def test_names_of_equal_shapes_are_the_users_business() -> None:
    model = Block()
    names = changed(names_of(model), (1, "ln_1.bias"), (2, "ln_1.weight"))
    found = explained(model, trained(model, [names_of(model)]), names)
    assert found.state.optimizers[0].groups[0].members == tuple(names)


def test_names_are_taken_where_the_file_holds_no_model() -> None:
    model = Block()
    state = trained(model, [names_of(model)]).state_dict()
    names = [f"any.{name}" for name in names_of(model)]
    assert explain(raw_tree(state), names).state.optimizers[0].groups[0].members == tuple(names)


def test_names_of_a_further_model_are_taken_for_its_optimizer() -> None:
    model, critic = Block(), nn.Linear(3, 2)
    root = {
        "model": model.state_dict(), "critic": critic.state_dict(),
        "optimizer": trained(model, [names_of(model)]).state_dict(),
        "critic_optimizer": torch.optim.SGD(critic.parameters()).state_dict(),
    }  # fmt: skip
    for own in (["critic.weight", "critic.bias"], ["weight", "bias"]):
        found = explain(raw_tree(root), [*names_of(model), *own])
        assert found.state.optimizers[1].groups[0].members == tuple(own)


def test_names_of_a_live_adapter_are_those_of_its_file() -> None:
    weights = {"base_model.fc.lora_A.weight": torch.zeros(2, 3), "base_model.score.weight": torch.zeros(1, 3)}
    state = torch.optim.SGD([nn.Parameter(one) for one in weights.values()]).state_dict()
    files = {"adapter_config.json": {}, "adapter_model.safetensors": weights, "optimizer.pt": state,
             "trainer_state.json": {"global_step": 1}}  # fmt: skip
    names = ["base_model.fc.lora_A.default.weight", "base_model.score.modules_to_save.default.weight"]
    found = explain(folder(files), names)
    assert found.state.optimizers[0].groups[0].members == tuple(weights)


def test_state_of_another_parameters_shape_denies_a_name_of_any_class() -> None:
    model = nn.Sequential(nn.Linear(5, 3, bias=False), nn.Linear(3, 2, bias=False))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 5)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    state["param_groups"][0]["proj_type"] = "std"
    tree = raw_tree({"model": model.state_dict(), "optimizer": state})
    with pytest.raises(UsageError, match="of index 0, whose exp_avg is"):
        explain(tree, ["1.weight", "0.weight"])


@pytest.mark.parametrize(("hyperparameters", "is_refused"), [({}, True), ({"rank": 2, "proj_type": "std"}, False)])
def test_moments_of_no_parameters_shape_deny_a_name_only_of_a_known_class(
    hyperparameters: dict[str, Any], is_refused: bool
) -> None:
    """GaLore keeps them projected, as AdamW with more hyperparameters."""
    model = nn.Linear(5, 3, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 5)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    state["state"][0] |= {"exp_avg": torch.zeros(2, 5), "exp_avg_sq": torch.zeros(2, 5)}
    state["param_groups"][0] |= hyperparameters
    tree = raw_tree({"model": model.state_dict(), "optimizer": state})
    if is_refused:
        with pytest.raises(UsageError, match=r"whose exp_avg is \[2, 5\]; the model's weight is \[3, 5\]"):
            explain(tree, ["weight"])
    else:
        assert list(explain(tree, ["weight"]).state.optimizers[0].state) == ["weight"]


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
    assert found.notes == ("optimizer holds state of 1 that no group lists (index 9): it belongs to no parameter",)
    described_now = described(found).parts
    assert described_now["optimizers"][0]["with_state"] == described_now["optimizers"][0]["parameters"] == 2
    assert "state of 2 of 2 parameters and of 1 in no group in optimizer 0" in described_now["holds"]


def test_state_in_no_group_is_told_of_the_first_few() -> None:
    model = Twins()
    state = trained(model, [names_of(model)]).state_dict()
    state["state"] |= dict.fromkeys(range(10, 30), state["state"][0])
    (note,) = explain(raw_tree({"model": model.state_dict(), "optimizer": state})).notes
    assert "of 20 that no group lists (index 10, 11, 12, 13, 14, 15, 16, 17, ...)" in note


def test_lbfgs_is_said_to_keep_one_state_for_all() -> None:
    model = Twins()
    optimizer = torch.optim.LBFGS(model.parameters())
    loss = model(torch.ones(3, 3)).square().sum()
    loss.backward()
    optimizer.step(lambda: loss)
    found = explained(model, optimizer)
    assert found.notes == (
        "optimizer is LBFGS, which keeps one state for all its parameters, with the first of them",
    )  # fmt: skip
    assert "one state for 2 parameters in optimizer 0" in described(found).parts["holds"]
    alone = optimizer.state_dict()
    alone["param_groups"][0]["params"] = [0]
    assert explain(raw_tree({"optimizer": alone})).notes == ()


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


def test_an_index_that_the_groups_list_twice_has_one_name() -> None:
    model = Block()
    state = trained(model, [names_of(model)]).state_dict()
    state["param_groups"][0]["params"].append(7)
    found = explain(raw_tree({"model": model.state_dict(), "optimizer": state}))
    assert found.state.optimizers[0].groups[0].members == (*names_of(model), "head.weight")


def test_two_names_that_the_file_ties_stay_two_where_the_optimizer_has_a_parameter_for_each() -> None:
    shared = torch.ones(3, 3)
    first, second = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3, 3))
    optimizer = torch.optim.SGD([("left.weight", first), ("right.weight", second)], momentum=0.9)
    root = {"model": {"left.weight": shared, "right.weight": shared}, "optimizer": optimizer.state_dict()}
    found = explain(raw_tree(root))
    assert found.state.optimizers[0].groups[0].members == ("left.weight", "right.weight")
