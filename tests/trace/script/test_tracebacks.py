"""What the interpreter prints of an exception that nobody caught is what it would print without us."""

import sys
import threading
import traceback

import pytest
import torch
from torch import nn

from ckptcheck.trace.script import tracebacks
from ckptcheck.trace.script.wrapping import tell_before


class Part(nn.Module):
    """Raises in its forward pass."""

    def forward(self, data):
        try:
            raise KeyError("one")
        except KeyError as error:
            raise ValueError("two") from error


class OddError(Exception):
    """Says nothing of where it came from."""

    @property
    def __cause__(self):
        raise ArithmeticError


def raised(call):
    try:
        call()
    except ValueError as error:
        return error
    raise AssertionError


def ours(error):
    return [one.filename for one in traceback.extract_tb(error.__traceback__) if "ckptcheck/trace" in one.filename]


@pytest.fixture
def told():
    """`Part` with a wrapper of ours around its call."""
    undo = tell_before(nn.Module, "__call__", lambda *_, **__: None)
    yield
    undo()


def test_our_frames_are_taken_out_of_an_exception_and_of_all_that_it_came_of(told):
    net = nn.Sequential(nn.Sequential(Part()))
    error = raised(lambda: net(torch.ones(1)))
    assert ours(error)
    group = ExceptionGroup("all", [error, raised(lambda: net(torch.ones(1)))])
    later = raised(lambda: net(torch.ones(1)))
    later.__context__ = group
    for one in (error, later, *group.exceptions):
        assert ours(one)
    names = [one.name for one in traceback.extract_tb(error.__traceback__) if "ckptcheck/trace" not in one.filename]
    tracebacks.strip(later)
    for one in (error, later, *group.exceptions, error.__cause__):
        assert not ours(one)
    assert [one.name for one in traceback.extract_tb(error.__traceback__)] == names


def test_an_exception_that_is_odd_or_all_ours_or_refers_to_itself_is_no_trouble(told):
    tracebacks.strip(OddError())
    tracebacks.strip(ValueError())
    one = raised(lambda: nn.Sequential(Part())(torch.ones(1)))
    one.__context__, other = ValueError(), one
    one.__context__.__context__ = other
    tracebacks.strip(one)
    assert not ours(one)


def test_only_hooks_of_the_interpreter_are_replaced_and_they_come_back(monkeypatch):
    def own(*_): ...

    for owner in (sys, threading):
        monkeypatch.setattr(owner, "excepthook", owner.__excepthook__)
    undo = tracebacks.listen()
    assert sys.excepthook is not sys.__excepthook__ and threading.excepthook is not threading.__excepthook__
    undo()
    assert sys.excepthook is sys.__excepthook__ and threading.excepthook is threading.__excepthook__
    for owner in (sys, threading):
        monkeypatch.setattr(owner, "excepthook", own)
    tracebacks.listen()()
    assert sys.excepthook is own and threading.excepthook is own
    for owner in (sys, threading):
        monkeypatch.setattr(owner, "excepthook", owner.__excepthook__)
    undo = tracebacks.listen()
    sys.excepthook = own  # the script's own, set later
    undo()
    assert sys.excepthook is own and threading.excepthook is threading.__excepthook__
