"""A script's numbers and output are what they would have been without us."""
# ruff: noqa: E501 (scripts as texts)

import pytest
import torch

from ckptcheck.trace.reading import Trace
from tests.trace.script.many import Case, run

_BEGIN = """
import copy, random
import torch
from torch import nn
F = nn.functional
torch.manual_seed(0); random.seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
def data():
    return torch.randn(8, 6), torch.randint(0, 3, (8,))
"""
_END = (
    "\nprint(float(loss))\ntorch.save([dict(one.state_dict()) for one in models] + [torch.get_rng_state()], 'end.pt')\n"
)
_LOOP = """
for _ in range(4):
    x, y = data()
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
"""
_SCRIPTS = {
    "plain SGD": "optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)" + _LOOP,
    "AdamW with a schedule": "optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)\n"
    "schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)" + _LOOP + "    schedule.step()\n",
    "autocast": "optimizer = torch.optim.Adam(net.parameters())"
    + _LOOP.replace("    loss = F", "    with torch.autocast('cpu', torch.bfloat16):\n        loss = F"),
    "scaler": "optimizer = torch.optim.Adam(net.parameters())\nscaler = torch.amp.GradScaler('cpu')"
    + _LOOP.replace("loss.backward()", "scaler.scale(loss * (1 if _ != 1 else float('inf'))).backward()").replace(
        "optimizer.step()", "scaler.step(optimizer); scaler.update()"
    ),
    "accumulation": "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)"
    + _LOOP.replace("optimizer.zero_grad()", "").replace(
        "optimizer.step()", "if _ % 2:\n        optimizer.step()\n        net.zero_grad()"
    ),
    "a pair": "other = nn.Linear(6, 3)\nmodels = [net, other]\n"
    "one = torch.optim.Adam(net.parameters()); two = torch.optim.Adam(other.parameters())\n"
    "for _ in range(3):\n    for part, optimizer in ((net, one), (other, two)):\n        x, y = data()\n"
    "        optimizer.zero_grad()\n        loss = F.cross_entropy(part(x), y)\n        loss.backward()\n"
    "        optimizer.step()\n",
    "LBFGS": "optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)\nfor _ in range(3):\n    x, y = data()\n"
    "    def closure():\n        optimizer.zero_grad()\n        loss = F.cross_entropy(net(x), y)\n"
    "        loss.backward()\n        return loss\n    loss = optimizer.step(closure)\n",
    "updates in backward": "each = {one: torch.optim.Adam([one]) for one in net.parameters()}\n"
    "def update(one):\n    each[one].step()\n    each[one].zero_grad()\n"
    "for one in net.parameters():\n    one.register_post_accumulate_grad_hook(update)\n"
    "for _ in range(3):\n    x, y = data()\n    loss = F.cross_entropy(net(x), y)\n    loss.backward()\n",
    "workers": "class Set(torch.utils.data.Dataset):\n    def __len__(self): return 24\n"
    "    def __getitem__(self, place): return torch.randn(6) + random.random(), place % 3\n"
    "optimizer = torch.optim.Adam(net.parameters())\n"
    "for _ in range(2):\n"
    "    for x, y in torch.utils.data.DataLoader(Set(), 8, shuffle=True, num_workers=2):\n        optimizer.zero_grad()\n"
    "        loss = F.cross_entropy(net(x), y)\n        loss.backward()\n        optimizer.step()\n",
    "compiled": "optimizer = torch.optim.Adam(net.parameters())\ninner, net = net, torch.compile(net, backend='aot_eager')"
    + _LOOP,
    "average": "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "average = torch.optim.swa_utils.AveragedModel(net)\nmodels = [net, average]"
    + _LOOP
    + "    average.update_parameters(net)\n    with torch.no_grad(): average(x)\n",
    "an optimizer of its own": "class Own(torch.optim.Optimizer):\n"
    "    def __init__(self, params): super().__init__(params, {'lr': 0.1})\n"
    "    @torch.no_grad()\n    def step(self, closure=None):\n        for group in self.param_groups:\n"
    "            for one in group['params']:\n                one -= group['lr'] * (one.grad + 0.01 * torch.rand_like(one))\n"
    "optimizer = Own(net.parameters())" + _LOOP,
    "what dies": "import weakref\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nfor _ in range(3):\n"
    "    x, y = data()\n    hidden = net[0](x)\n    loss = F.cross_entropy(net[3](hidden), y)\n"
    "    known = [weakref.ref(one) for one in (x, hidden, loss)]\n    loss.backward()\n"
    "    value = loss.item()\n    del x, hidden, loss\n    print([one() is None for one in known])\n"
    "    optimizer.step()\n    gone = weakref.ref(net[0].weight.grad)\n    optimizer.zero_grad()\n    print(gone() is None)\n"
    "loss = value\nmodels = [copy.deepcopy(net)]\nknown = [weakref.ref(one) for one in (net, optimizer, net[0].weight)]\n"
    "del net, optimizer\nimport gc; gc.collect()\nprint([one() is None for one in known[:2]])\n",
}

_BROKEN = {
    "raises in a part of a part": "net = nn.Sequential(nn.Sequential(net, Part()))\n"
    "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)" + _LOOP,
    "raises in a backward pass in the step of an optimizer": "net[0].weight.register_hook(odd)\n"
    "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "def closure():\n    net(data()[0]).sum().backward()\noptimizer.step(closure)",
    "loads what does not fit": "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "net.load_state_dict({'no': torch.ones(1)})",
    "raises in a thread": "import threading\nnet.append(Part())\n"
    "one = threading.Thread(target=lambda: net(data()[0]), name='one')\none.start()\none.join()",
    "has a hook of its own": "import sys\nsys.excepthook = lambda *_: print('mine')\nPart()(data()[0])",
}
"""What ends with an exception that nobody catches."""
_PART = """
class Part(nn.Module):
    def forward(self, data):
        try: data.nothing
        except AttributeError as error: raise ValueError('no') from error
def odd(*_): raise ArithmeticError('odd')
"""
_COMPILING = ("torch._dynamo.convert_frame", "torch._dynamo.backends.debugging", "torch._inductor.utils")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    base = tmp_path_factory.mktemp("unperturbed")
    made = {}
    for name, code in _SCRIPTS.items():
        whole = _BEGIN + "models = [net]\n" + code + _END
        for kind, orders in (("with", {}), ("without", None)):
            made[name, kind] = Case(base / f"{name} {kind}", whole, orders, _COMPILING, hurried=True)
    for name, code in _BROKEN.items():
        for kind, orders in (("with", {}), ("without", None)):
            made[name, kind] = Case(base / f"{name} {kind}", _BEGIN + _PART + code, orders)
    run(list(made.values()))
    return made


@pytest.mark.parametrize("name", _SCRIPTS)
def test_loss_parameters_generators_and_output_are_bitwise_equal(cases, name):
    with_us, without = cases[name, "with"], cases[name, "without"]
    assert without.read("code") == "0", without.read("err")
    assert [with_us.read(one) for one in ("code", "out", "err")] == [
        without.read(one) for one in ("code", "out", "err")
    ]
    *left, left_rng = torch.load(with_us.folder / "end.pt")
    *right, right_rng = torch.load(without.folder / "end.pt")
    assert torch.equal(left_rng, right_rng)
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys() and one
        assert all(torch.equal(one[key], other[key]) for key in one)
    (path,) = with_us.traces.glob("*.trace")
    assert Trace(path).ended and len(Trace(path).steps) >= 2


@pytest.mark.parametrize("name", _BROKEN)
def test_what_is_said_of_an_exception_that_nobody_catches_is_equal_to_the_byte(cases, name):
    with_us, without = cases[name, "with"], cases[name, "without"]
    for one in ("code", "out", "err"):
        assert with_us.read(one) == without.read(one), with_us.read("err")
    assert "Error" in without.read("err") or without.read("out") == "mine\n"
