"""How scripts end, and what is then in the trace; what goes wrong in the recorder, and what the script sees of it."""
# ruff: noqa: E501 (scripts as texts)

import pytest

from ckptcheck.trace.items import END
from ckptcheck.trace.reading import Trace
from tests.trace.script.many import Case, run

_TRAINING = """
import atexit, os, shutil, signal, sys, threading
import torch

model = torch.nn.Linear(3, 2)
optimizer = torch.optim.Adam(model.parameters())

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()

"""
_SCRIPTS = {
    "comes to its end": "train(5)\nprint('done')",
    "is killed": "train(5)\nos.kill(os.getpid(), signal.SIGKILL)",
    "leaves by os._exit": "train(5)\nos._exit(4)",
    "raises": "train(5)\nraise ValueError('no')",
    "leaves by sys.exit": "train(5)\nsys.exit(7)",
    "catches SIGTERM": "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\ntrain(5)\n"
    "os.kill(os.getpid(), signal.SIGTERM)",
    "trains in a function": "def main():\n    model = torch.nn.Linear(3, 2)\n    optimizer = torch.optim.Adam(model.parameters())\n"
    "    for _ in range(5):\n        model(torch.ones(4, 3)).sum().backward()\n        optimizer.step()\nmain()",
    "forks": "train(3)\nchild = os.fork()\ntrain(2)\nif not child: sys.exit(0)\nos.waitpid(child, 0)",
    "trains in a child": "child = os.fork()\nif not child: train(5)\nelse: os.waitpid(child, 0)",
    "trains in a child of multiprocessing": "import multiprocessing\n"
    "one = multiprocessing.get_context('fork').Process(target=train, args=(5,))\none.start()\none.join()",
    "trains in a thread": "one = threading.Thread(target=train, args=(5,))\none.start()\none.join()",
    "trains through nn.DataParallel": "model = torch.nn.DataParallel(model)\ntrain(5)",
    "ends its process group before itself": "import torch.distributed as group\n"
    "group.init_process_group('gloo', init_method=f'file://{os.getcwd()}/meet', rank=0, world_size=1)\n"
    "model = torch.nn.parallel.DistributedDataParallel(model)\ntrain(5)\ngroup.destroy_process_group()",
    "trains two models in two threads": "def run():\n    model = torch.nn.Linear(3, 2)\n"
    "    optimizer = torch.optim.Adam(model.parameters())\n    for _ in range(20):\n        optimizer.zero_grad()\n"
    "        model(torch.ones(4, 3)).sum().backward()\n        optimizer.step()\n    print('done')\n"
    "each = [threading.Thread(target=run) for _ in range(2)]\nfor one in each: one.start()\nfor one in each: one.join()",
    "cleans up at its end": "atexit.register(lambda: print('cleaned', model(torch.ones(1, 3)).shape[0]))\ntrain(5)",
    "its folder is removed": "train(2)\nshutil.rmtree('traces')\ntrain(3)\nprint('done')",
    "has a state that cannot be read": "class Odd:\n    def __eq__(self, other): raise ArithmeticError('odd')\n"
    "    def __len__(self): raise ArithmeticError('odd')\n    def __bool__(self): raise ArithmeticError('odd')\n"
    "    def __repr__(self): raise ArithmeticError('odd')\n"
    "optimizer.param_groups[0]['odd'] = Odd()\ntrain(5)\nprint('done')",
    "has a schedule that raises": "class Odd(torch.optim.lr_scheduler.StepLR):\n"
    "    def state_dict(self): raise ArithmeticError('odd\\nstate')\n"
    "schedule = Odd(optimizer, 1)\ntrain(5)\nprint('done')",
    "has a handler that raises": "class Preempted(Exception): pass\n"
    "def handler(*_): raise Preempted\nsignal.signal(signal.SIGALRM, handler)\n"
    "from ckptcheck.trace.script.guard import GUARD\n"  # as if the alarm rang in the middle of a hook
    "train(2)\ntry: GUARD.run(os.kill, os.getpid(), signal.SIGALRM)\nexcept Preempted: print('preempted')\ntrain(3)",
}
_FULL = "train(5)\nprint('done')"


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    base = tmp_path_factory.mktemp("ends")
    (base / "a file").write_text("")
    made = {name: Case(base / name, _TRAINING + code) for name, code in _SCRIPTS.items()}
    made["has nowhere to write"] = Case(
        base / "has nowhere to write", _TRAINING + _FULL, {"traces": base / "a file" / "in"}
    )
    made["writes to a full disk"] = Case(
        base / "writes to a full disk",
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n" + _TRAINING + "train(150)\nprint('done')",
    )
    made["stops early"] = Case(base / "stops early", _TRAINING + _FULL, {"last_step": 3})
    run(list(made.values()))
    return made


@pytest.mark.parametrize(
    ("name", "code", "whole", "ended"),
    [
        ("comes to its end", 0, 5, "clean"),
        ("is killed", -9, 4, None),
        ("leaves by os._exit", 4, 4, None),
        ("raises", 1, 5, "raised"),
        ("leaves by sys.exit", 7, 5, "clean"),
        ("catches SIGTERM", 3, 5, "clean"),
        ("trains in a function", 0, 5, "clean"),
        ("forks", 0, 5, "clean"),
        ("trains in a child", 0, 5, "clean"),
        ("trains in a child of multiprocessing", 0, 5, "clean"),
        ("trains in a thread", 0, 5, "clean"),
        ("cleans up at its end", 0, 5, "clean"),
        ("has a handler that raises", 0, 5, "clean"),
        ("stops early", 0, 3, "clean"),
        ("trains through nn.DataParallel", 0, 5, "clean"),
        ("ends its process group before itself", 0, 5, "clean"),
    ],
)
def test_the_trace_of_a_script_has_its_whole_steps_and_says_how_it_ended(cases, name, code, whole, ended):
    case = cases[name]
    assert int(case.read("code")) == code, case.read("err")
    assert "ckptcheck" not in case.read("err")
    (path,) = case.traces.glob("*.trace")
    trace = Trace(path)
    assert trace.steps[:whole] == list(range(1, whole + 1)) and len(trace.steps) <= 5
    assert trace.header.get("ended") == ended
    assert ((trace.steps[-1], END) in trace.moments) == (ended is not None)
    for step in trace.steps:
        assert {"param", "state", "grad", "inputs"} <= {item.kind for item in trace.samples(step, "step")}


def test_the_exception_that_ended_a_script_is_told(cases):
    trace = Trace(next(cases["raises"].traces.glob("*.trace")))
    assert trace.header["raised"] == "ValueError: no" and not trace.ended
    assert "ValueError: no" in cases["raises"].read("err")


def test_a_script_that_goes_on_after_the_last_step_is_left_alone(cases):
    case = cases["stops early"]
    trace = Trace(next(case.traces.glob("*.trace")))
    assert trace.header["stopped_after"] == 3 and case.read("out") == "done\n"
    assert trace.samples(3, END)


@pytest.mark.parametrize(
    ("name", "said", "steps"),
    [
        ("has nowhere to write", "cannot be written", None),
        ("writes to a full disk", "cannot be written", 1),
        ("has a schedule that raises", "ArithmeticError: odd state", None),
    ],
)
def test_what_goes_wrong_is_said_in_one_line_and_the_training_goes_on(cases, name, said, steps):
    case = cases[name]
    assert case.read("code") == "0" and case.read("out") == "done\n"
    (line,) = case.read("err").splitlines()
    assert line.startswith("ckptcheck: recording stopped at step ") and line.endswith("; the training goes on")
    assert said in line
    for path in case.traces.glob("*.trace"):
        assert steps is not None
        trace = Trace(path)
        assert not trace.ended and trace.steps[:steps] == list(range(1, steps + 1))


@pytest.mark.parametrize("name", ["its folder is removed", "has a state that cannot be read"])
def test_oddities_leave_the_script_alone(cases, name):
    case = cases[name]
    assert case.read("code") == "0" and case.read("out") == "done\n"
    assert len(case.read("err").splitlines()) <= 1


def test_two_threads_that_train_two_models_both_come_to_their_end(cases):
    case = cases["trains two models in two threads"]
    assert case.read("code") == "0" and case.read("out") == "done\ndone\n"
    assert len(case.read("err").splitlines()) <= 1
    (path,) = case.traces.glob("*.trace")
    assert Trace(path).steps


def test_what_the_script_registered_to_run_at_its_end_runs(cases):
    assert cases["cleans up at its end"].read("out") == "cleaned 1\n"


def test_what_a_signal_handler_raises_in_a_hook_is_the_scripts_own(cases):
    assert cases["has a handler that raises"].read("out") == "preempted\n"
