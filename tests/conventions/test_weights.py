from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.weights import Weights, is_module, weights
from ckptcheck.state.raw import Foreign
from ckptcheck.state.tensor import TensorSpec
from tests.conventions.made import raw, raw_tensor, raw_tree


class Tied(nn.Module):
    """Input and output embedding are one parameter; a float buffer that no name tells."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.wte.weight
        self.register_buffer("mask", torch.ones(2, 2))
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)


def held(model: Any, **options: Any) -> Weights:
    return weights(raw(model), ordered=True, **options)


def test_a_tied_parameter_stands_once_with_its_alias() -> None:
    found = held(Tied().state_dict())
    assert list(found.parameters) == ["frozen", "mask", "wte.weight", "norm.weight", "norm.bias"]
    assert found.parameters["wte.weight"].aliases == ("head.weight",)
    assert found.name_of("head.weight") == "wte.weight"
    assert found.shapes["wte.weight"] == (5, 3)


def test_views_of_one_storage_at_other_places_are_no_ties() -> None:
    flat = torch.arange(8.0)
    found = held({"a": flat[:4], "b": flat[4:], "c": flat[:4].view(2, 2), "d": flat[:4]})
    assert [one.aliases for one in found.parameters.values()] == [("d",), (), ()]


def test_buffers_are_told_by_name_and_dtype_only_where_that_is_sure() -> None:
    state = {
        "bn.running_mean": torch.zeros(3),
        "bn.num_batches_tracked": torch.tensor(4),
        "rotary.inv_freq": torch.zeros(2),
        "attn.bias": torch.ones(2, 2, dtype=torch.bool),
        "attn.mask": torch.ones(2, 2),
        "running_mean_head.weight": torch.zeros(3),
    }
    found = held(state)
    assert list(found.parameters) == ["attn.mask", "running_mean_head.weight"]
    assert list(found.buffers) == ["bn.running_mean", "bn.num_batches_tracked", "rotary.inv_freq", "attn.bias"]


def test_what_an_optimizer_names_is_a_parameter() -> None:
    state = {"module.running_mean": torch.zeros(3), "module.codes": torch.zeros(3, dtype=torch.int8)}
    found = held(state, optimized=["module.running_mean"])
    assert list(found.parameters) == ["running_mean"]
    assert list(found.buffers) == ["codes"]


def test_a_pickled_module_tells_its_buffers_and_what_is_trained() -> None:
    model = Tied()
    assert is_module(raw(model))
    found = held(model)
    assert set(found.parameters) == {name for name, _ in model.named_parameters()}
    assert set(found.buffers) == {name for name, _ in model.named_buffers()}
    assert {name: one.requires_grad for name, one in found.parameters.items()} == {
        name: one.requires_grad for name, one in model.named_parameters()
    }


@pytest.mark.parametrize("root", [lambda model: model, lambda model: {"epoch": 2, "model": model}])
def test_a_pickled_module_is_found_at_the_root_and_under_a_key(root: Any) -> None:
    state = explain(raw_tree(root(Tied()))).state
    assert "wte.weight" in state.parameters
    assert "mask" in state.buffers


def test_a_parameter_pickled_as_such_is_one_whatever_its_name() -> None:
    found = weights({"running_mean": raw_tensor(nn.Parameter(torch.zeros(2)))}, ordered=True)
    assert list(found.parameters) == ["running_mean"]
    assert found.parameters["running_mean"].requires_grad is True


def test_state_that_is_no_tensor_is_kept_beside_the_tensors() -> None:
    found = held({"w": torch.zeros(2), "quant._extra_state": {"scale": 2.0}, "none": None})
    assert list(found.parameters) == ["w"]
    assert found.rest["quant._extra_state.scale"].value == 2.0
    assert found.rest["none"].value == "None"


def test_several_models_have_their_keys_for_prefixes() -> None:
    roots = {"netG": nn.Linear(2, 3).state_dict(), "netD": nn.Linear(3, 1).state_dict()}
    found = explain(raw_tree(roots))
    assert list(found.state.parameters) == ["netG.weight", "netG.bias", "netD.weight", "netD.bias"]
    assert list(found.models) == ["netG", "netD"]


def test_of_several_models_the_one_called_model_has_no_prefix() -> None:
    roots = {"teacher": nn.Linear(2, 3).state_dict(), "model": nn.Linear(3, 1).state_dict()}
    found = explain(raw_tree(roots))
    assert list(found.state.parameters) == ["weight", "bias"]
    assert list(found.models) == ["teacher"]
    assert set(found.state.sections["extra"]) == {"teacher.weight", "teacher.bias"}


def test_an_averaged_model_is_no_model_to_train() -> None:
    roots = {"model": nn.Linear(3, 1).state_dict(), "ema": nn.Linear(3, 1).state_dict()}
    found = explain(raw_tree(roots))
    assert list(found.state.parameters) == ["weight", "bias"]
    assert set(found.state.sections["ema"]) == {"weight", "bias"}
    assert list(found.models) == ["ema"]
    assert not found.unrecognised


def test_two_buffers_over_the_same_bytes_are_both_kept() -> None:
    table = torch.ones(3, dtype=torch.int64)
    found = held({"a.index": table, "b.index": table, "w": torch.zeros(2)})
    assert (list(found.buffers), list(found.parameters)) == (["a.index", "b.index"], ["w"])


def sparse(*shape: int) -> Foreign:
    """A sparse tensor as a reader gives it: with three values."""
    parts = {"indices": raw(torch.zeros(len(shape), 3, dtype=torch.int64)), "values": raw(torch.ones(3))}
    return Foreign("torch.sparse_coo", state={**parts, "is_coalesced": True}, spec=TensorSpec("float32", shape))


def test_the_parts_of_a_weight_are_parameters_whatever_their_dtype() -> None:
    codes = raw(torch.zeros(4, 4, dtype=torch.int8))
    quantised = Foreign("torch.quantized", state={"values": codes, "scale": 0.1}, spec=TensorSpec("qint8", (4, 4)))
    model = {"module.q": quantised, "module.s": sparse(5, 6), "module.w": raw(torch.ones(2))}
    found = weights(model, ordered=True)
    assert list(found.parameters) == ["q.values", "s.indices", "s.values", "w"]
    assert list(found.buffers) == []
    assert found.shapes == {"q": (4, 4), "s": (5, 6), "w": (2,)}
    assert found.rest["q.scale"].value == 0.1


def test_the_parts_of_a_buffer_are_buffers() -> None:
    assert list(weights({"bn.running_mean": sparse(5)}, ordered=True).buffers) == [
        "bn.running_mean.indices", "bn.running_mean.values",
    ]  # fmt: skip


def test_an_optimizer_over_a_sparse_weight_is_named_by_the_whole() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model[1](model[0].weight).sum().backward()
    optimizer.step()
    tree = raw_tree({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    tree.root["model"]["0.weight"] = sparse(5, 3)
    found = explain(tree)
    assert found.state.optimizers[0].groups[0].members == ("0.weight", "1.weight", "1.bias")


def test_a_quantised_weight_of_plain_bytes_is_a_parameter() -> None:
    found = held({"fc.weight": torch.zeros(8, 1, dtype=torch.uint8), "fc.bias": torch.zeros(2, dtype=torch.bool)})
    assert (list(found.parameters), list(found.buffers)) == (["fc.weight"], ["fc.bias"])
