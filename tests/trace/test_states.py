"""From a recorded moment to the training state that rules judge."""

import pytest
import torch
from torch import nn

from ckptcheck.experiment.run import Run
from ckptcheck.state.digest import XXH3_128, Digest
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry, Optimizer
from ckptcheck.trace.items import LOAD, STEP
from ckptcheck.trace.states import replaced_by_load, state_at
from tests.trace.recording import of, of_text, record


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.emb.weight
        self.gate = nn.Parameter(torch.tensor([2.0]), requires_grad=False)

    def forward(self, x):
        return self.head(self.norm(self.emb(x))) * self.gate


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    torch.manual_seed(1)
    model, stray = Net(), nn.Parameter(torch.ones(4))
    model.norm.eval()
    groups = [
        {"params": [model.norm.weight, stray], "lr": 0.5},
        {"params": [model.emb.weight, model.gate, model.norm.bias]},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.25, betas=(0.5, 0.75))
    second = torch.optim.SGD([model.norm.bias], lr=torch.tensor(0.125))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)

    def step(_):
        stray.grad = torch.ones(4)
        model(torch.tensor([1, 2])).sum().backward()
        model.norm.bias.grad = torch.zeros(3)
        optimizer.step()

    run = Run(
        model, step, [optimizer, second], schedule, data={"at": 7}, extra={"mine": {"flag": True, "t": torch.ones(2)}}
    )
    return record(tmp_path_factory.mktemp("trace"), run), run


@pytest.fixture
def run(recorded):
    return recorded[1]


@pytest.fixture
def state(recorded):
    return state_at(recorded[0], 1, STEP)


def test_parameters_have_value_ties_freezing_presence_and_gradient(state, run):
    assert list(state.parameters) == ["gate", "emb.weight", "norm.weight", "norm.bias"]
    weight = state.parameters["emb.weight"]
    live = run.model.emb.weight
    assert weight.entry.spec == TensorSpec("float32", (5, 3))
    assert weight.entry.digest == Digest(XXH3_128, of(live))
    assert weight.entry.norm == pytest.approx(live.norm().item()) and weight.entry.value is None
    assert weight.grad.digest == Digest(XXH3_128, of(live.grad))
    gate = state.parameters["gate"]
    assert (gate.entry.value, gate.requires_grad, gate.presence, gate.grad) == (2.0, False, "none", None)
    assert (weight.requires_grad, weight.presence) == (True, "nonzero")
    assert state.parameters["norm.bias"].presence == "zero"


def test_ties_modes_and_flags_are_those_at_load(recorded):
    state = state_at(recorded[0], 0, LOAD)
    assert {name: one.aliases for name, one in state.parameters.items() if one.aliases} == {
        "emb.weight": ("head.weight",)
    }
    assert state.modes == {"norm": False}
    assert state.flags["num_threads"] == torch.get_num_threads()
    assert state.flags["default_dtype"] == "torch.float32"
    assert {one.presence for one in state.parameters.values()} == {"none"}
    assert state.optimizers[0].state == {}
    assert replaced_by_load(recorded[0], 0) == frozenset()


def test_optimizers_have_groups_members_and_values(state):
    adam, sgd = state.optimizers
    assert (adam.class_name, sgd.class_name) == ("Adam", "SGD")
    assert [group.members for group in adam.groups] == [("norm.weight", None), ("emb.weight", "gate", "norm.bias")]
    assert [group.members for group in sgd.groups] == [("norm.bias",)]
    assert [group.hyperparameters["lr"].value for group in adam.groups] == [0.5, 0.25]
    assert adam.groups[1].hyperparameters["betas[1]"] == Entry(None, Digest("blake2b_128", of_text("0.75")), value=0.75)
    assert adam.groups[0].hyperparameters["amsgrad"].value is False
    assert sgd.groups[0].hyperparameters["lr"] == Entry(
        TensorSpec("float32", ()), Digest(XXH3_128, of(torch.tensor(0.125))), value=0.125
    )
    assert adam.group_of("gate") == 1 and adam.group_of("elsewhere") is None


def test_optimizer_state_is_by_parameter_name_and_key(state, run):
    adam: Optimizer = state.optimizers[0]
    stray = "<group 0, index 1: not in the model>"
    assert set(adam.state) == {"norm.weight", stray, "emb.weight", "norm.bias"}
    assert set(adam.state["emb.weight"]) == {"step", "exp_avg", "exp_avg_sq"}
    live = run.optimizer[0].state[run.model.emb.weight]
    assert adam.state["emb.weight"]["exp_avg"].digest == Digest(XXH3_128, of(live["exp_avg"]))
    assert adam.state[stray]["step"].value == 1.0
    assert state.optimizers[1].state == {}


def test_buffers_generators_and_sections_are_there(state, run):
    assert set(state.buffers) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert state.buffers["norm.running_var"].digest == Digest(XXH3_128, of(run.model.norm.running_var))
    assert state.buffers["norm.num_batches_tracked"].value == 0
    assert {"torch", "python", "numpy"} == set(state.rng)
    assert state.rng["torch"].digest.algorithm == XXH3_128 and state.rng["python"].digest.algorithm == "blake2b_128"
    assert set(state.sections) == {"schedule", "data", "extra"}
    assert state.sections["schedule"]["step_size"].value == 3
    assert state.sections["data"]["at"].value == 7
    assert state.sections["extra"]["mine.flag"].value is True
    assert state.sections["extra"]["mine.t"].spec == TensorSpec("float32", (2,))
    assert (state.step, state.source) == (1, "test, step 1")


def test_a_moment_that_is_not_there_is_named(recorded):
    with pytest.raises(KeyError, match="no moment 'saved' at step 1"):
        state_at(recorded[0], 1, "saved")
