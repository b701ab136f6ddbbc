"""What is told of forward passes and losses: each once, and nothing of ours is left on the script's objects."""

import copy
import io
import re
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import optimizer
from torch.utils.checkpoint import checkpoint

from ckptcheck.trace.injection.environment import recorded
from ckptcheck.trace.items import Item
from ckptcheck.trace.reading import open_traces
from ckptcheck.trace.script.orders import Orders
from tests.trace.script.told import listening, train


class Net(nn.Module):
    """Two layers and a keyword; may raise, and may recompute."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x, *, scale: float = 1.0, again: bool = False, error: BaseException | None = None):
        if error is not None:
            self.last(self.first(x))
            raise error
        x = checkpoint(self.first, x, use_reentrant=False) if again else self.first(x)
        return self.last(x) * scale


X = torch.ones(2, 3)


def test_the_outermost_call_is_told_with_its_keywords_and_what_it_calls_is_not():
    with listening() as told:
        model = Net()
        model(X, scale=3.0)
        model.first(X)
        with torch.no_grad():
            model(X)
    assert [(name, args[0] is X, kwargs) for name, args, kwargs in told.inputs] == [
        ("Net", True, {"scale": 3.0}),
        ("Linear", True, {}),
    ]


@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt(), GeneratorExit()])
def test_what_a_forward_pass_raises_passes_through_and_the_next_call_is_told(error):
    with listening() as told:
        model = Net()
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                model(X, error=error)
            assert caught.value is error
        model(X)
    assert [name for name, _, _ in told.inputs] == ["Net"] * 3


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_forward_passes_are_no_inputs(reentrant):
    with listening() as told:
        model, x = nn.Linear(3, 3), X.clone().requires_grad_()
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        Net()(X, again=True).sum().backward()
    # A reentrant one runs without gradients first, and is seen as no forward pass of training at all.
    assert [name for name, _, _ in told.inputs] == ([] if reentrant else ["Linear"]) + ["Net"]
    assert model.weight.grad is not None and len(told.losses) == 2


def test_losses_are_told_of_every_backward_and_not_of_torch_autograd_grad():
    with listening() as told:
        model = Net()
        loss = model(X).square().sum()
        (slope,) = torch.autograd.grad(loss, [model.first.weight], create_graph=True)
        penalty = slope.square().sum()
        torch.autograd.backward(iter([loss, penalty]))
    assert told.losses == [loss.item(), penalty.item()]


def test_a_training_by_torch_autograd_grad_is_told_and_its_losses_noted_as_not_seen():
    with listening() as told:
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            gradients = torch.autograd.grad(model(X).sum(), list(model.parameters()))
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
    assert told.updates == ["before SGD", "after SGD"] * 2 and len(told.inputs) == 2
    assert told.notes.all() == ("Losses are not seen: gradients come without a call of backward.",)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated")
def test_tracing_is_no_forward_pass_and_gives_what_it_gives_without_us():
    model = Net()
    plain = torch.jit.trace(model, X).code, torch.export.export(model, (X,)).graph_module.code
    with listening() as told:
        traced, exported = torch.jit.trace(model, X, check_trace=False), torch.export.export(model, (X,))
        assert (traced.code, exported.graph_module.code) == plain
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert Net()(mode.from_tensor(X)).shape == (2, 2)
    assert told.inputs == []


def test_functional_calls_and_maps_over_them_work():
    model = Net()
    parameters = dict(model.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).sum()

    make = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    plain = make(parameters, X)
    with listening() as told:
        found = make(parameters, X)
    assert all(torch.equal(found[name], plain[name]) for name in plain) and len(told.inputs) == 1


def test_threads_that_do_not_update_and_replicas_are_passed_over():
    with listening() as told:
        model, other = Net(), Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        thread = threading.Thread(target=lambda: other(X).sum().backward())
        thread.start()
        thread.join()
        replica = model._replicate_for_data_parallel()
        replica(X)
        train(model, optimizer)
    assert [name for name, _, _ in told.inputs] == ["Net"] * 2 and len(told.losses) == 2
    assert len(told.modules.alive()) == 6


def test_copies_and_pickles_of_what_was_recorded_hold_nothing_of_ours():
    def script():
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        train(model, optimizer, 2)
        file = io.BytesIO()
        torch.save({"model": model, "optimizer": optimizer, "groups": schedule.state_dict()}, file)
        return model, optimizer, file.getvalue()

    plain = script()
    plain_copy = copy.deepcopy(plain[:2])
    with listening() as told:
        found = script()
        copied = copy.deepcopy(found[:2])
    assert len(told.updates) == 4
    for left, right in ((plain, found), (plain_copy, copied)):
        for one, other in zip(left[0].modules(), right[0].modules(), strict=True):
            assert vars(one).keys() == vars(other).keys()
            hooks = [key for key in vars(other) if "hooks" in key]
            assert hooks and not any(vars(other)[key] for key in hooks)
        assert vars(left[1]).keys() == vars(right[1]).keys()
    assert b"ckptcheck" not in found[2] and plain[2] == found[2]


PATCHED = (
    (nn.Module, "__call__"), (nn.Module, "__init__"), (nn.Module, "__setstate__"), (nn.Module, "zero_grad"),
    (torch.optim.Optimizer, "__init__"), (torch.optim.Optimizer, "zero_grad"), (torch.autograd, "backward"),
    (torch.optim.lr_scheduler.LRScheduler, "__init__"), (torch.amp.GradScaler, "__init__"),
)  # fmt: skip


def test_everything_is_undone():
    hooks = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
    before = [vars(owner)[name] for owner, name in PATCHED]
    counts = [len(one) for one in hooks]
    with listening():
        assert all(vars(owner)[name] is not one for (owner, name), one in zip(PATCHED, before, strict=True))
        assert [len(one) for one in hooks] == [one + 1 for one in counts]
    assert [vars(owner)[name] for owner, name in PATCHED] == before and [len(one) for one in hooks] == counts


def counted(function, name, calls):
    def method(*args, **kwargs):
        calls.append(name)
        return function(*args, **kwargs)

    return method


def test_where_somebody_has_patched_on_top_ours_only_passes_on(monkeypatch):
    calls = []
    with listening() as told:
        for owner, name in ((nn.Module, "__call__"), (torch.autograd, "backward")):
            monkeypatch.setattr(owner, name, counted(getattr(owner, name), name, calls))
        model = Net()
        model(X).sum().backward()
    assert (len(told.inputs), len(told.losses)) == (1, 1) and calls.count("backward") == 1
    model(X).sum().backward()
    assert (len(told.inputs), len(told.losses)) == (1, 1) and calls.count("backward") == 2


COMPILED = """
import hashlib, torch
from torch import nn

class Net(nn.Module):
    def __init__(self, breaking=False):
        super().__init__()
        self.layers, self.breaking = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)]), breaking
    def forward(self, x, *, scale=1.0):
        x = self.layers[0](x)
        if self.breaking:
            torch._dynamo.graph_break()
        return self.layers[2](self.layers[1](x)) * scale

def run(kind):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    model = Net(kind == "breaking")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    forward = model
    if kind in ("model", "breaking"):
        forward = torch.compile(model, backend="eager", fullgraph=kind == "model")
    if kind == "method":
        model.compile(backend="eager", fullgraph=True)
    def once(x):
        optimizer.zero_grad()
        forward(x, scale=2.0).square().mean().backward()
        optimizer.step()
    train = torch.compile(once, backend="eager") if kind == "training" else once
    for number in range(2):
        train(torch.full((2, 3), float(number)))
    content = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    counters = torch._dynamo.utils.counters
    print(kind, hashlib.md5(content).hexdigest(), dict(counters["stats"]), dict(counters["recompile_limit"]))

for kind in ("model", "method", "breaking", "training"):
    run(kind)
"""


def test_compiled_scripts_have_the_same_graphs_and_numbers_and_all_their_updates_are_seen(tmp_path):
    script, traces = tmp_path / "script.py", tmp_path / "traces"
    script.write_text(COMPILED)
    traces.mkdir()
    environment = recorded(Orders(traces=traces), tmp_path / "orders.json")
    run = [sys.executable, "-W", "always::UserWarning", str(script)]
    plain = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    found = subprocess.run(run, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
    out, errors = plain.communicate()
    assert (found.returncode, found.stdout) == (0, out) and plain.returncode == 0, found.stderr + errors
    assert found.stdout.count("unique_graphs") == 4
    assert re.findall(r"\w*Warning: .*", found.stderr) == re.findall(r"\w*Warning: .*", errors)
    (trace,) = open_traces(traces)
    items = [item for step in trace.steps for item in trace.samples(step, "step")]
    assert trace.ended and items.count(Item("loss", "backward")) == len(trace.steps)
    # What is called inside of a compiled function is not seen to enter; all else is.
    assert len([item for item in items if item.kind == "inputs" and item.key == "scale"]) == 6
    assert len([item for item in items if item.kind == "loss"]) == 8
