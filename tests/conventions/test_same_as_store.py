"""What a script's own torch.save holds is explained as the same entries that the tool's store gives."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import optim
from torch.optim import lr_scheduler, swa_utils

from ckptcheck.conventions.explaining import explain
from ckptcheck.state.training_state import Entry, TrainingState
from ckptcheck.store.read import read_state
from ckptcheck.store.save import save
from tests.conventions.made import raw_tree
from tests.store.runs import training


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingState, TrainingState]:
    """The same moment by the store, and as a dict that a script would save."""
    folder = tmp_path_factory.mktemp("same") / "s"
    torch.manual_seed(0)
    random.seed(5)
    random.gauss(0, 1)
    np.random.seed(7)
    np.random.standard_normal()
    run = training(0, lambda parameters: optim.AdamW(parameters, lr=0.25, amsgrad=True))
    run.train(3)
    schedulers = [lr_scheduler.MultiStepLR(run.optimizer, [2, 5]), lr_scheduler.OneCycleLR(run.optimizer, 0.1, 10)]
    ema = swa_utils.AveragedModel(run.model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain = {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "scheduler": [one.state_dict() for one in schedulers],
        "ema": ema.state_dict(),
        "scaler": scaler.state_dict(),
        "rng": {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()},
        "step": 3,
    }
    save(folder, model=run.model, optimizer=run.optimizer, scheduler=schedulers, ema=ema, scaler=scaler, step=3)
    return read_state(folder), explain(raw_tree(plain)).state


def said(entries: dict[str, Entry]) -> dict[str, Any]:
    """Entries without what only the store knows of tensors: their digests and values."""
    return {path: one.spec or (one.digest, one.value, type(one.value)) for path, one in entries.items()}


def content(entries: dict[str, Entry]) -> dict[str, bytes]:
    return {path: bytes(one.ref.fetch()) for path, one in entries.items() if one.ref is not None}


def test_parameters_and_buffers_are_the_same(both: tuple[TrainingState, TrainingState]) -> None:
    left, right = both
    assert list(right.parameters) == list(left.parameters)
    assert list(right.buffers) == list(left.buffers)
    for name, one in left.parameters.items():
        assert bytes(one.entry.ref.fetch()) == bytes(right.parameters[name].entry.ref.fetch())


def test_optimizer_state_and_groups_are_the_same(both: tuple[TrainingState, TrainingState]) -> None:
    (left,), (right,) = (state.optimizers for state in both)
    assert list(right.state) == list(left.state)
    for name, kept in left.state.items():
        assert said(right.state[name]) == said(kept)
        assert content(right.state[name]) == content(kept)
    assert [group.members for group in right.groups] == [group.members for group in left.groups]
    assert [said(group.hyperparameters) for group in right.groups] == [
        said(group.hyperparameters) for group in left.groups
    ]


@pytest.mark.parametrize("section", ["schedule", "scaler", "ema"])
def test_a_section_is_the_same(both: tuple[TrainingState, TrainingState], section: str) -> None:
    left, right = (state.sections[section] for state in both)
    assert said(right) == said(left)
    assert content(right) == content(left)


def test_generators_are_the_same(both: tuple[TrainingState, TrainingState]) -> None:
    left, right = both
    assert sorted(right.rng) == sorted(left.rng) == ["numpy", "python", "torch"]
    assert said(right.rng) == said(left.rng)
    assert content(right.rng) == content(left.rng)


def test_the_step_is_the_same(both: tuple[TrainingState, TrainingState]) -> None:
    assert both[1].step == both[0].step == 3


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "text", b"bytes", 1j, 2**70, float("nan"), -0.0, (1, [2]), {}, []]},
        {"set": {1, 2}, "range": list(range(40)), "deep": {"x": {3: {"y": 1}}}},
        {"array": np.arange(6, dtype=np.float32).reshape(2, 3), "flags": np.array([True, False])},
        {"dtype": torch.bfloat16, "device": torch.device("cuda", 1), "cpu": torch.device("cpu")},
        {"tensor": torch.arange(3), "number": torch.tensor(1.5)},
    ],
)
def test_any_value_in_extra_is_the_same(tmp_path: Path, value: dict[str, Any]) -> None:
    class Holder:
        def state_dict(self) -> dict[str, Any]:
            return value

        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise NotImplementedError

    save(tmp_path / "s", model=torch.nn.Linear(1, 1), extra={"notes": Holder()})
    left = read_state(tmp_path / "s").sections["extra"]
    right = explain(raw_tree({"notes": value, "model": torch.nn.Linear(1, 1).state_dict()})).state.sections["extra"]
    assert said(right) == said(left)
    assert content(right) == content(left)
