"""Two files whose logical content differs are told apart, and two that hold the same in other words are not."""

import argparse
import enum
import types
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff, DiffOptions
from ckptcheck.comparison.checkpoints import diff_checkpoints
from ckptcheck.conventions.explaining import explain
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import tensors_in

TENSOR = torch.arange(4.0)
MODEL = {"a.weight": torch.zeros(2), "b.weight": torch.ones(2)}


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Shade(enum.Enum):
    RED = 1


class Thing:
    def __init__(self, x: Any) -> None:
        self.x = x


class Other(Thing): ...


class Rebuilt:
    """An object whose pickle has arguments and a state."""

    def __init__(self, inner: Any, state: Any = None) -> None:
        self.inner = inner
        self.state = state

    def __reduce__(self) -> Any:
        return Rebuilt, (self.inner,), {"state": self.state}


class Scaled(torch.Tensor): ...


def nested(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = Rebuilt(leaf, 0)
    return leaf


def carrying(tensor: torch.Tensor, **attributes: Any) -> torch.Tensor:
    for name, value in attributes.items():
        setattr(tensor, name, value)
    return tensor


def quantised(scale: float) -> nn.Parameter:
    weight = nn.Parameter(torch.tensor([1, 2], dtype=torch.int8), requires_grad=False)
    return carrying(weight, SCB=torch.tensor([scale]))  # type: ignore[return-value]


def subclass(scale: float) -> torch.Tensor:
    return carrying(torch.tensor([1, 2], dtype=torch.int8).as_subclass(Scaled), scale=torch.tensor([scale]))


def coo(size: int) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0]), (size,), check_invariants=False)


def csr(columns: int) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls these tensors a beta
        return torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, columns), check_invariants=False)


def network(p: float = 0.1, eps: float = 1e-5, last: Callable[[], nn.Module] = nn.Sigmoid) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.Dropout(p), nn.LayerNorm(2, eps=eps), last())


def state(more: Any) -> dict[str, Any]:
    kept = {index: {"step": torch.tensor(1.0), "exp_avg": torch.full((2,), float(index))} for index in range(2)}
    return {
        "model": MODEL,
        "optimizer": {"state": {0: kept[0], 1: {"x": more}}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]},
    }


def partly_named(*names: str) -> dict[str, Any]:
    groups = [{"params": [0, 1], "param_names": list(names)}, {"params": [2], "param_names": []}]
    return {"model": MODEL, "optimizer": {"state": {}, "param_groups": groups}}


def extra(value: Any) -> dict[str, Any]:
    return {"w": TENSOR, "p": value}


def model(value: Any) -> dict[str, Any]:
    return {"model": {"w": value, "b.weight": TENSOR}}


@pytest.fixture
def diff(tmp_path: Path) -> Callable[[Any, Any], CheckpointDiff]:
    def run(left: Any, right: Any) -> CheckpointDiff:
        sides = []
        for name, value in (("left.pt", left), ("right.pt", right)):
            torch.save(value, tmp_path / name)
            sides.append(explain(read_raw(tmp_path / name)))
        return diff_checkpoints(sides[0], sides[1], DiffOptions())

    return run


def told(found: CheckpointDiff) -> list[str]:
    return ["/".join(part for part in (row.section, row.parameter, row.key) if part) for row in found.rows]


DIFFERENT = {
    "an attribute": (extra(carrying(torch.ones(2), s=1)), extra(carrying(torch.ones(2), s=2)), ["other/model.p.s"]),
    "an attribute of one side": (extra(carrying(torch.ones(2), s=1)), extra(torch.ones(2)), ["other/model.p.s"]),
    "a scale of a weight": (model(quantised(1.0)), model(quantised(2.0)), ["model/w.SCB"]),
    "a plain attribute of a weight": (
        model(carrying(nn.Parameter(TENSOR), s=1)), model(carrying(nn.Parameter(TENSOR), s=2)), ["other/model.w.s"],
    ),
    "a scale of a subclass": (model(subclass(1.0)), model(subclass(2.0)), ["model/w.scale"]),
    "a scale in a state": (state(subclass(1.0)), state(subclass(2.0)), ["optimizer/b.weight/x.scale"]),
    "a scale in a list": (extra({"q": [subclass(1.0)]}), extra({"q": [subclass(2.0)]}), ["other/p.q[0].scale"]),
    "members as keys": (
        extra({Colour.RED: 1, Colour.BLUE: 2}), extra({Colour.RED: 7, Colour.BLUE: 2}),
        [f"other/p.{__name__}.Colour(1)"],
    ),
    "members as keys of tensors": (
        extra({Colour.RED: TENSOR, Colour.BLUE: TENSOR}), extra({Colour.RED: TENSOR + 1, Colour.BLUE: TENSOR}),
        [f"other/p.{__name__}.Colour(1)"],
    ),
    "members as keys of a state": (
        state({Colour.RED: TENSOR, Colour.BLUE: TENSOR}), state({Colour.RED: TENSOR, Colour.BLUE: TENSOR + 1}),
        [f"optimizer/b.weight/x.{__name__}.Colour(2)"],
    ),
    "members in tuples as keys": (
        extra({(Colour.RED, 1): 1, (Colour.BLUE, 1): 2}), extra({(Colour.RED, 1): 2, (Colour.BLUE, 1): 2}),
        [f"other/p[('{__name__}.Colour(1)', 1)]"],
    ),
    "objects that are alike as keys": (
        extra({Thing(1): 1, Thing(1): 2}), extra({Thing(1): 3, Thing(1): 2}),
        [f"other/p.{__name__}.Thing({{'x': 1}})"],
    ),
    "members in tuples of a set": (extra({(Colour.RED, 1), 2}), extra({(Colour.BLUE, 1), 2}), ["other/p"]),
    "the size of a sparse tensor": (model(coo(4)), model(coo(5)), ["other/model.w.<class>"]),
    "the size of a compressed tensor": (extra([csr(2)]), extra([csr(9)]), ["other/p[0].<class>"]),
    "the size of a sparse state": (state(coo(4)), state(coo(9)), ["optimizer/b.weight/x.<class>"]),
    "the class of an object": (extra(Thing(1)), extra(Other(1)), ["other/p.<class>"]),
    "the class of an object with a long log": (
        extra(Thing({"w": TENSOR, "log": [{"x": n} for n in range(5000)]})),
        extra(Other({"w": TENSOR, "log": [{"x": n} for n in range(5000)]})), ["other/p.<class>"],
    ),
    "the class of a member": (extra(Colour.RED), extra(Shade.RED), ["other/p.<class>"]),
    "what a deep object holds": (extra(nested(29, 1)), extra(nested(29, 2)), ["other/p" + ".args[0]" * 29]),
    "the bound of a queue": (extra(deque([1], 5)), extra(deque([1], 6)), ["other/p.<maxlen>"]),
    "a list and a dict": (extra([1]), extra({0: 1}), ["other/p[0]", "other/p{0}"]),
    "names that fit no parameters": (
        partly_named("a", "b"), partly_named("b", "a"),
        ["optimizer/param_names[0]", "optimizer/param_names[1]"],
    ),
    "a number in a long list": (extra([1] * 40), extra([1] * 39 + [2]), ["other/p"]),
    "a truth value in a long list": (extra([1] * 40), extra([1] * 39 + [True]), ["other/p"]),
    "a float in a long list of whole ones": (extra([1] * 40), extra([1.0] * 39 + [2.0]), ["other/p"]),
    "the length of a long list": (extra([1] * 40), extra([1] * 41), ["other/p"]),
    "a dropout": ({"model": network()}, {"model": network(p=0.5)}, ["other/module[1].p"]),
    "an epsilon of a bare module": (network(), network(eps=1e-3), ["other/module[2].eps"]),
    "an activation": (network(), network(last=nn.Tanh), ["other/module[3].<class>"]),
    "the mode of a module": (
        network().eval(), network(), [f"other/module[{name}].training" for name in ("", "0", "1", "2", "3")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_is_told_where_it_stands(case: str, diff: Callable[[Any, Any], CheckpointDiff]) -> None:
    left, right, rows = DIFFERENT[case]
    found = diff(left, right)
    assert told(found) == rows
    assert not found.same_content


SAME = {
    "attributes": (model(quantised(1.0)), model(quantised(1.0))),
    "a buffer": (model(nn.Buffer(TENSOR)), model(TENSOR)),
    "members as keys in another order": (
        extra({Colour.RED: 1, Colour.BLUE: 2}), extra({Colour.BLUE: 2, Colour.RED: 1}),
    ),
    "a set of members": (extra({Colour.RED, Colour.BLUE}), extra({Colour.BLUE, Colour.RED})),
    "a namespace of another class": (extra(argparse.Namespace(a=1)), extra(types.SimpleNamespace(a=1))),
    "an object and the dict of its attributes": (extra(Thing(1)), extra({"x": 1})),
    "paths that collide, in another order": (
        extra({"a.b": 1, "a": {"b": 2}}), extra({"a": {"b": 2}, "a.b": 1}),
    ),
    "a queue with a bound and a list": (extra(deque([1], 5)), extra([1])),
    "a long tuple and a list": (extra(tuple(range(40))), extra(list(range(40)))),
    "a short tuple and a list": (extra((1, 2)), extra([1, 2])),
    "long whole numbers as floats": (extra([1, -7, 10**20] * 20), extra([1.0, -7.0, 1e20] * 20)),
    "short whole numbers as floats": (extra([1, 2]), extra([1.0, 2.0])),
    "a module and its weights": ({"model": network()}, {"model": network().state_dict()}),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_what_is_the_same_in_other_words_is_the_same(case: str, diff: Callable[[Any, Any], CheckpointDiff]) -> None:
    left, right = SAME[case]
    found = diff(left, right)
    assert told(found) == []
    assert found.same_content


def test_a_long_tuple_and_a_list_need_no_note_and_other_numbers_do(diff: Callable[[Any, Any], CheckpointDiff]) -> None:
    assert diff(extra((1,) * 40), extra([1] * 40)).notes == ()
    assert len(diff(extra([1] * 40), extra([1.0] * 40)).notes) == 1


@pytest.mark.parametrize("value", [np.float64(1.0), 1.0, 1, np.int64(3)], ids=repr)
def test_a_number_beside_a_modules_tensors_leaves_them_its_model(tmp_path: Path, value: Any) -> None:
    torch.save({"weight": TENSOR, "bias": TENSOR + 1, "p": value, "q": value, "s": value}, tmp_path / "m.pt")
    found = explain(read_raw(tmp_path / "m.pt")).state
    assert {"weight", "bias"} <= set(found.parameters)


@pytest.mark.parametrize("value", [np.float64(1.0), 1.0], ids=repr)
def test_a_tensor_beside_a_number_of_numpys_is_no_more_a_model_than_beside_pythons(tmp_path: Path, value: Any) -> None:
    torch.save({"w": TENSOR, "p": value}, tmp_path / "m.pt")
    state = explain(read_raw(tmp_path / "m.pt")).state
    assert not state.parameters
    assert list(state.sections["extra"]) == ["w", "p"]


def test_a_counter_beside_a_tensor_stays_the_progress(tmp_path: Path) -> None:
    torch.save({"fc.weight": TENSOR, "step": 3}, tmp_path / "m.pt")
    assert explain(read_raw(tmp_path / "m.pt")).state.step == 3


def test_one_tensor_and_its_modules_own_state_are_a_model(tmp_path: Path) -> None:
    torch.save({"w": TENSOR, "_extra_state": 5}, tmp_path / "m.pt")
    assert list(explain(read_raw(tmp_path / "m.pt")).state.parameters) == ["w"]


def test_extra_state_of_a_module_leaves_its_only_weight_the_model(tmp_path: Path) -> None:
    torch.save({"net.0.weight": TENSOR, "_extra_state": {"n": 1}, "net._extra_state": 5}, tmp_path / "m.pt")
    state = explain(read_raw(tmp_path / "m.pt")).state
    assert list(state.parameters) == ["net.0.weight"]
    assert list(state.sections["extra"]) == ["model._extra_state.n", "model.net._extra_state"]


@pytest.mark.parametrize("key", ["sampler", "thing"])
def test_a_tensor_beside_a_number_is_no_model(tmp_path: Path, key: str) -> None:
    torch.save({"model": MODEL, key: {"order": torch.arange(5), "at": 3}}, tmp_path / "m.pt")
    found = explain(read_raw(tmp_path / "m.pt"))
    assert not found.models
    assert set(found.state.parameters) == set(MODEL)


def test_what_a_tensor_carries_is_among_the_tensors_of_its_file(tmp_path: Path) -> None:
    torch.save([quantised(1.0), TENSOR], tmp_path / "m.pt")
    assert [one.spec.shape for one in tensors_in(read_raw(tmp_path / "m.pt").root)] == [(2,), (1,), (4,)]


def test_a_scale_that_a_weight_carries_is_no_parameter(tmp_path: Path) -> None:
    torch.save({"w": quantised(1.0), "b.weight": TENSOR}, tmp_path / "m.pt")
    state = explain(read_raw(tmp_path / "m.pt")).state
    assert (list(state.parameters), list(state.buffers)) == (["w", "b.weight"], ["w.SCB"])


def test_hooks_and_bookkeeping_of_a_module_are_left_out(tmp_path: Path) -> None:
    torch.save(network(), tmp_path / "m.pt")
    checkpoint = explain(read_raw(tmp_path / "m.pt"))
    paths = checkpoint.state.sections["extra"]
    assert {path.partition("]")[2] for path in paths if path.startswith("module[0]")} == {
        ".<class>", ".training", ".in_features", ".out_features",
    }  # fmt: skip
    assert checkpoint.descriptions == ("module",)
