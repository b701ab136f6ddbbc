"""Where recording begins in a process of a script: called once, when torch has been imported."""

import atexit
import os
import sys
from collections.abc import Callable

from ckptcheck.trace.script import load_calls, tracebacks
from ckptcheck.trace.script.guard import GUARD
from ckptcheck.trace.script.listening import Listening
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.notes import Notes
from ckptcheck.trace.script.optimizers import Optimizers
from ckptcheck.trace.script.orders import Orders, orders_of
from ckptcheck.trace.script.recording import Recording
from ckptcheck.trace.script.said import said_by_itself
from ckptcheck.trace.script.sections import Sections


def start() -> None:
    """Listen to this process, as the environment says."""
    orders = orders_of()
    if orders is None:
        return
    undo: list[Callable[[], None]] = []
    living: list[Recording] = []
    """The recording, until it ends: what the interpreter keeps to its end must hold nothing of the script."""

    def leave() -> None:
        while undo:
            undo.pop()()

    def began() -> None:
        if os.getpid() != process:
            _at_exit_of_child(end)

    def end() -> None:
        # Registered before the script could register anything, and so run last.
        leave()
        print_as_ever()
        if living:
            GUARD.run(living[0].end, _raised())
        living.clear()
        GUARD.forget()

    def forked() -> None:
        # A child of a training is none of its processes; one made before is a process of its own, which may train.
        if living and not living[0].touched and not GUARD.off_in_parent:
            GUARD.watch(living[0].broken, leave)
            living[0].forked()

    process = os.getpid()
    print_as_ever = tracebacks.listen()  # a pass through a wrapper may still be in progress when hooks are taken away
    living.append(_listening(orders, undo, began))
    GUARD.watch(living[0].broken, leave)
    os.register_at_fork(after_in_child=forked)
    atexit.register(end)


def _listening(orders: Orders, undo: list[Callable[[], None]], began: Callable[[], None]) -> Recording:
    """A recording that is told of everything; `undo` gets what takes that away again."""
    modules, optimizers, notes = Modules(), Optimizers(), Notes()
    sections = Sections(modules)
    recording = Recording(orders, modules, optimizers, sections, notes, began=began, over=GUARD.switch_off)
    listening = Listening(recording, modules, optimizers, notes)
    undo += [one.listen() for one in (modules, optimizers, sections, listening)]
    undo.append(load_calls.listen(recording))
    return recording


def _at_exit_of_child(end: Callable[[], None]) -> None:
    """Children of multiprocessing that were forked end without running what is registered with atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, end, exitpriority=0)


def _raised() -> str:
    """The exception that ends the interpreter, as far as it tells: it notes the one that nobody caught."""
    error = getattr(sys, "last_value", None)
    return said_by_itself(error) if isinstance(error, BaseException) else ""
