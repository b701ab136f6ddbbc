"""Hooks undo themselves, outlive exceptions, and do not break what they listen to."""

import copy
import functools
import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from ckptcheck.experiment.run import Run
from ckptcheck.state.digest import XXH3_128
from ckptcheck.trace.file import Trace, TraceWriter
from ckptcheck.trace.hooks import Hooks
from ckptcheck.trace.items import NONZERO, STEP, Item
from ckptcheck.trace.recorder import Recorder
from ckptcheck.trace.subjects import from_run
from tests.trace.recording import kind, of, record, step_samples


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))

    def forward(self, x):
        return self.layers(x)


def hooks_of(model):
    """Every place where a hook may sit, with what sits there."""
    modules = {
        (name, place): dict(getattr(module, place))
        for name, module in model.named_modules()
        for place in dir(module)
        if place.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))
        and isinstance(getattr(module, place), dict)
    }
    tensors = {name: copy.copy(one._post_accumulate_grad_hooks or {}) for name, one in model.named_parameters()}
    patched = torch.autograd.backward, torch.Tensor.backward, torch.optim.SGD.step, nn.Module.__call__
    everywhere = dict(torch_optimizer._global_optimizer_pre_hooks), dict(torch_optimizer._global_optimizer_post_hooks)
    return modules, tensors, patched, everywhere


@pytest.mark.parametrize("with_optimizer", [True, False])
@pytest.mark.parametrize("raising", [True, False])
def test_every_hook_is_undone_on_exit(tmp_path, with_optimizer, raising):
    model = Net()
    model.layers.register_forward_hook(lambda *_: None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if with_optimizer else None
    before = hooks_of(model)
    inside = []

    def step(_):
        inside.append(hooks_of(model))
        model.append_later = nn.Linear(1, 1)
        if raising:
            raise KeyError("mine")

    try:
        record(tmp_path, Run(model, step, optimizer), steps=2)
    except KeyError:
        assert raising
    del model.append_later
    assert hooks_of(model) == before
    assert inside[0] != before
    modules, tensors, patched, everywhere = inside[0]
    assert all(modules[name, "_forward_pre_hooks"] for name, _ in model.named_modules())
    assert all(map(bool, tensors.values())) is not with_optimizer
    assert patched[0] is not before[2][0] and patched[1:] == before[2][1:] and all(everywhere)


def test_hooks_that_cannot_be_laid_leave_nothing_behind():
    run = Run(model="no module", step=print)
    before = hooks_of(nn.Linear(1, 1))[2:]
    with pytest.raises(TypeError, match="a str, not a"):
        Hooks(from_run(run), SimpleNamespace()).__enter__()
    assert hooks_of(nn.Linear(1, 1))[2:] == before


def test_a_backward_that_somebody_wrapped_meanwhile_stays_theirs_and_ours_falls_silent():
    original, model, heard = torch.autograd.backward, nn.Linear(2, 1), []
    try:
        with Hooks(from_run(Run(model, print)), SimpleNamespace(backward=heard.append, gradient=print, forward=print)):
            theirs = torch.autograd.backward = functools.partial(torch.autograd.backward)
            model.weight.sum().backward()
        assert torch.autograd.backward is theirs and len(heard) == 1
        model.weight.sum().backward()
        assert len(heard) == 1
        assert model.weight.grad.tolist() == [[2.0, 2.0]]
    finally:
        torch.autograd.backward = original


def test_an_update_after_one_that_raised_is_recorded(tmp_path):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def failing():
        raise ValueError("in the closure")

    def step(_):
        with pytest.raises(ValueError, match="in the closure"):
            optimizer.step(failing)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    samples = step_samples(tmp_path, step, model=model, optimizer=optimizer)
    assert samples[Item("updates", optimizer=0)].value == 1
    assert samples[Item("grad", "weight")].presence == NONZERO


def test_an_inner_step_that_raises_does_not_hide_the_outer_one(tmp_path):
    class Retrying(torch.optim.SGD):
        def step(self, closure=None):
            with pytest.raises(ValueError, match="no"):
                super().step(failing)
            return super().step()

    def failing():
        raise ValueError("no")

    model = nn.Linear(2, 1)
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Retrying(model.parameters(), lr=0.1)
    samples = step_samples(tmp_path, lambda _: optimizer.step(), model=model, optimizer=optimizer)
    assert samples[Item("updates", optimizer=0)].value == 1


def test_a_step_that_raised_leaves_no_trace_in_the_next(tmp_path):
    model, writer = nn.Linear(2, 1), TraceWriter(tmp_path / "x.trace", {"digest": XXH3_128})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(from_run(Run(model, print, optimizer)), writer, XXH3_128) as recorder:
        recorder.begin(1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        with pytest.raises(RuntimeError):
            model(torch.ones(1, 7))
        recorder.begin(2)
        model(torch.zeros(1, 2))
        recorder.end(2)
    writer.close(True)
    trace = Trace(tmp_path / "x.trace")
    samples = trace.samples(2, STEP)
    assert trace.steps == [2]
    assert [one.digest for one in kind(samples, "inputs").values()] == [of(torch.zeros(1, 2))]
    assert samples[Item("updates", optimizer=0)].value == 0 and kind(samples, "loss") == {}


def test_modules_that_come_and_go_are_heard_and_not_kept(tmp_path):
    model = nn.ModuleDict({"old": nn.Linear(2, 1)})
    gone = weakref.ref(model["old"]), weakref.ref(model["old"].weight)

    def step(n):
        for module in model.values():
            module(torch.ones(1, 2))
        if n == 1:
            del model["old"], module
            model["new"] = nn.Linear(2, 1)
        if n == 3:
            gc.collect()
            assert [one() for one in gone] == [None, None]

    trace = record(tmp_path, Run(model, step), steps=3)
    entered = [{item.name for item in kind(trace.samples(n, STEP), "inputs")} for n in (1, 2, 3)]
    assert entered == [{"old"}, {"new"}, {"new"}]


def test_an_object_that_is_no_torch_optimizer_can_be_stepped(tmp_path):
    class Homemade:
        def __init__(self, parameters):
            self.param_groups = [{"params": list(parameters), "lr": 0.1}]

        def step(self):
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter.sub_(self.param_groups[0]["lr"] * parameter.grad)

    model = nn.Linear(2, 1)
    optimizer = Homemade(model.parameters())
    samples = step_samples(
        tmp_path,
        lambda _: model(torch.ones(1, 2)).sum().backward() or optimizer.step(),
        model=model,
        optimizer=optimizer,
    )
    assert samples[Item("hyper", "", "lr", 0, 0)].value == 0.1
    assert samples[Item("grad", "bias")].value == 1.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model_keeps_its_whole_graph_and_its_inputs_are_recorded(tmp_path):
    torch._dynamo.reset()
    model = Net()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    twin = copy.deepcopy(model)
    compiled(torch.ones(4, 2))  # compiled once before there is a hook, once after
    twin(torch.ones(4, 2))
    graphs = []

    def step(n):
        optimizer.zero_grad()
        loss = compiled(torch.full((4, 2), float(n))).sum()
        loss.backward()
        optimizer.step()
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        return loss

    trace = record(tmp_path, Run(compiled, step, optimizer), steps=3)
    assert graphs[0] == graphs[-1]  # nothing is compiled anew from step to step
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    for n in (1, 2, 3):
        samples = trace.samples(n, STEP)
        inputs = {(item.name, item.key): one.digest for item, one in kind(samples, "inputs").items()}
        assert inputs == {("", "0"): of(torch.full((4, 2), float(n)))}
        other.zero_grad()
        twin(torch.full((4, 2), float(n))).sum().backward()
        other.step()
        assert samples[Item("param", "layers.0.weight")].digest == of(twin.layers[0].weight)
        assert samples[Item("grad", "layers.0.weight")].digest == of(twin.layers[0].weight.grad)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_compiled_in_place_while_it_is_recorded_keeps_its_whole_graph(tmp_path):
    torch._dynamo.reset()
    model = Net()
    twin = copy.deepcopy(model)
    model.compile(backend="eager", fullgraph=True)

    def step(n):
        loss = model(torch.full((4, 2), float(n))).sum()
        loss.backward()
        return loss

    trace = record(tmp_path, Run(model, step), steps=2)
    for n in (1, 2):
        twin(torch.full((4, 2), float(n))).sum().backward()
        samples = trace.samples(n, STEP)
        assert samples[Item("grad", "layers.0.weight")].digest == of(twin.layers[0].weight.grad)
        assert samples[Item("buffer", "layers.1.running_mean")].digest == of(twin.layers[1].running_mean)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_step_is_recorded(tmp_path):
    torch._dynamo.reset()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    stepping = torch.compile(optimizer.step, backend="eager")

    def step(_):
        model(torch.ones(1, 2)).sum().backward()
        stepping()
        optimizer.zero_grad()

    trace = record(tmp_path, Run(model, step, optimizer), steps=2)
    for n in (1, 2):
        samples = trace.samples(n, STEP)
        assert samples[Item("updates", optimizer=0)].value == 1
        assert samples[Item("grad", "bias")].value == 1.0
    assert samples[Item("state", "bias", "momentum_buffer", 0)].value == pytest.approx(1.9)
    torch._dynamo.reset()
