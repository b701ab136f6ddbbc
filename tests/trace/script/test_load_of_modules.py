"""The load holds what every module began with, also of those that become known only when the training has begun."""

import pytest
import torch
from torch import nn

from ckptcheck.trace.items import LOAD, Item
from tests.trace.recording import of
from tests.trace.script.recorded import batch, kinds, model, record


def distil(teacher, student, grad):
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for number in range(2):
        out = student(batch(number))
        with torch.set_grad_enabled(grad):
            target = teacher(batch(number))
        (out - target).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("grad", [False, True])
def test_a_teacher_that_is_called_after_the_student_is_part_of_the_load(tmp_path, grad):
    teacher = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).requires_grad_(False)
    before = {name: of(one) for name, one in teacher.state_dict().items()}
    trace = record(tmp_path, lambda: distil(teacher, Student(), grad))
    load, first = trace.samples(0, LOAD), trace.samples(1, "step")
    found = {**kinds(load, "param"), **kinds(load, "buffer")}
    assert {name: one.digest for name, one in found.items() if name.startswith("Sequential.")} == {
        f"Sequential.{name}": one for name, one in before.items()
    }
    assert {item for item in load if item.kind in ("param", "buffer")} == {
        item for item in first if item.kind in ("param", "buffer")
    }
    # Its statistics move while it is called: the load has them as they were before.
    assert first[Item("buffer", "Sequential.1.num_batches_tracked")].digest == of(torch.tensor(1))


class Student(nn.Module):
    """With a buffer that each forward pass makes anew."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, data):
        self.calls = self.calls + 1
        return self.layer(data)


def test_what_a_forward_pass_makes_anew_is_in_the_load_as_it_was_before(tmp_path):
    teacher = nn.Linear(3, 2).requires_grad_(False)
    trace = record(tmp_path, lambda: distil(teacher, Student(), grad=False))
    assert trace.samples(0, LOAD)[Item("buffer", "calls")].digest == of(torch.zeros(1))
    assert trace.samples(1, "step")[Item("buffer", "calls")].digest == of(torch.ones(1))


def test_an_optimizer_that_is_made_after_the_first_forward_pass_leaves_the_load_its_names(tmp_path):
    begun = {}

    def script():
        net = model(0, nn.BatchNorm1d(4))
        begun.update({name: of(one) for name, one in net.state_dict().items()})
        out = net(batch(0))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        out.sum().backward()
        optimizer.step()
        net(batch(1)).sum().backward()
        optimizer.step()

    load = record(tmp_path, script).samples(0, LOAD)
    found = {**kinds(load, "param"), **kinds(load, "buffer")}
    assert {name: one.digest for name, one in found.items()} == begun


def test_two_teachers_of_one_class_have_the_names_that_they_have_later(tmp_path):
    teachers = [nn.Linear(3, 2).requires_grad_(False) for _ in range(2)]

    def script():
        student = Student()
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for number in range(2):
            out = student(batch(number))
            for one in teachers:
                with torch.no_grad():
                    target = one(batch(number))
                out = out - target
            out.sum().backward()
            optimizer.step()

    trace = record(tmp_path, script)
    load, first = trace.samples(0, LOAD), trace.samples(1, "step")
    for place, one in enumerate(teachers, 1):
        assert load[Item("param", f"Linear#{place}.weight")].digest == of(one.weight)
    assert {item for item in load if item.kind == "param"} == {item for item in first if item.kind == "param"}
