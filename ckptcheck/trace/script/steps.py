"""The step of a script that is in progress: from windows and updates to steps that are over.

When a step is over is known only with the first update that is none of its own. So the step before the window in
progress is sampled to its end when that window begins, and kept until then.
"""

import threading
from dataclasses import replace
from typing import Any

from torch import nn

from ckptcheck.trace.items import Item
from ckptcheck.trace.script.background import Samples
from ckptcheck.trace.script.holding import Pending, Window, is_stepping, joined
from ckptcheck.trace.script.notes import Notes
from ckptcheck.trace.script.optimizers import Optimizers, members
from ckptcheck.trace.script.present import Present
from ckptcheck.trace.script.taking import Taking
from ckptcheck.trace.script.windows import Windows


class Steps:
    """Keeps what is sampled of the step in progress.

    `window` is the window in progress, and `resting` says that its update has happened, so that the next one may
    begin. `ended` is the step before it, sampled to its end and not written, as the window may still join it. `load`
    is what was there before the first forward pass, until it is written.
    """

    def __init__(self, present: Present, taking: Taking, optimizers: Optimizers, notes: Notes) -> None:
        self._present = present
        self._taking = taking
        self._optimizers = optimizers
        self._notes = notes
        self._windows = Windows()
        self._doubt: Window | None = None
        self._pending: dict[int, Pending] = {}
        self._left = False
        """Whether the step in progress was sampled because a model or an optimizer was about to die."""
        self.window: Window | None = None
        self.ended: Window | None = None
        self.load: Samples | None = None
        self.resting = False

    @property
    def number(self) -> int:
        """The number of the step in progress, 0 before the first update."""
        return self._windows.step

    @property
    def looks_complete(self) -> bool:
        """Whether every optimizer of the step before has updated in this one; nobody knows in the first step."""
        return self._windows.looks_complete

    # Windows.

    def entered(self, module: nn.Module) -> Window | None:
        """The window that a forward pass with gradients belongs to, if to any."""
        if self.window is not None and not self.resting:
            return self.window
        if not self._present.trains(module):
            return self._doubted(module)
        self._doubt = None
        return self.begin()

    def _doubted(self, module: nn.Module) -> Window | None:
        """Where to keep a forward pass that may begin a window or not; None for a module without parameters."""
        if next(module.parameters(), None) is None:
            return None  # a transform of the data, a criterion
        if self._doubt is None:
            self._doubt = Window()
            if self._taking.samples_around(self.number):
                self._taking.generators(self._doubt.samples)
                if not self.number and self.window is None:
                    self._taking.buffers(self._doubt.samples)
        return self._doubt

    def doubt_no_more(self) -> None:
        """A forward pass in doubt belongs to no window."""
        self._doubt = None

    def begin(self) -> Window:
        """The window in progress; a new one where an update has happened since, or nothing has."""
        if self.window is not None and not self.resting:
            return self.window
        doubt, self._doubt = self._doubt, None
        sampled = self._taking.samples_around(self.number)
        if sampled:
            before = self._present.subjects.names() if doubt is not None and self.window is None else None
            self._present.renew()
            if doubt is not None and before is not None and not self.number:
                self._taking.buffers_renamed(doubt.samples, before)
        if self.window is not None:
            self.rest(anew=True)
        elif self.load is None and not self.number:
            self.load = self._taking.load(doubt.samples if doubt is not None else {})
        self.window = doubt or Window()
        if sampled and doubt is None:
            self._taking.generators(self.window.samples)
        return self.window

    def rest(self, *, anew: bool = False) -> None:
        """The step of the window has ended, as far as is known; `anew` if it goes on with other objects than died."""
        window = self.window
        assert window is not None
        if self._taking.samples(self.number):
            if anew and self._left and self._present.optimizers():
                self._taking.drop_rest(window.samples)
            self._taking.rest(self.number, window)
        self.ended, self.resting, self._left = window, False, False

    def leaves(self) -> None:
        """A model or an optimizer is about to die: what the step in progress leaves is there for the last time."""
        if self.window is not None and self.resting and self._taking.samples(self.number):
            self._taking.rest(self.number, self.window)
            self._left = True
        self._present.forget()

    def called(self, module: nn.Module) -> None:
        """A module is entered that was not known before: of the first window, it belongs to the load as it is now."""
        if self.load is not None and not self._present.knows(module):
            self._renew_load(self.load)

    def _renew_load(self, load: Samples) -> None:
        """Look everything up anew; samples of the load follow the names."""
        before = self._present.subjects.names()
        self._present.renew()
        self._taking.load_renamed(load, before)

    def loads(self) -> None:
        """Something is loaded: what was sampled before it, and before any update, is out of date."""
        self._doubt = None
        if not self.number and self.window is not None and not self._pending:
            self._taking.background.wait_all()
            self.load = self.window = None

    # Updates.

    def opens(self, optimizer: Any) -> bool:
        """Whether an update that is about to happen begins a new step; then `ended` is over for certain."""
        fresh = self._optimizers.is_fresh(optimizer)
        self._optimizers.stepped(optimizer)
        opened = fresh or self._windows.opens(id(optimizer), _held(optimizer))
        if opened or self.window is None or not self.resting:
            self.begin()
        else:
            self._doubt = None  # another update of the same step, straight after the one before
        if fresh and self.ended is not None:
            before = self._present.subjects.names()
            self._present.renew()
            if self._taking.samples(self.number):
                self._taking.taken_over(self.number, self.ended, before)
                self._taking.background.wait_all()
        return opened

    def over(self) -> Window | None:
        """The step before the window in progress is over, whatever updates next; None if it is written."""
        ended, self.ended = self.ended, None
        if ended is not None:
            self._windows.close()
        return ended

    def count(self, optimizer: Any) -> None:
        """Count an update that is about to happen, in the window in progress, and sample what it will use."""
        window = self.window
        assert window is not None
        mark = self._windows.mark()
        pending = Pending(optimizer, mark, window, self.ended, self.resting, threading.get_ident(), place=-1)
        opened = self._windows.count(id(optimizer), _held(optimizer))
        if self.ended is not None:
            self.window = window = joined(self.ended, window)
        self.ended, self.resting = None, False
        if self.load is not None:
            self._renew_load(self.load)
        place = self._present.place(optimizer)
        items: tuple[Item, ...] = ()
        self._taking.settle(self.number, window)
        if self._taking.samples_around(self.number - 1):
            items = self._taking.hyperparameters(window, place, binding=opened)
        self._pending[id(optimizer)] = replace(pending, place=place, items=items)

    def counted(self, optimizer: Any) -> Pending | None:
        """The update of an optimizer that has returned; None for one that was not counted."""
        pending = self._pending.pop(id(optimizer), None)
        return pending if pending is not None and pending.optimizer is optimizer else None

    def take_back(self, pending: Pending) -> None:
        """An update was none: its step is as it was before, and the window goes on."""
        self._taking.background.wait_all()
        opened = self.number != pending.mark.step
        self._windows.back(pending.mark)
        pending.window.drop(pending.items)
        if not opened:
            self.window, self.ended, self.resting = pending.window, pending.ended, pending.resting

    def take_all_back(self) -> None:
        """No update in progress will return."""
        for pending in reversed(list(self._pending.values())):
            self.take_back(pending)
        self._pending.clear()

    def stands_inside(self, optimizer: Any) -> bool:
        """Whether an update happens inside of another one, and so is part of it. Takes back what has raised since."""
        for key, pending in reversed(list(self._pending.items())):
            if pending.thread != threading.get_ident():
                continue
            if pending.optimizer is not optimizer and is_stepping(pending.optimizer):
                self._optimizers.stepped(optimizer)
                return True
            del self._pending[key]
            self.take_back(pending)
            self._notes.say(f"An update raised after step {self.number}, and counts for none.")
        return False

    def forget(self) -> None:
        """Keep nothing."""
        self.load = self.window = self.ended = self._doubt = None
        self._pending.clear()
        self._present.forget()


def _held(optimizer: Any) -> frozenset[int]:
    return frozenset(id(tensor) for tensor in members(optimizer))
