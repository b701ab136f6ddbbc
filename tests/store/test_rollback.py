"""When a load fails half-way, everything live is as it was before."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import optim
from torch.optim import lr_scheduler, swa_utils

from ckptcheck.errors import StoreError
from ckptcheck.store.load import load
from ckptcheck.store.save import save
from tests.store.runs import Fields, everything, training


class Trap:
    """State that loads, unless it is armed: then it changes half of itself and raises."""

    def __init__(self, trouble: BaseException | None = None) -> None:
        self.count, self.items, self.trouble = 0, [1, 2], trouble
        self.ready = True  # no part of the state_dict

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "items": list(self.items)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.rand(1)
        self.ready = False
        self.count = state["count"]
        if self.trouble:
            raise self.trouble
        self.items = state["items"]


def fields(seed: int, trap: Trap) -> Fields:
    run = training(seed, optim.Adam)
    run.train(1 + seed)
    run.model.last.requires_grad_(seed == 0)
    run.model.norm.train(seed == 0)
    return {
        **run.fields,
        "scheduler": [
            lr_scheduler.StepLR(run.optimizer, 2),
            lr_scheduler.SequentialLR(run.optimizer, [lr_scheduler.StepLR(run.optimizer, 1 + seed)], []),
        ],
        "scaler": torch.amp.GradScaler("cpu", init_scale=2.0**seed),
        "ema": swa_utils.AveragedModel(run.model),
        "data": Trap(),
        "extra": {"trap": trap},
    }


def around(live: Fields) -> Any:
    return everything(live), live["extra"]["trap"].ready, random.getstate(), np.random.get_state()[1].tolist()


def identities(live: Fields) -> list[int]:
    optimizer = live["optimizer"]
    tensors = [one for state in optimizer.state.values() for one in state.values()]
    return [id(one) for one in (*optimizer.param_groups, *tensors, *(one.grad for one in live["model"].parameters()))]


@pytest.mark.parametrize("trouble", [RuntimeError("no\nthanks"), KeyError("position"), StoreError("own")])
def test_a_load_state_dict_that_raises_leaves_all_as_it_was(trouble: Exception, tmp_path: Path) -> None:
    save(tmp_path / "s", **fields(0, Trap()))
    live = fields(1, Trap(trouble))
    before, ids = around(live), identities(live)
    with pytest.raises(StoreError) as caught:
        load(tmp_path / "s", **live)
    assert around(live) == before
    assert identities(live) == ids
    if not isinstance(trouble, StoreError):
        assert "\n" not in str(caught.value)
        assert type(trouble).__name__ in str(caught.value)
        assert caught.value.__cause__ is trouble


def test_an_interrupt_during_the_load_leaves_all_as_it_was(tmp_path: Path) -> None:
    save(tmp_path / "s", **fields(0, Trap()))
    live = fields(1, Trap(KeyboardInterrupt()))
    before = around(live)
    with pytest.raises(KeyboardInterrupt):
        load(tmp_path / "s", **live)
    assert around(live) == before


def test_training_goes_on_after_a_failed_load_as_if_it_had_not_been_tried(tmp_path: Path) -> None:
    save(tmp_path / "s", **fields(0, Trap()))
    trapped = fields(0, Trap(RuntimeError()))
    tried, other = training(5, optim.Adam), training(5, optim.Adam)
    torch.manual_seed(1)
    other.train(4)
    wanted = everything(other.fields)
    torch.manual_seed(1)
    tried.train(2)
    with pytest.raises(StoreError):
        load(tmp_path / "s", **{**trapped, **tried.fields})
    tried.train(2)
    assert everything(tried.fields) == wanted


@pytest.mark.parametrize("place", ["_load_model", "_load_gradients", "_load_modes", "surroundings.restore_generators"])
def test_trouble_at_any_stage_of_the_load_leaves_all_as_it_was(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ckptcheck.store.load as module

    save(tmp_path / "s", **fields(0, Trap()))
    live = fields(1, Trap())
    before = around(live)
    owner = module if "." not in place else getattr(module, place.split(".", maxsplit=1)[0])
    name = place.rsplit(".", maxsplit=1)[-1]
    original, calls = getattr(owner, name), []

    def breaks_once(*args: Any) -> None:
        original(*args)
        calls.append(name)
        if len(calls) == 1:
            raise MemoryError("none left")

    monkeypatch.setattr(owner, name, breaks_once)
    with pytest.raises(StoreError, match="MemoryError: none left"):
        load(tmp_path / "s", **live)
    assert around(live) == before
