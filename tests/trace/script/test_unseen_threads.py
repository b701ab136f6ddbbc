"""A thread of ours that begins in the moment in which the script raises something in the thread that begins it."""

import _thread
import ctypes
import sys
import threading
import time

import pytest

from ckptcheck.trace.script.unseen_thread import UnseenThread


class _StopError(Exception):
    pass


@pytest.fixture
def stopping(monkeypatch):
    """Whoever begins a thread has `_StopError` raised in it, by its number, before the new one has a turn."""
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    number, kind = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(_StopError)
    name = "start_joinable_thread" if hasattr(_thread, "start_joinable_thread") else "start_new_thread"
    start = getattr(_thread, name)

    def start_and_stop(*args, **kwargs):
        given = start(*args, **kwargs)
        raise_in(number, kind)
        return given

    monkeypatch.setattr(_thread, name, start_and_stop)
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)


def _start_and_wait(thread):
    thread.start()
    for _ in range(300):
        time.sleep(0.01)


def test_what_is_raised_in_the_starter_arrives_there_and_the_thread_does_its_work(stopping):
    done = threading.Event()
    thread = UnseenThread(done.set)
    with pytest.raises(_StopError):
        _start_and_wait(thread)
    assert done.wait(10)
    thread.join()
    assert not thread.is_alive()
