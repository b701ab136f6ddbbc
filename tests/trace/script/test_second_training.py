"""A second training in one process: a new optimizer opens a step, and a resume at that place is found there."""

import pytest
import torch
from torch import nn

from ckptcheck import verbs
from ckptcheck.comparison.alignment import align
from ckptcheck.finding import Verdict
from ckptcheck.trace.items import LOAD, STEP, Item
from tests.trace.recording import of
from tests.trace.script.recorded import batch, kinds, model, record, steps


def fit(net, optimizer, first=0, count=3):
    for number in range(first, first + count):
        optimizer.zero_grad()
        net(batch(number)).square().sum().backward()
        optimizer.step()


def folds(begin=0):
    """Two models of the same shape, one after the other; the names of the first are let go of as they are in loops."""
    for fold in range(begin, 2):
        net = model(fold)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        fit(net, optimizer)


def folds_that_are_kept(begin=0, kept=None):
    kept = []
    for fold in range(begin, 2):
        net = model(fold)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        kept.append(optimizer)
        fit(net, optimizer)


def folds_with_schedules(begin=0):
    for fold in range(begin, 2):
        net = model(fold)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        for number in range(3):
            fit(net, optimizer, number, 1)
            schedule.step()


def head_first_then_backbone(begin=0, head=None):
    net = model()
    if not begin:
        optimizer = torch.optim.Adam(net[2].parameters(), lr=0.1)
        fit(net, optimizer)
        saved.update({key: one.clone() for key, one in net.state_dict().items()})
    else:
        net.load_state_dict(saved)
    optimizer = torch.optim.Adam(net[0].parameters(), lr=0.2)
    fit(net, optimizer, 3)


def head_first_then_everything(begin=0):
    net = model()
    if not begin:
        optimizer = torch.optim.SGD(net[2].parameters(), lr=0.1, momentum=0.9)
        fit(net, optimizer)
        saved.update({key: one.clone() for key, one in net.state_dict().items()})
    else:
        net.load_state_dict(saved)
    fit(net, torch.optim.Adam(net.parameters(), lr=0.2), 3)


def another_optimizer_over_the_same(begin=0):
    net = model()
    if not begin:
        fit(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
        saved.update({key: one.clone() for key, one in net.state_dict().items()})
    else:
        net.load_state_dict(saved)
    fit(net, torch.optim.Adam(net.parameters(), lr=0.2), 3)


saved = {}
SCRIPTS = [
    folds,
    folds_that_are_kept,
    folds_with_schedules,
    head_first_then_backbone,
    head_first_then_everything,
    another_optimizer_over_the_same,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.__name__)
def test_a_second_training_goes_on_counting_and_a_resume_between_both_is_placed_there(tmp_path, script):
    state = torch.get_rng_state()
    trace = record(tmp_path / "whole", script)
    assert trace.steps == [1, 2, 3, 4, 5, 6]
    for samples in steps(trace):
        updates = {item.optimizer: sample.value for item, sample in samples.items() if item.kind == "updates"}
        assert sum(updates.values()) == 1 and {item.optimizer for item in samples if item.kind == "hyper"} == {0}
        assert len(kinds(samples, "inputs")) == 1
    torch.set_rng_state(state)
    resumed = record(tmp_path / "resumed", lambda: script(1))
    assert resumed.steps == [1, 2, 3]
    placed = align(trace, resumed)
    assert (placed.step, placed.by) == (3, "content"), placed
    for step in (4, 5, 6):
        left, right = trace.samples(step, STEP), resumed.samples(step - 3, STEP)
        assert {item for item in left if item.kind == "state"} == {item for item in right if item.kind == "state"}
        # Gradients of what the second training leaves alone are left over from the first.
        same = [item for item in right if item.kind in ("param", "state", "hyper", "inputs", "updates")]
        same += [item for item in right if item.kind == "grad" and item.name.startswith("0.")]
        assert all(left[item].digest == right[item].digest for item in same)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.__name__)
def test_such_a_resume_passes(tmp_path, script):
    for name, begin in (("whole", 0), ("resumed", 1)):
        record(tmp_path / name, lambda begin=begin: script(begin))
    result = verbs.compare(tmp_path / "whole", tmp_path / "resumed")
    assert result.verdict is Verdict.PASS, [one.message for one in result.findings]


def test_what_the_first_training_left_is_in_the_step_before_the_second_begins(tmp_path):
    left = []

    def script():
        head, backbone = nn.Linear(3, 3), model()
        fit(head, torch.optim.SGD(head.parameters(), lr=0.1), count=2)
        left.append(of(head.weight))
        fit(backbone, torch.optim.SGD(backbone.parameters(), lr=0.1), count=2)
        left.append(of(backbone[0].weight))

    trace = record(tmp_path, script)
    assert trace.steps == [1, 2, 3, 4]
    assert kinds(trace.samples(2, STEP), "param")["Linear.weight"].digest == left[0]
    assert kinds(trace.samples(4, STEP), "param")["0.weight"].digest == left[1]


def test_optimizers_that_are_made_when_they_are_needed_still_make_one_step_with_one_that_was_there(tmp_path):
    def script():
        generator, discriminator = model(0), nn.Linear(2, 1)
        first = torch.optim.SGD(discriminator.parameters(), lr=0.1)
        second = torch.optim.SGD(generator.parameters(), lr=0.1)
        for number in range(3):
            for optimizer in (first, second):
                optimizer.zero_grad()
                discriminator(generator(batch(number))).sum().backward()
                optimizer.step()
            if number == 0:  # both are made anew, as after a warm-up
                first = torch.optim.Adam(discriminator.parameters(), lr=0.1)
                second = torch.optim.Adam(generator.parameters(), lr=0.1)

    trace = record(tmp_path, script)
    assert trace.steps == [1, 2, 3]
    for samples in steps(trace):
        assert [samples[Item("updates", optimizer=place)].value for place in (0, 1)] == [1, 1]
    assert kinds(trace.samples(3, STEP), "state")["Linear.weight.step"].value == 2


def test_a_new_optimizer_beside_one_that_goes_on_joins_its_steps(tmp_path):
    def script():
        net = model()
        head = torch.optim.SGD(net[2].parameters(), lr=0.1)
        fit(net, head, count=2)
        backbone = torch.optim.SGD(net[0].parameters(), lr=0.1)
        for number in range(2, 4):
            for one in (head, backbone):
                one.zero_grad()
            net(batch(number)).square().sum().backward()
            head.step()
            backbone.step()

    trace = record(tmp_path, script)
    assert trace.steps == [1, 2, 3, 4]
    assert trace.samples(0, LOAD)
    assert [
        sum(sample.value for item, sample in one.items() if item.kind == "updates") for one in steps(trace)
    ] == [1, 1, 2, 2]  # fmt: skip
