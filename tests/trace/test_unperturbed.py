"""Recording changes nothing: training is the same to the bit, and no memory is kept."""

import gc
import random
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from ckptcheck.experiment.run import Run
from ckptcheck.state.digest import LINEAR_128, XXH3_128
from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.recorder import Recorder
from ckptcheck.trace.subjects import from_run
from tests.trace.recording import record


def dropout_net():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 1))


def ordinary(make, model=dropout_net, clip=False):
    def build():
        net = model()
        optimizer = make(net.parameters())

        def step(_):
            optimizer.zero_grad()
            loss = F.mse_loss(net(torch.randn(6, 4)), torch.full((6, 1), random.random() + np.random.rand()))
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            return loss

        return Run(net, step, optimizer)

    return build


def lbfgs():
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3, line_search_fn="strong_wolfe")

    def step(_):
        x = torch.randn(6, 4)

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
            loss.backward()
            return loss

        return optimizer.step(closure)

    return Run(net, step, optimizer)


def hand_written():
    net = dropout_net()

    def step(_):
        net(torch.randn(6, 4)).pow(2).mean().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None

    return Run(net, step)


def sparse():
    net = nn.Embedding(9, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(net.parameters())

    def step(_):
        optimizer.zero_grad()
        net(torch.randint(0, 9, (5,))).pow(2).sum().backward()
        optimizer.step()

    return Run(net, step, optimizer)


def scaled():
    net = dropout_net()
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", growth_interval=2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 100)

    def step(_):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(torch.randn(6, 4)).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        return loss.item()

    return Run(net, step, optimizer, schedule, scaler)


TRAININGS = {
    "Adam": ordinary(lambda one: torch.optim.Adam(one, lr=0.01)),
    "SGD with momentum": ordinary(lambda one: torch.optim.SGD(one, lr=0.1, momentum=0.9, nesterov=True), clip=True),
    "NAdam, foreach": ordinary(lambda one: torch.optim.NAdam(one, foreach=True)),
    "Adafactor": ordinary(torch.optim.Adafactor),
    "LBFGS": lbfgs,
    "hand-written": hand_written,
    "sparse": sparse,
    "autocast, scaler, schedule": scaled,
}


def everything(run):
    """All bits that a training leaves behind."""
    optimizer = run.optimizer.state_dict() if run.optimizer is not None else {}
    return [
        *(one.detach().clone() for one in run.model.state_dict().values()),
        *(one for state in optimizer.get("state", {}).values() for one in state.values() if torch.is_tensor(one)),
        torch.get_rng_state(),
        torch.tensor(random.getstate()[1]),
        torch.from_numpy(np.random.get_state()[1].astype(np.int64)),
    ]


@pytest.mark.parametrize("name", TRAININGS)
def test_training_is_the_same_to_the_bit_with_and_without_recording(tmp_path, name):
    results = []
    for recorded in (False, True):
        torch.manual_seed(5), random.seed(5), np.random.seed(5)
        run = TRAININGS[name]()
        losses = []
        inner = run.step
        run.step = lambda n, inner=inner, losses=losses: losses.append(inner(n))
        if recorded:
            record(tmp_path, run, steps=5)
        else:
            for n in range(1, 6):
                run.step(n)
        results.append((everything(run), [repr(loss) for loss in losses]))
    (plain, plain_losses), (recorded, recorded_losses) = results
    assert plain_losses == recorded_losses
    assert len(plain) == len(recorded) > 3
    for left, right in zip(plain, recorded, strict=True):
        assert left.dtype == right.dtype and left.numpy().tobytes() == right.numpy().tobytes()


def recording(tmp_path, run, algorithm=XXH3_128):
    writer = TraceWriter(tmp_path / "x.trace", {"digest": algorithm})
    return writer, Recorder(from_run(run), writer, algorithm)


@pytest.mark.parametrize("algorithm", [XXH3_128, LINEAR_128])
def test_no_tensor_outlives_its_step(tmp_path, algorithm):
    net = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 1)})
    net.register_buffer("scratch", torch.zeros(3))
    optimizer = torch.optim.Adam(net.parameters())
    kept = []

    def step(_):
        optimizer.zero_grad()
        x = torch.rand(2, 3)
        hidden = net["a"](x)
        net.scratch = hidden.sum(0)
        loss = net["b"](hidden).sum()
        loss.backward()
        optimizer.step()
        kept.extend(map(weakref.ref, (x, hidden, loss, net.scratch, net["a"].weight.grad)))
        optimizer.zero_grad()
        net.scratch = torch.zeros(3)

    writer, recorder = recording(tmp_path, Run(net, step, optimizer), algorithm)
    with recorder:
        for n in (1, 2, 3):
            recorder.begin(n)
            step(n)
            recorder.end(n)
            assert [one() for one in kept] == [None] * (5 * n)
        parameters = [weakref.ref(one) for one in net.parameters()]
        net.clear(), optimizer.param_groups.clear(), optimizer.state.clear()
        gc.collect()
        assert [one() for one in parameters] == [None] * 4
    writer.close(True)


def test_memory_is_flat_over_a_thousand_steps(tmp_path):
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(n):
        optimizer.zero_grad()
        loss = net(torch.rand(2 + n % 3, 3)).sum()
        loss.backward()
        optimizer.step()
        return loss

    def tensors():
        gc.collect()
        return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())

    writer, recorder = recording(tmp_path, Run(net, step, optimizer))
    with recorder:
        for n in range(1, 1001):
            recorder.begin(n)
            recorder.end(n, step(n))
            if n == 200:
                before = tensors(), sys.getallocatedblocks()
        after = tensors(), sys.getallocatedblocks()
    writer.close(True)
    assert after[0] == before[0]
    assert after[1] - before[1] < 800  # one object kept of every step would be as many


WITHOUT = """
import sys
sys.modules.update(numpy=None, xxhash=None)
import warnings
warnings.simplefilter("ignore")
import torch
from pathlib import Path
from types import SimpleNamespace
from ckptcheck.state.tensor_bytes import default_algorithm
from ckptcheck.trace.file import Trace, TraceWriter
from ckptcheck.trace.items import Item
from ckptcheck.trace.recorder import Recorder
from ckptcheck.trace.states import state_at
from ckptcheck.trace.subjects import from_run
model = torch.nn.Linear(1, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
run = SimpleNamespace(model=model, optimizer=optimizer, scheduler=None, scaler=None, ema=None, data=None, extra={})
algorithm = default_algorithm({"cpu"})
writer = TraceWriter(Path(sys.argv[1]) / "x.trace", {"digest": algorithm})
with Recorder(from_run(run), writer, algorithm) as recorder:
    recorder.load(0)
    recorder.begin(1)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    recorder.end(1, 0.5)
writer.close(True)
trace = Trace(Path(sys.argv[1]) / "x.trace")
state = state_at(trace, 1, "step")
assert set(state.rng) == {"torch", "python"}, state.rng
print(algorithm, trace.digest(1, "step", Item("grad", "bias")).hex())
outside = {"ckptcheck", "torch"}
print(sorted(name for name in ("numpy", "xxhash", "click", "rich") if sys.modules.get(name)))
"""


def test_an_interpreter_with_torch_alone_records_with_the_linear_digest(tmp_path):
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path)], check=False, capture_output=True, text=True)
    from tests.state import linear

    expected = linear.digest((np.ones(2, np.float32).tobytes(), 4)).hex()
    assert (done.stdout, done.stderr) == (f"linear_128 {expected}\n[]\n", "")
