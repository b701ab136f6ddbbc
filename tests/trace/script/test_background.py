"""Digests beside the training: right or not there, in order, and nothing lost."""

import os
import sqlite3
import subprocess
import sys
import weakref
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
import xxhash
from torch import nn

from ckptcheck.errors import OutputError
from ckptcheck.state.digest import LINEAR_128, XXH3_128
from ckptcheck.state.tensor_bytes import linear_digest
from ckptcheck.trace.file import Trace, TraceWriter
from ckptcheck.trace.items import NONE, NONZERO, STEP, ZERO, Item, Sample
from ckptcheck.trace.measuring import Measurer
from ckptcheck.trace.script.background import Background
from ckptcheck.trace.script.resting import TRIALS

PARAM, GRAD = Item("param", "w"), Item("grad", "w")


class Bench:
    """A background with its trace file, and a hand on its thread."""

    def __init__(self, folder: Path, algorithm: str = XXH3_128, here: tuple[str, ...] = ("cpu", "meta")) -> None:
        self.path = folder / "x.trace"
        self.writer = TraceWriter(self.path, {"digest": algorithm})
        self.background = Background(Measurer(algorithm), self.writer, here)
        self.step = 0

    def moment(self, samples: dict[Item, Any]) -> None:
        self.step += 1
        self.background.write(self.step, STEP, samples)

    def trust(self, item: Item, tensor: torch.Tensor) -> None:
        """Let an item pass its trials: it rests from being handed over to the wait."""
        for _ in range(TRIALS):
            self.background.measure({}, [(item, tensor)])
            self.background.wait_all()

    def trust_early(self, gradient: torch.Tensor) -> None:
        for _ in range(TRIALS):
            self.background.measure_early([(GRAD, gradient)])
            self.background.measure_gradients({}, [(GRAD, gradient)])
            self.background.wait_gradients()

    def stop_the_thread(self) -> Event:
        """Have the thread wait for the event that is returned."""
        event, entered = Event(), Event()

        def wait() -> None:
            entered.set()
            event.wait(20)

        self.background._worker.do(wait)
        self.background.go()
        assert entered.wait(20)
        return event

    def read(self) -> Trace:
        self.background.close()
        self.writer.close(clean=True)
        return Trace(self.path)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def content(tensor: torch.Tensor) -> bytes:
    return xxhash.xxh3_128_digest(tensor.detach().numpy().tobytes())


def read_step(trace: Trace, step: int) -> dict[Item, Sample]:
    return trace.samples(step, STEP)


def test_what_rests_is_measured_by_the_thread_while_the_script_goes_on(bench):
    tensor, samples = torch.randn(64, 64), {}
    bench.trust(PARAM, tensor)
    release = bench.stop_the_thread()
    bench.background.measure(samples, [(PARAM, tensor)])
    bench.background.go()
    assert not isinstance(samples[PARAM], Sample)  # nobody has waited for it
    release.set()
    bench.background.wait_all()
    tensor.zero_()  # it need not rest any longer
    bench.moment(samples)
    (sample,) = read_step(bench.read(), 1).values()
    torch.manual_seed(0)
    assert sample.norm is not None and sample.digest != content(tensor)
    assert bench.background.moved == {}


WAYS_TO_MOVE = {
    "in place": lambda p: p.add_(1),
    "in place, where nobody looks": lambda p: p.view(-1)[7:8].add_(1),
    "by its data": lambda p: p.data.mul_(0.5),
    "by its data, to bounds": lambda p: p.data.clamp_(-0.5, 0.5),
    "through numpy": lambda p: p.numpy().__setitem__(0, 7.0),
    "its last number": lambda p: p.data.view(-1)[-1:].fill_(7.0),
    "by other data": lambda p: setattr(p, "data", p.data + 1),
    "by being swapped": lambda p: torch.utils.swap_tensors(p, p + 1),
    "to other data of its size and begin": lambda p: p.data.copy_(torch.cat([p.data[:1], p.data[1:] + 1])),
}


@pytest.mark.parametrize("move", WAYS_TO_MOVE.values(), ids=WAYS_TO_MOVE)
def test_a_trusted_item_that_moves_is_left_out_and_named_and_measured_at_once_from_then_on(bench, move):
    tensor, other = torch.randn(40, 40), torch.randn(40, 40)
    bench.trust(PARAM, tensor)
    bench.trust(Item("param", "other"), other)
    first, second = {}, {}
    release = bench.stop_the_thread()
    bench.background.measure(first, [(PARAM, tensor), (Item("param", "other"), other)])
    bench.background.go()
    move(tensor)
    release.set()
    bench.background.wait_all()
    bench.moment(first)
    release = bench.stop_the_thread()
    bench.background.measure(second, [(PARAM, tensor)])
    assert second[PARAM].digest == content(tensor)
    release.set()
    bench.moment(second)
    trace = bench.read()
    assert set(read_step(trace, 1)) == {Item("param", "other")}
    assert read_step(trace, 1)[Item("param", "other")].digest == content(other)
    assert [Item(*item) for item in trace.header["moved"]] == [PARAM]


@pytest.mark.parametrize("late", [True, False], ids=["thread late", "thread early"])
@pytest.mark.parametrize("move", WAYS_TO_MOVE.values(), ids=WAYS_TO_MOVE)
def test_what_is_left_out_of_two_runs_is_the_same_however_late_the_thread_is(bench, move, late):
    tensor, samples = torch.randn(40, 40), {}
    bench.trust(PARAM, tensor)
    release = bench.stop_the_thread() if late else None
    bench.background.measure(samples, [(PARAM, tensor)])
    bench.background.go()
    if release is None:
        bench.background._worker.idle()
    move(tensor)
    if release is not None:
        release.set()
    bench.background.wait_all()
    assert samples[PARAM].sample is None and list(bench.background.moved) == [PARAM]
    bench.background.close()


def test_a_trusted_item_that_moves_and_is_back_before_the_wait_is_measured_there(bench):
    """Weights that an average takes the place of for a while, of which nobody counts."""
    tensor, samples = torch.randn(40, 40), {}
    bench.trust(PARAM, tensor)
    held, backup = content(tensor), tensor.clone()
    release = bench.stop_the_thread()
    bench.background.measure(samples, [(PARAM, tensor)])
    tensor.data.fill_(3)
    release.set()
    bench.background.go()
    bench.background._worker.idle()
    assert samples[PARAM].sample is None
    tensor.data.copy_(backup)
    bench.background.wait_all()
    assert samples[PARAM].sample.digest == held and bench.background.moved == {}
    later: dict[Item, Any] = {}
    bench.background.measure(later, [(PARAM, tensor)])
    assert later[PARAM].digest == held  # and trusted no more
    bench.background.close()


@pytest.mark.parametrize("replace", [lambda p: p.data * 0.9 + 0.1, lambda p: p.data.clone()], ids=["changed", "equal"])
def test_a_tensor_that_is_given_other_memory_while_on_trial_is_never_trusted(bench, replace):
    """The average of MoCo, inside of a forward pass: `pk.data = pk.data * m + pq.data * (1 - m)`."""
    tensor = nn.Parameter(torch.randn(40, 40))
    for _ in range(TRIALS + 2):
        samples, held = {}, content(tensor)
        release = bench.stop_the_thread()
        bench.background.measure(samples, [(PARAM, tensor)])
        assert samples[PARAM].digest == held  # at once
        tensor.data = replace(tensor)
        release.set()
        bench.background.wait_all()
    assert bench.background.moved == {}
    bench.background.close()


def test_memory_that_is_taken_away_below_a_trusted_tensor_is_not_read(bench):
    tensor, samples = torch.randn(40, 40), {}
    bench.trust(PARAM, tensor)
    release = bench.stop_the_thread()
    bench.background.measure(samples, [(PARAM, tensor)])
    tensor.untyped_storage().resize_(0)
    release.set()
    bench.background.wait_all()
    assert samples[PARAM].sample is None and list(bench.background.moved) == [PARAM]
    bench.background.close()


@pytest.mark.parametrize("moves", [1, TRIALS], ids=["first", "last"])
def test_an_item_that_moves_on_trial_is_never_trusted_and_nothing_is_lost(bench, moves):
    tensor = torch.randn(4000)
    for turn in range(TRIALS + 2):
        samples, held = {}, content(tensor)
        bench.background.measure(samples, [(PARAM, tensor)])
        if turn + 1 == moves:
            tensor.numpy()[1234] += 1  # where nobody looks, and uncounted
        assert samples[PARAM].digest == held
        bench.background.wait_all()
        bench.moment(samples)
    trace = bench.read()
    assert all(len(read_step(trace, step)) == 1 for step in trace.steps) and "moved" not in trace.header


def test_what_is_never_trusted_is_measured_at_once(bench):
    leaves = {
        Item("inputs", "model", "0"): torch.randn(1000),
        Item("data", "x"): torch.randn(1000),
        Item("buffer", "running_mean"): torch.randn(1000),
        Item("state", "w", "step"): torch.tensor(3.0),
        Item("param", "strided"): torch.randn(50, 50).t(),
        Item("param", "sparse"): torch.eye(50).to_sparse(),
        Item("hyper", key="lr"): 0.1,
    }
    with torch.inference_mode():
        leaves[Item("param", "inferred")] = torch.randn(1000)
    for _ in range(TRIALS + 1):
        samples: dict[Item, Any] = {}
        bench.background.measure(samples, leaves.items())
        expected = {item: Measurer(XXH3_128).leaf(leaf) for item, leaf in leaves.items()}
        assert samples == expected
        bench.background.wait_all()
    bench.background.close()


def test_gradients_that_an_update_leaves_alone_are_measured_while_it_runs(bench):
    gradient, samples = torch.randn(3000), {}
    bench.trust_early(gradient)
    release = bench.stop_the_thread()
    bench.background.measure_early([(GRAD, gradient)])
    bench.background.measure_gradients(samples, [(GRAD, gradient)])
    assert len(bench.background._gradients.jobs) == 1  # and not twice
    release.set()
    bench.background.wait_gradients()
    bench.moment(samples)
    sample = read_step(bench.read(), 1)[GRAD]
    assert (sample.digest, sample.presence) == (content(gradient), NONZERO)


CHANGED_BY_AN_UPDATE = {
    "unscaled in place": lambda g: g.mul_(0.5),
    "unscaled by its data": lambda g: (g.data.mul_(0.5), g)[1],
    "replaced": lambda g: g + 1,
    "taken away": lambda g: None,
}


@pytest.mark.parametrize("when", ["on trial", "trusted"])
@pytest.mark.parametrize("change", CHANGED_BY_AN_UPDATE.values(), ids=CHANGED_BY_AN_UPDATE)
def test_gradients_that_an_update_changes_are_those_that_it_has_left(bench, change, when):
    gradient, expected = torch.randn(3000), []
    if when == "trusted":
        bench.trust_early(gradient)
    for step in range(1, 4):
        samples: dict[Item, Any] = {}
        bench.background.measure_early([(GRAD, gradient)])
        bench.background.go()
        if step == 1:
            changed = change(gradient)
            gradient = changed if isinstance(changed, torch.Tensor) else gradient
        else:
            changed = gradient
        bench.background.measure_gradients(samples, [(GRAD, changed)])
        bench.background.wait_gradients()
        bench.moment(samples)
        expected.append(None if changed is None else content(changed))
    trace = bench.read()
    assert [read_step(trace, step)[GRAD].digest for step in trace.steps] == expected
    assert trace.header.get("moved") is None


def test_a_gradient_begun_early_that_moves_after_the_update_is_left_out_and_named(bench):
    gradient, samples = torch.randn(3000), {}
    bench.trust_early(gradient)
    release = bench.stop_the_thread()
    bench.background.measure_early([(GRAD, gradient)])
    bench.background.measure_gradients(samples, [(GRAD, gradient)])
    gradient.data.zero_()  # cleared by hand, of which nobody tells
    release.set()
    bench.background.wait_gradients()
    bench.moment(samples | {PARAM: Sample(None, b"x" * 16)})
    trace = bench.read()
    assert set(read_step(trace, 1)) == {PARAM} and [Item(*item) for item in trace.header["moved"]] == [GRAD]


def test_gradients_that_are_cleared_inside_of_an_update_are_not_begun_early_again(bench):
    gradient = torch.randn(3000)
    bench.trust_early(gradient)
    bench.background.measure_early([(GRAD, gradient)])
    bench.background.wait_gradients()  # as where `backward` runs inside of `step`
    gradient.fill_(2)
    samples: dict[Item, Any] = {}
    bench.background.measure_gradients(samples, [(GRAD, gradient)])
    bench.background.wait_gradients()
    bench.moment(samples)
    bench.background.measure_early([(GRAD, gradient)])
    assert bench.background._early == {}
    assert read_step(bench.read(), 1)[GRAD].digest == content(gradient)


def test_absent_and_zero_and_tiny_gradients_are_three_things(bench):
    gradients = {"none": None, "zero": torch.zeros(3000), "tiny": torch.full((3000,), 1e-30), "one": torch.zeros(())}
    for _ in range(TRIALS + 1):
        samples: dict[Item, Any] = {}
        bench.background.measure_gradients(samples, [(Item("grad", name), one) for name, one in gradients.items()])
        bench.background.wait_gradients()
        bench.moment(samples)
    trace = bench.read()
    for step in trace.steps:
        presence = {item.name: sample.presence for item, sample in read_step(trace, step).items()}
        assert presence == {"none": NONE, "zero": ZERO, "tiny": NONZERO, "one": ZERO}


def run(folder: Path, algorithm: str, here: tuple[str, ...] = ("cpu", "meta")) -> list[Any]:
    """The tables of six steps of a small training, by their rows; parameters are measured when the next step begins."""
    folder.mkdir()
    bench = Bench(folder, algorithm, here)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 60), nn.BatchNorm1d(60), nn.Linear(60, 5))
    optimizer = torch.optim.AdamW(model.parameters())
    before: dict[Item, Any] = {}
    for _ in range(6):
        window: dict[Item, Any] = {}
        bench.background.measure(before, ((Item("buffer", name), one) for name, one in model.named_buffers()))
        bench.background.measure(before, ((Item("param", name), one) for name, one in model.named_parameters()))
        names = {one: name for name, one in model.named_parameters()}
        for one, entries in optimizer.state.items():
            bench.background.measure(
                before, ((Item("state", names[one], key, 0), leaf) for key, leaf in entries.items())
            )
        bench.background.go()
        loss = model(torch.randn(8, 30)).square().mean()
        bench.background.measure(window, [(Item("loss", "backward"), loss.detach())])
        loss.backward()
        bench.background.wait_all()
        bench.moment(before)
        gradients = [(Item("grad", name), one.grad) for name, one in model.named_parameters()]
        bench.background.measure_early(gradients)
        bench.background.go()
        optimizer.step()
        bench.background.measure_gradients(window, gradients)
        bench.background.wait_gradients()
        optimizer.zero_grad(set_to_none=False)
        before = window
    bench.read().close()
    base = sqlite3.connect(bench.path)
    tables = [base.execute(f"SELECT * FROM {name}").fetchall() for name in ("tensors", "steps", "records")]
    base.close()
    return tables


@pytest.mark.parametrize("algorithm", [XXH3_128, LINEAR_128])
def test_two_runs_give_identical_tables(tmp_path, algorithm):
    assert run(tmp_path / "one", algorithm) == run(tmp_path / "two", algorithm)


def test_what_is_measured_on_a_device_and_brought_over_later_is_what_is_measured_here(tmp_path):
    assert run(tmp_path / "here", LINEAR_128) == run(tmp_path / "device", LINEAR_128, here=())


def test_a_sample_on_a_device_is_of_what_was_there_when_it_was_handed_over(tmp_path):
    bench = Bench(tmp_path, LINEAR_128, here=())
    tensors = {"w": torch.randn(70_000), "b": torch.randn(3), "s": torch.tensor(2.5), "e": torch.zeros(0)}
    digests = {name: linear_digest(tensor) for name, tensor in tensors.items()}
    norm = float(torch.linalg.vector_norm(tensors["w"]))
    samples: dict[Item, Any] = {}
    bench.background.measure(samples, [(Item("param", name), tensor) for name, tensor in tensors.items()])
    for tensor in tensors.values():
        tensor.fill_(9)
    bench.moment(samples)
    found = read_step(bench.read(), 1)
    assert {item.name: sample.digest for item, sample in found.items()} == digests
    assert found[Item("param", "w")].norm == norm and found[Item("param", "s")].value == 2.5


def test_what_goes_wrong_on_the_thread_is_raised_by_the_next_call_once(bench):
    bench.moment({PARAM: Sample(None, b"x" * 16, value=1)})
    bench.writer.close(clean=True)
    bench.moment({PARAM: Sample(None, b"y" * 16, value=2)})
    bench.background.go()
    bench.background._worker.idle()
    with pytest.raises(OutputError, match="cannot be written"):
        bench.background.measure({}, [(PARAM, 1)])
    bench.background.measure({}, [(PARAM, 1)])
    bench.background.close()


def test_the_first_write_is_made_at_once_so_that_a_folder_that_cannot_be_written_shows_at_once(bench):
    bench.writer.close(clean=True)
    with pytest.raises(OutputError, match="cannot be written"):
        bench.moment({PARAM: Sample(None, b"x" * 16, value=1)})
    bench.background.close()


def test_a_fork_finds_nothing_held_and_the_child_records_nothing(bench):
    tensor = torch.randn(500, 500)
    bench.trust(PARAM, tensor)
    samples: dict[Item, Any] = {}
    bench.background.measure(samples, [(PARAM, tensor)])
    child = os.fork()
    if not child:
        bench.background.measure({}, [(PARAM, tensor)])
        bench.background.wait_all()
        bench.moment(samples)
        bench.background.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert samples[PARAM].sample.digest == content(tensor)  # a fork waits for it
    bench.background.wait_all()
    bench.moment(samples)
    assert bench.read().steps == [1]


def test_no_tensor_is_kept_past_the_wait(bench):
    for turn in range(TRIALS + 2):
        tensor, gradient = torch.randn(3000), torch.randn(3000)
        alive = [weakref.ref(tensor), weakref.ref(gradient)]
        stored = weakref.ref(tensor.untyped_storage())
        samples: dict[Item, Any] = {}
        bench.background.measure(samples, [(PARAM, tensor)])
        bench.background.measure_early([(GRAD, gradient)])
        bench.background.measure_gradients(samples, [(GRAD, gradient)])
        bench.background.wait_all()
        bench.moment(samples)
        del tensor, gradient
        assert [one() for one in (*alive, stored)] == [None] * 3, turn
    bench.read()


UNCLOSED = """
import atexit, os, sys, threading
from pathlib import Path
import torch
from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.items import Item
from ckptcheck.trace.measuring import Measurer
from ckptcheck.trace.script.background import Background

ways = {
    "comes to its end": lambda: None,
    "atexit raises": lambda: atexit.register(lambda: 1 / 0),
    "threading raises": lambda: threading._register_atexit(lambda: 1 / 0),
    "a thread trains on": lambda: threading.Thread(target=train, args=(3,)).start(),
}

def train(steps):
    for step in range(1, steps + 1):
        samples = {}
        background.measure(samples, [(Item("param", str(place)), one) for place, one in enumerate(tensors)])
        background.go()
        background.wait_all()
        background.write(step, "step", samples)
        background.wait_written()

for way, act in ways.items():
    child = os.fork()
    if child:
        print(way, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    writer = TraceWriter(Path(sys.argv[1]) / f"{way}.trace", {"digest": "linear_128"})
    background, tensors = Background(Measurer("linear_128"), writer), [torch.randn(900, 300) for _ in range(8)]
    train(3)
    background.measure({}, [(Item("param", str(place)), one) for place, one in enumerate(tensors)])
    background.go()
    assert background._worker._thread.is_alive()
    act()
    sys.exit(3)
"""
WAYS = ("comes to its end", "atexit raises", "threading raises", "a thread trains on")


def test_the_thread_has_ended_before_the_interpreter_is_taken_down_and_what_was_waited_for_is_in_the_file(tmp_path):
    """A thread that is inside of torch then aborts the process with signal 6, in about every second run."""
    command = [sys.executable, "-c", UNCLOSED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == [f"{way} 3" for way in WAYS]
    for way in WAYS:
        assert Trace(tmp_path / f"{way}.trace").steps[:3] == [1, 2, 3]


def test_a_trace_takes_at_most_64_bytes_a_row_without_another_index(tmp_path):
    """A hundred steps of a GPT of twelve blocks: each parameter with its gradient, both moments and counter."""
    generator = torch.Generator().manual_seed(0)
    writer = TraceWriter(tmp_path / "x.trace", {"digest": XXH3_128})
    spec, counter = Measurer(XXH3_128).tensor(torch.zeros(5, 5)).spec, Measurer(XXH3_128).tensor(torch.zeros(())).spec
    names = [f"transformer.h.{block}.{name}" for block in range(12) for name in ("attn.c_attn.weight", "ln_1.bias")]
    rows = 0
    for step in range(1, 101):
        content = torch.randint(256, (len(names) * 5, 16), generator=generator, dtype=torch.uint8).numpy()
        digests = iter(bytes(row) for row in content)
        samples = {
            **{Item("grad", name): Sample(spec, next(digests), NONZERO, norm=step / 7) for name in names},
            **{Item("state", name, key, 0): Sample(spec, next(digests), norm=step / 3)
               for name in names for key in ("exp_avg", "exp_avg_sq")},
            **{Item("state", name, "step", 0): Sample(counter, next(digests), value=float(step)) for name in names},
            **{Item("param", name): Sample(spec, next(digests), norm=step / 11) for name in names},
        }  # fmt: skip
        rows += len(samples)
        writer.write(step, STEP, samples.items())
    writer.close(clean=True)
    assert (tmp_path / "x.trace").stat().st_size / rows <= 64
    named = sqlite3.connect(tmp_path / "x.trace").execute("SELECT name FROM sqlite_master WHERE type = 'index'")
    assert [name for (name,) in named if not name.startswith("sqlite_autoindex")] == []
