"""A stored training state is described without torch, and its bytes are fetched on demand."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
from safetensors.torch import load_file
from torch import nn, optim
from torch.optim import lr_scheduler, swa_utils

from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.tree import canonical, flatten
from ckptcheck.store.read import is_store, read_state
from ckptcheck.store.save import save
from tests.store.runs import raw, training


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("read") / "s"
    run = training(0, lambda params: optim.Adam(params, lr=0.25))
    run.train(3)
    run.model.norm.eval()
    run.model.first.bias.requires_grad_(False)
    run.model.first.bias.grad = None
    run.model.last.bias.grad.zero_()
    run.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    fields = {
        **run.fields,
        "scheduler": [lr_scheduler.MultiStepLR(run.optimizer, [2]), lr_scheduler.StepLR(run.optimizer, 5)],
        "ema": swa_utils.AveragedModel(run.model),
    }
    save(folder, **fields, step=3)
    return folder, fields


def test_parameters_gradients_and_buffers_are_described_and_fetched(saved: tuple[Path, dict[str, Any]]) -> None:
    folder, fields = saved
    state = read_state(folder)
    assert is_store(folder)
    assert state.step == 3
    live = dict(fields["model"].named_parameters())
    assert list(state.parameters) == list(live)
    for name, parameter in state.parameters.items():
        _, shape, _, content = raw(live[name])
        assert parameter.entry.spec == TensorSpec("float32", shape)
        assert parameter.entry.ref is not None
        assert bytes(parameter.entry.ref.fetch()) == content
        assert parameter.entry.digest is not None
        assert parameter.entry.digest.value == xxhash.xxh3_128_digest(content)
    kinds = {name: (one.presence, one.requires_grad) for name, one in state.parameters.items()}
    assert kinds["first.bias"] == ("none", False)
    assert kinds["last.bias"] == ("zero", True)
    assert kinds["last.weight"] == ("nonzero", True)
    gradient = state.parameters["last.weight"].grad
    assert gradient is not None
    assert gradient.ref is not None
    assert bytes(gradient.ref.fetch()) == raw(live["last.weight"].grad)[3]
    assert state.parameters["first.bias"].grad is None
    assert list(state.buffers) == ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert state.buffers["norm.num_batches_tracked"].value == 3


def test_groups_hyperparameters_and_state_are_by_name(saved: tuple[Path, dict[str, Any]]) -> None:
    folder, fields = saved
    (optimizer,) = read_state(folder).optimizers
    assert optimizer.class_name == "Adam"
    assert optimizer.groups[0].members == tuple(name for name, _ in fields["model"].named_parameters())
    assert optimizer.groups[1].members == (None,)
    assert optimizer.groups[0].hyperparameters["lr"].value == 0.25
    assert optimizer.groups[0].hyperparameters["betas[1]"].value == 0.999
    assert optimizer.groups[0].hyperparameters["amsgrad"].value is False
    assert set(optimizer.state["last.weight"]) == {"step", "exp_avg", "exp_avg_sq"}
    assert optimizer.state["last.weight"]["step"].value == 3.0
    reference = optimizer.state["last.weight"]["exp_avg"].ref
    assert reference is not None
    live = fields["optimizer"].state[fields["model"].last.weight]["exp_avg"]
    assert bytes(reference.fetch()) == raw(live)[3]


def test_sections_generators_and_modes_are_described(saved: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = saved
    state = read_state(folder)
    assert set(state.sections) == {"schedule", "ema"}
    assert state.sections["schedule"]["[0].milestones[2]"].value == 1
    assert state.sections["schedule"]["[1].step_size"].value == 5
    assert state.sections["ema"]["n_averaged"].value == 0
    assert state.sections["ema"]["module.last.weight"].spec == TensorSpec("float32", (3, 5))
    assert set(state.rng) == {"torch", "numpy", "python"}
    assert state.modes["norm"] is False
    assert state.modes["first"] is True
    assert state.flags["num_threads"] == torch.get_num_threads()


def test_values_that_are_not_finite_are_read_as_they_are(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(float("nan"))
        model.bias.fill_(float("-inf"))
    save(tmp_path / "s", model=model)
    state = read_state(tmp_path / "s")
    assert np.isnan(state.parameters["weight"].entry.value)
    assert state.parameters["bias"].entry.value == float("-inf")


def test_plain_values_have_the_text_and_digest_that_the_live_ones_have(tmp_path: Path) -> None:
    live = {
        "dtype": torch.bfloat16,
        "devices": [torch.device("cpu"), torch.device("cuda", 1)],
        "size": torch.Size([2, 3]),
        "array": np.arange(3),
        "scalar": np.float32(2.5),
        "others": (1, -0.0, {3: b"\x00"}, 2**70, frozenset({1}), range(3)),
    }

    class Holder:
        def state_dict(self) -> dict[str, Any]:
            return live

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    save(tmp_path / "s", model=nn.Identity(), data=Holder())
    there = read_state(tmp_path / "s").sections["data"]
    wanted = {path: canonical(leaf) for path, leaf in flatten(live)}
    assert list(there) == list(wanted)
    for path, text in wanted.items():
        digest = there[path].digest
        assert digest is not None
        assert digest.value == hashlib.blake2b(text.encode(), digest_size=16).digest(), path
        assert str(there[path].value) == text


def test_payloads_are_plain_safetensors_files(saved: tuple[Path, dict[str, Any]]) -> None:
    folder, fields = saved
    (path,) = folder.glob("model-*.safetensors")
    there = load_file(path)
    wanted = {**dict(fields["model"].named_parameters()), **dict(fields["model"].named_buffers())}
    assert {name: raw(one) for name, one in there.items()} == {name: raw(one) for name, one in wanted.items()}
    for other in folder.glob("*.safetensors"):
        load_file(other)


def test_reading_needs_no_torch(saved: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = saved
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from ckptcheck.store.read import read_state\n"
        f"state = read_state({str(folder)!r})\n"
        "print(len(state.parameters), state.parameters['last.bias'].entry.ref.fetch().nbytes)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["6", "12"]


def test_no_module_of_the_store_uses_pickle() -> None:
    from ckptcheck.store import layout

    for path in Path(layout.__file__).parent.glob("*.py"):
        code = [line for line in path.read_text().splitlines() if "import" in line or "(" in line]
        assert not any("import pickle" in line or "torch.load(" in line or "eval(" in line for line in code), path
