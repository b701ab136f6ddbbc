"""What the orders leave out of a trace, and where they have a recording stop or wait."""

import fcntl
import json
import sqlite3
import threading
import time
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import nn

from ckptcheck.trace.items import END, LOAD, STEP, Item
from ckptcheck.trace.reading import Trace
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.rendezvous import ALIVE, SIGNALLED, Rendezvous
from ckptcheck.trace.whole_steps import whole_steps
from tests.trace.recording import of
from tests.trace.script.recorded import batch, kinds, model, record, recording

BEGIN = {"rng", "hyper", "structure"}
LATE = {"param", "state", "buffer", "updates"}


def train(updates=6, seen=None):
    net = model(0, nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for number in range(updates):
        optimizer.zero_grad()
        loss = net(batch(number)).square().sum()
        loss.backward()
        if seen is not None:
            seen.append({"loss": loss.detach().clone(), "grad": net[0].weight.grad.clone()})
        optimizer.step()
        if seen is not None:
            seen[-1] |= {"param": net[0].weight.detach().clone()}
            seen[-1] |= {"state": optimizer.state[net[0].weight]["momentum_buffer"].clone()}
    return net


def contents(trace, step, moment=STEP):
    """What a moment holds, but the generators, which go on from one training of a test to the next."""
    return {item: (one.digest, one.value) for item, one in trace.samples(step, moment).items() if item.kind != "rng"}


def in_progress(folder, look):
    """What there is to see in a trace that somebody writes."""
    trace = Trace(folder / "rank-0.trace")
    try:
        return look(trace)
    finally:
        trace.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Everything of six steps."""
    return record(tmp_path_factory.mktemp("whole"), train)


@pytest.mark.parametrize("every", [2, 4, 100])
def test_every_nth_step_is_whole_and_the_one_after_it_has_what_it_began_with(tmp_path, whole, every):
    trace = record(tmp_path, train, every=every)
    assert trace.header["every"] == every and trace.ended
    sampled = [step for step in range(1, 7) if step % every == 0]
    assert trace.steps == sorted({*sampled, *(step + 1 for step in (0, *sampled) if step < 6)})
    assert contents(trace, 0, LOAD) == contents(whole, 0, LOAD)
    for step in trace.steps:
        kept = contents(whole, step)
        if step not in sampled:
            kept = {item: one for item, one in kept.items() if item.kind in BEGIN}
        assert contents(trace, step) == kept, step
    assert {item.kind for item in trace.samples(6, END)} == {"rng"}


def test_a_resumed_run_samples_the_steps_of_the_training_that_it_goes_on_with(tmp_path):
    trace = record(tmp_path, train, every=3, first_step=4, always=(1,))
    assert whole_steps(trace) == [1, 2, 5], "1 as it was asked for, the others as they are steps 6 and 9"
    assert trace.steps == [1, 2, 3, 5, 6]


def test_only_what_was_asked_for_is_sampled_and_the_header_says_so_from_the_start(tmp_path, whole):
    only = ("0.*", "*.running_mean")
    with recording(tmp_path, only=only) as recorder:
        train()
        # The trace as it is while the training goes on: who is killed now must not seem to lack the rest.
        header = in_progress(tmp_path, lambda trace: trace.header)
        assert header["only"] == list(only) and header["grads"] is True and "ended" not in header
    assert recorder.cost_s > 0
    trace = Trace(tmp_path / "rank-0.trace")
    for step, moment in whole.moments:
        kept = {
            item: one
            for item, one in contents(whole, step, moment).items()
            if item.kind not in ("param", "buffer", "grad", "state")
            or item.name.startswith("0.")
            or item.name.endswith("running_mean")
        }
        assert contents(trace, step, moment) == kept, (step, moment)


def test_without_gradients_everything_else_is_there(tmp_path, whole):
    with recording(tmp_path, grads=False):
        train()
        assert in_progress(tmp_path, lambda trace: trace.header)["grads"] is False
    trace = Trace(tmp_path / "rank-0.trace")
    for step in whole.steps:
        kept = {item: one for item, one in contents(whole, step).items() if item.kind != "grad"}
        assert contents(trace, step) == kept and not kinds(trace.samples(step, STEP), "grad")


def test_who_asks_for_all_gets_a_header_that_leaves_nothing_out(whole):
    assert "only" not in whole.header and "grads" not in whole.header


@pytest.mark.parametrize(("last", "found"), [(1, 1), (3, 3), (6, 6), (9, 6)])
def test_recording_stops_after_the_last_step_with_what_the_next_one_began_with(tmp_path, whole, last, found):
    rng = []

    def script():
        net = model(0, nn.BatchNorm1d(4), nn.Dropout(0.5))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for number in range(6):
            rng.append(of(torch.get_rng_state()))
            net(batch(number)).sum().backward()
            optimizer.step()
        rng.append(of(torch.get_rng_state()))

    trace = record(tmp_path, script, last_step=last)
    assert trace.steps == list(range(1, found + 1)) and trace.ended
    assert trace.header.get("stopped_after") == (last if last < 6 else None)
    assert trace.samples(found, END)[Item("rng", "torch")].digest == rng[found]
    assert {"param", "grad", "state"} - {"state"} <= {item.kind for item in trace.samples(found, STEP)}


def test_wanted_tensors_are_laid_out_as_they_were(tmp_path):
    items = {
        "param": Item("param", "0.weight"),
        "grad": Item("grad", "0.weight"),
        "state": Item("state", "0.weight", "momentum_buffer", 0),
        "loss": Item("loss", "backward"),
    }
    entering = Item("inputs", "", "0")
    rows = [{"step": step, "moment": STEP, "items": [*items.values(), entering]} for step in (2, 3, 6)]
    rows += [{"step": 0, "moment": LOAD, "items": [items["param"], items["state"]]}]
    (tmp_path / "wanted").write_text(json.dumps(rows))
    seen = []
    record(
        tmp_path / "traces", lambda: train(seen=seen), capture=tmp_path / "laid", wanted=tmp_path / "wanted"
    )  # fmt: skip
    for step in (2, 3, 6):
        laid = read(tmp_path / "laid", step, STEP)
        for kind, item in items.items():
            assert laid[item] == seen[step - 1][kind].numpy().tobytes(), (step, kind)
        assert laid[entering] == batch(step - 1).numpy().tobytes()
    assert list(read(tmp_path / "laid", 0, LOAD)) == [items["param"]]
    assert not list((tmp_path / "laid").glob("1-*")) + list((tmp_path / "laid").glob("4-*"))


def read(folder, step, moment):
    """The bytes of each item that was laid out."""
    content = (folder / f"{step}-{moment}.bin").read_bytes()
    rows = json.loads((folder / f"{step}-{moment}.json").read_text())
    sizes = {"F32": 4, "float32": 4}
    found = {}
    for one in rows:
        count = 1
        for size in one["shape"]:
            count *= size
        found[Item(*one["item"])] = content[one["offset"] : one["offset"] + count * sizes[one["dtype"]]]
    return found


@contextmanager
def parent(control, name, then):
    """A parent that does `then` when a process of rank 0 waits, and then lets go of everything."""
    control.mkdir()
    alive = (control / ALIVE).open("w")
    fcntl.flock(alive, fcntl.LOCK_EX)
    met = []

    def wait():
        until = time.monotonic() + 60
        while time.monotonic() < until and not list(control.glob(f"{name}.0.*")):
            time.sleep(0.005)
        try:
            (path,) = control.glob(f"{name}.0.*")
            met.append(json.loads(path.read_text())["step"])
            met.append(then())
        finally:
            (control / SIGNALLED).touch()
            fcntl.flock(alive, fcntl.LOCK_UN)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield met
    finally:
        thread.join()
        alive.close()


@pytest.mark.parametrize("last", [1, 3])
def test_who_is_held_after_the_last_step_has_written_all_of_it_and_has_a_trace_that_ended(tmp_path, whole, last):
    def look():
        return in_progress(tmp_path / "traces", lambda one: (one.steps, one.ended, contents(one, last)))

    with parent(tmp_path / "control", "stopped", look) as met:
        trace = record(tmp_path / "traces", train, last_step=last, hold=True, control=tmp_path / "control")
    assert met == [last, (list(range(1, last + 1)), True, contents(whole, last))]
    assert trace.steps == list(range(1, last + 1))


@pytest.mark.parametrize("step", [1, 3, 5])
def test_who_waits_for_a_signal_has_written_the_step_before(tmp_path, whole, step):
    def look():
        return in_progress(tmp_path / "traces", lambda one: (one.steps, contents(one, step)))

    with parent(tmp_path / "control", "signal", look) as met:
        trace = record(tmp_path / "traces", train, signal_after=(15, step), control=tmp_path / "control")
    assert met == [step, (list(range(1, step + 1)), contents(whole, step))]
    assert trace.steps == whole.steps and trace.ended
    assert all(contents(trace, one) == contents(whole, one) for one in whole.steps)


@pytest.mark.parametrize("step", [2, 3])
def test_a_signal_comes_between_the_steps_of_a_pair_and_not_in_the_middle_of_one(tmp_path, step):
    def script():
        generator, discriminator = model(0), nn.Linear(2, 1)
        one = torch.optim.SGD(discriminator.parameters(), lr=0.1)
        two = torch.optim.SGD(generator.parameters(), lr=0.1)
        for number in range(4):
            for optimizer in (one, two):
                optimizer.zero_grad()
                discriminator(generator(batch(number))).sum().backward()
                optimizer.step()

    def look():
        return in_progress(tmp_path / "traces", lambda one: (one.steps, contents(one, step)))

    with parent(tmp_path / "control", "signal", look) as met:
        trace = record(tmp_path / "traces", script, signal_after=(15, step), control=tmp_path / "control")
    assert met == [step, (list(range(1, step + 1)), contents(trace, step))]
    for one in (1, 2, 3, 4):
        assert [contents(trace, one)[Item("updates", optimizer=place)][1] for place in (0, 1)] == [1, 1]
    assert trace.steps == [1, 2, 3, 4]


def test_who_reads_a_trace_keeps_nobody_from_ending_it(tmp_path, monkeypatch, whole):
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    with recording(tmp_path):
        train()
        reader = Trace(tmp_path / "rank-0.trace")
        rows = reader._base.execute("SELECT * FROM records")
        rows.fetchone()  # in the middle of reading
    trace = Trace(tmp_path / "rank-0.trace")
    assert trace.ended and trace.steps == whole.steps
    assert contents(trace, 6) == contents(whole, 6)
    rows.close()
    reader.close()


def test_a_process_keeps_its_rank_when_it_has_ended_its_process_group(tmp_path, monkeypatch):
    told = Rendezvous(Orders(traces=tmp_path, control=tmp_path))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    told.step_done(1)
    monkeypatch.delenv("RANK")
    told.step_done(2)
    (path,) = tmp_path.glob("step.*")
    assert path.name.startswith("step.1.") and int(path.read_text()) == 2
