"""A script does not find out that it is recorded: by what it finalises, counts, catches, closes, or waits for."""
# ruff: noqa: E501 (scripts as texts)

import pytest

from ckptcheck.trace.reading import Trace
from tests.trace.script.many import Case, run

_BEGIN = """
import ctypes, gc, os, pickle, signal, sys, threading, time, warnings, weakref
from collections import Counter
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, x): return self.two(self.one(x).relu())
def train(steps=4):
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(4, 4)).square().mean().backward()
        optimizer.step()
def final(): print([float(one.detach().double().sum()) for one in net.parameters()], torch.rand(1).item(), flush=True)
net = Net()
optimizer = torch.optim.Adam(net.parameters())
"""
_GONE = """
import atexit
atexit._run_exitfuncs()
known = {name: weakref.ref(one) for name, one in globals().items() if isinstance(one, type) and one.__module__ == "__main__"}
for name in ("Net", "net", "optimizer", "Own", "ModelEMA", "average"): globals().pop(name, None)
gc.collect()
print("Net" in known, {name: one() is None for name, one in known.items()}, flush=True)
"""
_COUNTING = "seen = Counter()\n"
_FINALISED = {
    "a class of a model": "train()",
    "a class of an average": "class ModelEMA:\n    def __init__(self): self.shadow = [one.detach().clone() for one in net.parameters()]\naverage = ModelEMA()\ntrain()",
    "an optimizer that loads": "class Own(torch.optim.SGD):\n    def load_state_dict(self, given): return super().load_state_dict(given)\noptimizer = Own(net.parameters(), 0.1)\noptimizer.load_state_dict(optimizer.state_dict())\ntrain()",
    "a duck-typed optimizer": "class Own:\n    def __init__(self): self.params = list(net.parameters())\n    def zero_grad(self):\n        for one in self.params: one.grad = None\n    @torch.no_grad()\n    def step(self):\n        for one in self.params: one -= 0.1 * one.grad\noptimizer = Own()\ntrain()",
    "a recording that breaks": "train(2)\nos.closerange(3, 4096)\ntrain(2)",
}
"""When these have ended, their classes can die: one that cannot keeps all globals from being finalised."""
_SCRIPTS = {
    "dispatch mode": _COUNTING
    + "class Mode(TorchDispatchMode):\n    def __torch_dispatch__(self, function, types, args=(), kwargs=None):\n        seen[str(function)] += 1\n        torch.rand(1)\n        return function(*args, **(kwargs or {}))\nwith Mode(): train()\nprint(sorted(seen.items()))",
    "function mode": _COUNTING
    + "class Mode(TorchFunctionMode):\n    def __torch_function__(self, function, types, args=(), kwargs=None):\n        seen[getattr(function, '__name__', '')] += 1\n        torch.rand(1)\n        return function(*args, **(kwargs or {}))\nwith Mode(): train()\nprint(sorted(seen.items()))",
    "subclass of a tensor": _COUNTING
    + "class Own(nn.Parameter):\n    @classmethod\n    def __torch_function__(cls, function, types, args=(), kwargs=None):\n        seen[getattr(function, '__name__', '')] += 1\n        return super().__torch_function__(function, types, args, kwargs or {})\nnet.one.weight = Own(net.one.weight.data)\noptimizer = torch.optim.SGD(net.parameters(), 0.1)\nnet.load_state_dict({**net.state_dict()})\ntrain()\nprint(sorted(seen.items()))",
    "profiler": "with torch.profiler.profile() as profile: train()\nprint(sorted((one.key, one.count) for one in profile.key_averages()))",
    "blocked signal": "train()\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})\nos.kill(os.getpid(), signal.SIGUSR1)\nprint(signal.sigtimedwait({signal.SIGUSR1}, 5).si_signo)\ntrain()",
    "all threads joined": "train()\nprint(threading.active_count())\nfor one in threading.enumerate():\n    if one is not threading.main_thread(): one.join()",
    "asynchronous exceptions": "train(1)\nclass Stop(Exception): pass\nmain, told, count = threading.get_ident(), threading.Event(), 0\ndef ask():\n    for _ in range(15):\n        told.wait(); told.clear(); time.sleep(0.003)\n        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(Stop))\nasking = threading.Thread(target=ask, daemon=True); asking.start()\nfor _ in range(15):\n    try:\n        told.set()\n        end = time.monotonic() + 5\n        while time.monotonic() < end: train(1)\n    except Stop: count += 1\nasking.join()\nprint(count)\nnet = Net(); torch.manual_seed(1)\nfor one in net.parameters(): one.data.fill_(0.1)\noptimizer = torch.optim.SGD(net.parameters(), 0.1)",
    "a load that returns something odd": "class Odd:\n    def __getattr__(self, name): raise RuntimeError(name)\nclass Own(torch.optim.SGD):\n    def load_state_dict(self, given):\n        super().load_state_dict(given)\n        return Odd()\noptimizer = Own(net.parameters(), 0.1)\noptimizer.load_state_dict(optimizer.state_dict())\ntrain()",
    "warnings": "class Warning(nn.Module):\n    def forward(self, x): warnings.warn('here', stacklevel=3); return x\nchain = nn.Sequential(net, Warning())\nchain(torch.ones(1, 4))\ntrain()",
    "what dies at once": "train()\nknown = [weakref.ref(one) for one in (net, optimizer, *net.parameters())]\ndel net, optimizer\nprint([one() is None for one in known])\nnet = Net(); optimizer = torch.optim.Adam(net.parameters())\ntrain(2)",
    "pickled methods": "train()\npickle.loads(pickle.dumps(nn.Module.__call__))\nfor one in (nn.Module.load_state_dict, nn.Module.zero_grad, torch.optim.Adam.step, torch.autograd.backward): pickle.loads(pickle.dumps(one))",
    "a trace cut short": "train(2)\nfor one in os.listdir('traces') if os.path.isdir('traces') else (): open('traces/' + one, 'w').close()\ntrain(4)",
    "descriptors closed and taken": "train(2)\nos.closerange(3, 4096)\nfiles = [open(f'file {place}', 'wb', buffering=0) for place in range(30)]\nfor one in files: one.write(b'CHECKPOINT')\ntrain(4)\nfor one in files: os.fstat(one.fileno())\nprint({open(f'file {place}', 'rb').read() for place in range(30)})",
}
_RAISED = {
    "a message that is counted": "class Own(Exception):\n    count = 0\n    def __str__(self):\n        Own.count += 1; print('asked', Own.count); return 'no'\ntrain()\nraise Own()",
    "a message that cannot be made": "class Own(Exception):\n    def __str__(self): raise RuntimeError('no')\ntrain()\nraise Own()",
}
_WITHOUT_A_TRACE = {
    "asynchronous exceptions",
    "a trace cut short",
    "descriptors closed and taken",
    "a recording that breaks",
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    base = tmp_path_factory.mktemp("unseen")
    codes = {name: (_BEGIN + code + _GONE, True) for name, code in _FINALISED.items()}
    codes |= {name: (_BEGIN + code + "\nfinal()", True) for name, code in _SCRIPTS.items()}
    codes |= {name: (_BEGIN + code, False) for name, code in _RAISED.items()}
    imports = ("torch.profiler", "torch._dynamo", "torch._subclasses.functional_tensor")
    made = {
        (name, kind): Case(base / f"{name} {kind}", code, orders, imports, hurried=hurried)
        for name, (code, hurried) in codes.items()
        for kind, orders in (("with", {}), ("without", None))
    }
    run(list(made.values()))
    return made


@pytest.mark.parametrize("name", [*_FINALISED, *_SCRIPTS, *_RAISED])
def test_a_script_says_and_leaves_what_it_would_without_us(cases, name):
    with_us, without = cases[name, "with"], cases[name, "without"]
    for one in ("code", "out"):
        assert with_us.read(one) == without.read(one), with_us.read("err")
    said = [line for line in with_us.read("err").splitlines() if not line.startswith("ckptcheck: recording stopped")]
    if name != "profiler":  # it says the time
        assert said == without.read("err").splitlines()
    assert (name in _RAISED) == (without.read("code") != "0"), without.read("err")
    if name in _FINALISED:
        assert without.read("out").startswith("True {") and "False" not in without.read("out")
    if name not in _WITHOUT_A_TRACE:
        (path,) = with_us.traces.glob("*.trace")
        assert len(Trace(path).steps) >= 2
