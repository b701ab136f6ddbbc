"""A store of every format version is kept, and still loads.

`kept/v1` was written by `python -m tests.store.test_kept FOLDER` at version 1 and is not written again.
"""

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn, optim
from torch.optim import lr_scheduler

from ckptcheck.store.load import load
from ckptcheck.store.read import read_state
from ckptcheck.store.save import save

KEPT = Path(__file__).parent / "kept"
VALUE = {
    "tuple": (1, b"\x00\xff", {3: -0.0}),
    "big": 2**100,
    "array": np.arange(3),
    "tensor": torch.tensor([1.5, -2.0]),
}


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def fields(filled: bool) -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = optim.Adam(model.parameters(), lr=0.5 if filled else 0.1)
    schedule = lr_scheduler.MultiStepLR(optimizer, [2, 4])
    if filled:
        for place, parameter in enumerate(model.parameters()):
            with torch.no_grad():
                parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + place)
            optimizer.state[parameter].update(
                step=torch.tensor(3.0),
                exp_avg=torch.full_like(parameter, place),
                exp_avg_sq=torch.full_like(parameter, place + 0.5),
            )
        model[0].weight.grad = torch.ones(2, 2)
        model[0].bias.grad = torch.zeros(2)
        model[1].eval()
        schedule.last_epoch = 3
    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": schedule,
        "extra": {"held": Holder(VALUE if filled else None)},
    }


def write(folder: Path) -> None:
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    save(folder, **fields(filled=True), step=3)


def test_version_1_loads_as_it_was_saved() -> None:
    there = fields(filled=False)
    assert load(KEPT / "v1", **there) == 3
    model, optimizer = there["model"], there["optimizer"]
    for place, parameter in enumerate(model.parameters()):
        assert parameter.flatten().tolist() == [number + place for number in range(parameter.numel())]
        state = optimizer.state[parameter]
        assert (state["step"].item(), state["exp_avg"].unique().item()) == (3.0, place)
        assert state["exp_avg_sq"].unique().item() == place + 0.5
    assert model[0].weight.grad.tolist() == [[1, 1], [1, 1]]
    assert model[0].bias.grad.tolist() == [0, 0]
    assert model[1].weight.grad is None
    assert [model.training, model[0].training, model[1].training] == [True, True, False]
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert there["scheduler"].last_epoch == 3
    assert dict(there["scheduler"].milestones) == {2: 1, 4: 1}
    value = there["extra"]["held"].value
    assert value["tuple"][:2] == (1, b"\x00\xff")
    assert str(value["tuple"][2]) == "{3: -0.0}"
    assert value["big"] == 2**100
    assert value["array"].tolist() == [0, 1, 2]
    assert value["tensor"].tolist() == [1.5, -2.0]
    assert torch.initial_seed() == 7
    assert random.getstate() == random.Random(7).getstate()
    assert np.random.get_state()[1].tolist() == np.random.RandomState(7).get_state()[1].tolist()


def test_version_1_is_read_without_loading() -> None:
    state = read_state(KEPT / "v1")
    assert (state.step, len(state.parameters), len(state.optimizers[0].state)) == (3, 4, 4)
    assert state.parameters["0.bias"].presence == "zero"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
