"""A state that does not fit the live objects is refused by name, before any of them is touched."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler

from ckptcheck.errors import StoreError
from ckptcheck.store.load import load
from ckptcheck.store.save import save
from tests.store.runs import Fields, everything


class Net(nn.Module):
    """Three layers of one shape, so that only names tell them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)


def fields(change: Callable[[Net], Any] = lambda model: None, **more: Any) -> Fields:
    torch.manual_seed(3)
    model = Net()
    change(model)
    return {"model": model, "optimizer": optim.Adam(model.parameters()), **more}


def grouped(*groups: str, kind: Any = optim.Adam) -> Fields:
    model = Net()
    parts = [[one for name in group for one in getattr(model, name).parameters()] for group in groups]
    return {"model": model, "optimizer": kind([{"params": part} for part in parts])}


def tie(model: Net) -> None:
    model.b.weight = model.a.weight


def scheduled(kind: Callable[[Any], Any]) -> Fields:
    made = fields()
    return {**made, "scheduler": kind(made["optimizer"])}


class Data:
    def state_dict(self) -> dict[str, int]:
        return {"at": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise AssertionError("must not be called")


def step_lr(optimizer: Any) -> Any:
    return lr_scheduler.StepLR(optimizer, 2)


def lbfgs(turned: bool) -> Fields:
    model = Net()
    parameters = list(model.a.parameters())
    return {"model": model, "optimizer": optim.LBFGS(parameters[::-1] if turned else parameters)}


MISFITS: dict[str, tuple[Fields, Fields, list[str]]] = {
    "a layer is missing": (fields(), fields(lambda m: delattr(m, "c")), ["2 parameters saved", "'c.bias'"]),
    "a layer is new": (
        fields(),
        fields(lambda m: setattr(m, "d", nn.Linear(2, 2))),
        ["2 parameters of the live model", "'d.bias'"],
    ),
    "a shape is another": (
        fields(),
        fields(lambda m: setattr(m, "c", nn.Linear(3, 4))),
        ["'c.weight' was saved as float32[3, 3], the live one is float32[4, 3]"],
    ),
    "a dtype is another": (fields(), fields(lambda m: m.c.half()), ["'c.weight'", "float16"]),
    "a buffer is missing": (fields(), fields(lambda m: delattr(m, "norm")), ["3 buffers saved", "'norm.running_mean'"]),
    "a tie is broken": (fields(tie), fields(), ["one tied parameter when saved", "'a.weight', 'b.weight'"]),
    "a tie is new": (fields(), fields(tie), ["one tied parameter in the live model", "'a.weight', 'b.weight'"]),
    "there is no optimizer": (fields(), {"model": Net()}, ["1 optimizers were saved", "has 0"]),
    "the optimizer is of another class": (
        fields(),
        {"model": (net := Net()), "optimizer": optim.SGD(net.parameters())},
        ["optimizer 0: saved by Adam, the live one is SGD"],
    ),
    "groups have other members": (grouped("ab", "c"), grouped("a", "bc"), ["'a.bias' was grouped with other", "'b."]),
    "a parameter is in no group any more": (grouped("ab", "c"), grouped("ab"), ["'c.bias'", "is in none now"]),
    "a parameter is in a group now": (grouped("a"), grouped("ab"), ["'b.bias'", "was in none when saved"]),
    "LBFGS has its parameters in another order": (lbfgs(False), lbfgs(True), ["LBFGS", "the live order is another"]),
    "there is no scheduler": (scheduled(step_lr), fields(), ["schedule 0 was saved and the live run has none"]),
    "a scheduler is new": (fields(), scheduled(step_lr), ["the live run has schedule 0 and none was saved"]),
    "the scheduler is of another class": (
        scheduled(step_lr),
        scheduled(lambda one: lr_scheduler.ExponentialLR(one, 0.9)),
        ["schedule 0 was a StepLR, the live one is a ExponentialLR"],
    ),
    "data is missing": (fields(data=Data()), fields(), ["data 0 was saved"]),
    "extra has another name": (
        fields(extra={"x": Data()}),
        fields(extra={"y": Data()}),
        ["extra 'x' was saved", "the live run has extra 'y'"],
    ),
}


@pytest.mark.parametrize(("saved", "live", "told"), MISFITS.values(), ids=MISFITS)
def test_a_misfit_is_told_by_name_and_touches_nothing(
    saved: Fields, live: Fields, told: list[str], tmp_path: Path
) -> None:
    save(tmp_path / "s", **saved)
    before = everything(live)
    with pytest.raises(StoreError) as caught:
        load(tmp_path / "s", **live)
    message = str(caught.value)
    assert all(part in message for part in told), message
    assert "\n" not in message
    assert "Build model, optimizers and the rest" in message
    assert everything(live) == before


def test_many_differences_are_told_in_one_short_line(tmp_path: Path) -> None:
    save(tmp_path / "s", model=nn.ModuleList([nn.Linear(2, 2) for _ in range(500)]))
    with pytest.raises(StoreError, match="and 995 more") as caught:
        load(tmp_path / "s", model=nn.ModuleList([nn.Linear(3, 3)]))
    assert len(str(caught.value)) < 700


def test_a_lazy_layer_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run one forward pass"):
        save(tmp_path / "s", model=nn.LazyLinear(2))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"model": 3}, "not a torch.nn.Module"),
        ({"model": Net(), "data": object()}, "without state_dict and load_state_dict"),
        ({"model": Net(), "optimizer": [None]}, "optimizer 0 is a NoneType"),
    ],
)
def test_objects_that_cannot_be_saved_are_refused(wrong: Fields, told: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=told):
        save(tmp_path / "s", **wrong)
    assert not (tmp_path / "s").exists()
