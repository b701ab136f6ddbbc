"""Names from the training that shall load a file: held against the live optimizer that wrote it."""

from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.conventions.exchangeable import exchangeable
from ckptcheck.conventions.explaining import explain
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from ckptcheck.state.raw import RawTree
from tests.conventions.made import folder, live_state, raw_tree
from tests.conventions.test_naming import Block, Twins, is_right, names_of, split, trained


def alone(optimizer: Any) -> RawTree:
    return raw_tree(optimizer.state_dict())


def sorted_folder(model: nn.Module, optimizer: Any) -> RawTree:
    """As a Trainer leaves them: the model's file keeps no order."""
    state = dict(sorted(model.state_dict().items()))
    files = {"model.safetensors": state, "optimizer.pt": optimizer.state_dict(),
             "trainer_state.json": {"global_step": 1}}  # fmt: skip
    return folder(files)


def decayed(model: nn.Module) -> list[list[str]]:
    """Weights and what is spared, several of one shape in both."""
    return split(model, lambda name, _: not name.endswith("bias") and "bn" not in name)


def halves(model: nn.Module) -> list[list[str]]:
    return [names_of(model)[1::2], names_of(model)[::2]]


def built(model: nn.Module, groups: list[list[str]]) -> Any:
    """An optimizer over these groups that made no step."""
    return torch.optim.AdamW([{"params": [model.get_parameter(name) for name in group]} for group in groups])


@pytest.mark.parametrize("groups", [decayed, halves])
def test_a_file_without_order_gets_the_names_of_the_live_groups(groups: Any) -> None:
    model = Block()
    optimizer = trained(model, groups(model))
    tree = sorted_folder(model, optimizer)
    assert explain(tree).namings[0].source is NameSource.NONE
    live = Block()
    found = explain(tree, live=live_state(live, built(live, groups(live))))
    (naming,) = found.namings
    assert (naming.source, naming.certain) == (NameSource.TARGET, False)
    assert naming.reason == (
        "by their places in the target's param groups, for torch's load_state_dict puts its state there; the shapes of "
        "9 with state agree"
    )
    assert is_right(found, model, optimizer)


def test_wrappers_on_either_side_part_no_names() -> None:
    model = Block()
    optimizer = trained(model, halves(model))
    tree = raw_tree({
        "model": {f"module.{name}": one for name, one in model.state_dict().items()},
        "optimizer": optimizer.state_dict(),
    })  # fmt: skip
    live = nn.DataParallel(Block())
    groups = [[f"module.{name}" for name in group] for group in halves(model)]
    found = explain(tree, live=live_state(live, built(live, groups)))
    assert found.namings[0].source is NameSource.TARGET
    assert is_right(found, model, optimizer)


def test_a_child_of_the_users_own_that_is_called_as_a_wrapper_is_found_under_the_files_name() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = Block()

    model = Outer()
    inner = halves(model.module)
    optimizer = trained(model.module, inner)
    tree = raw_tree({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    live = Outer()
    found = explain(tree, live=live_state(live, built(live.module, inner)))
    assert found.namings[0].source is NameSource.TARGET
    assert {member for group in found.state.optimizers[0].groups for member in group.members} == {
        *found.state.parameters
    }
    without_model = explain(alone(optimizer), live=live_state(live, built(live.module, inner)))
    assert without_model.state.optimizers[0].groups[0].members == tuple(f"module.{name}" for name in inner[0])


def test_where_the_live_groups_are_of_other_lengths_the_models_order_and_a_known_rule_name_them() -> None:
    model = Block()
    groups = split(model, lambda name, _: not name.endswith("bias"))
    optimizer = trained(model, groups)
    live = Block()
    found = explain(sorted_folder(model, optimizer), live=live_state(live, built(live, [names_of(live)])))
    (naming,) = found.namings
    assert naming.source is NameSource.TARGET
    assert naming.reason.startswith("the target's optimizer has groups of 9 parameters, not of 5 and 4, but the ")
    assert "biases last" in naming.reason
    assert is_right(found, model, optimizer)


def test_where_neither_groups_nor_a_rule_fit_they_stay_numbered() -> None:
    model = Block()
    live = Block()
    found = explain(
        sorted_folder(model, trained(model, halves(model))), live=live_state(live, built(live, [names_of(live)]))
    )
    (naming,) = found.namings
    assert naming.source is NameSource.NONE
    assert "the target's optimizer has groups of 9 parameters, not of 4 and 5" in naming.reason
    assert found.state.optimizers[0].groups[0].members == ("#0", "#1", "#2", "#3")


@pytest.mark.parametrize("lengths", [[2, 1], [3], [1, 1, 1]])
def test_as_many_parameters_in_groups_of_other_lengths_are_in_other_places(lengths: list[int]) -> None:
    model = nn.ModuleList([nn.Linear(3, 3, bias=False) for _ in range(3)])
    names = names_of(model)
    optimizer = built(model, [names[:1], names[1:]])
    groups = [names[sum(lengths[:place]) :][:length] for place, length in enumerate(lengths)]
    found = explain(alone(optimizer), live=live_state(model, built(model, groups)))
    assert found.namings[0].source is NameSource.NONE
    assert "not of 1 and 2" in found.namings[0].reason


def test_a_live_parameter_of_another_shape_denies_the_place() -> None:
    model = Block()
    other = halves(model)
    other[0][1], other[0][2] = other[0][2], other[0][1]  # fc.weight and bn.weight
    found = explain(sorted_folder(model, trained(model, halves(model))), live=live_state(model, built(model, other)))
    (naming,) = found.namings
    assert naming.source is NameSource.NONE
    assert "the target's optimizer has bn.weight [6] in the place of #1, whose exp_avg is [6, 4]" in naming.reason


def test_certain_names_are_not_the_targets_business() -> None:
    model = Twins()
    optimizer = torch.optim.SGD(list(model.named_parameters()), momentum=0.9)
    model(torch.ones(3, 3)).sum().backward()
    optimizer.step()
    live = Twins()
    other = torch.optim.SGD([live.right.weight, live.left.weight])
    root = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    found = explain(raw_tree(root), live=live_state(live, other))
    assert found.namings[0].source is NameSource.PARAM_NAMES
    assert found.state.optimizers[0].groups[0].members == ("left.weight", "right.weight")


def test_a_target_that_contradicts_the_models_order_says_how_many_it_names_otherwise() -> None:
    model = Twins()
    optimizer = trained(model, [["right.weight", "left.weight"]])
    root = raw_tree({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert explain(root).state.optimizers[0].groups[0].members == ("left.weight", "right.weight")
    found = explain(root, live=live_state(model, optimizer))
    assert is_right(found, model, optimizer)
    assert found.namings[0].reason.endswith("; model-order would name 2 of them otherwise")


def test_a_model_order_that_the_target_does_not_fit_stays_and_says_so() -> None:
    model = Block()
    optimizer = trained(model, [names_of(model)])
    root = raw_tree({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    found = explain(root, live=live_state(model, built(model, halves(model))))
    assert found.namings[0].source is NameSource.MODEL_ORDER
    assert "the target's optimizer has groups of 4 and 5 parameters, not of 9" in found.namings[0].reason
    assert is_right(found, model, optimizer)


def test_one_of_several_live_optimizers_names_the_only_one_that_was_saved() -> None:
    model = nn.ModuleDict({"actor": Twins(), "critic": Block()})
    optimizer = trained(model["critic"], [names_of(model["critic"])])
    optimizers = [torch.optim.SGD(model["actor"].parameters()), torch.optim.AdamW(model["critic"].parameters())]
    found = explain(alone(optimizer), live=live_state(model, *optimizers))
    assert found.state.optimizers[0].groups[0].members == tuple(f"critic.{name}" for name in names_of(Block()))
    both = nn.ModuleList([Block(), Block()])
    optimizers = [torch.optim.AdamW(one.parameters()) for one in both]
    twice = explain(alone(optimizer), live=live_state(both, *optimizers))
    assert twice.namings[0].source is NameSource.NONE
    assert "no live optimizer alone has its groups" in twice.namings[0].reason


def test_a_tied_parameter_has_the_name_that_the_file_keeps() -> None:
    def tied() -> Block:
        model = Block()
        model.last = nn.Linear(4, 7, bias=False)
        model.last.weight = model.wte.weight
        return model

    model, live = tied(), tied()
    groups = [
        ["bn.weight", "wte.weight"],
        [name for name in names_of(model) if name not in ("bn.weight", "wte.weight")],
    ]
    state = model.state_dict()
    del state["wte.weight"]
    root = raw_tree({"model": state, "optimizer": trained(model, groups).state_dict()})
    found = explain(root, live=live_state(live, built(live, groups)))
    assert found.state.optimizers[0].groups[0].members == ("bn.weight", "last.weight")


def test_a_live_parameter_goes_by_the_first_of_the_names_that_the_file_ties() -> None:
    root = {"model": dict.fromkeys(("embedding.weight", "head.weight"), torch.ones(3, 3))}
    live = nn.ModuleDict({"head": nn.Linear(3, 3, bias=False)})
    optimizer = torch.optim.SGD(live.parameters())
    for model in (root["model"], {}):
        found = explain(
            raw_tree({"model": model, "optimizer": optimizer.state_dict()}), live=live_state(live, optimizer)
        )
        expected = "embedding.weight" if model else "head.weight"
        assert found.state.optimizers[0].groups[0].members == (expected,)


def test_a_live_adapters_parameters_have_the_names_of_its_file() -> None:
    live = nn.Module()
    live.lora_A = nn.ModuleDict({"default": nn.Linear(3, 3, bias=False)})
    live.lora_B = nn.ModuleDict({"default": nn.Linear(3, 3, bias=False)})
    weights = {f"{part}.weight": torch.zeros(3, 3) for part in ("lora_A", "lora_B")}
    optimizer = torch.optim.SGD(live.parameters())
    files = {"adapter_config.json": {}, "adapter_model.safetensors": weights, "optimizer.pt": optimizer.state_dict(),
             "trainer_state.json": {"global_step": 1}}  # fmt: skip
    found = explain(folder(files), live=live_state(live, optimizer))
    assert found.state.optimizers[0].groups[0].members == ("lora_A.weight", "lora_B.weight")


def test_a_tensor_that_the_live_model_does_not_hold_names_nothing() -> None:
    model, live = Twins(), Twins()
    optimizer = trained(model, [names_of(model)])
    stale = torch.optim.AdamW(live.parameters())
    live.right.weight = nn.Parameter(torch.ones(3, 3))
    found = explain(alone(optimizer), live=live_state(live, stale))
    assert found.state.optimizers[0].groups[0].members == ("left.weight", "#1")


def test_an_index_that_is_listed_twice_is_not_named_by_places() -> None:
    model = Twins()
    state = trained(model, [names_of(model)]).state_dict()
    state["param_groups"][0]["params"] = [0, 0]
    live = torch.optim.AdamW(model.parameters())
    assert explain(raw_tree(state), live=live_state(model, live)).namings[0].source is NameSource.NONE


def classes(found: Checkpoint) -> list[list[set[str]]]:
    return [[set(one) for one in exchangeable(optimizer)] for optimizer in found.state.optimizers]


def test_parameters_whose_state_is_of_one_shape_could_be_exchanged() -> None:
    model = Block()
    found = explain(
        raw_tree({"model": model.state_dict(), "optimizer": trained(model, [names_of(model)]).state_dict()})
    )
    assert classes(found) == [[{"ln_1.weight", "ln_1.bias"}, {"fc.bias", "bn.weight", "bn.bias"}]]
    factored = trained(model, [names_of(model)], torch.optim.Adafactor).state_dict()
    assert classes(explain(raw_tree({"model": model.state_dict(), "optimizer": factored}))) == classes(found)


def test_without_state_or_with_one_for_all_nothing_can_be_exchanged() -> None:
    model = Twins()
    for optimizer in (torch.optim.SGD(model.parameters()), torch.optim.LBFGS(model.parameters())):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 3)).square().sum()
        loss.backward()
        optimizer.step(lambda loss=loss: loss)
        root = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        assert classes(explain(raw_tree(root))) == [[]]
