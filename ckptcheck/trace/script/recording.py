"""The recording of one process of a script: from what it does to the steps of a trace.

When things are sampled: generators when the first forward pass of a step begins; hyperparameters before the update;
gradients when it has returned; everything else of a step when the next one begins, with the first forward pass with
gradients after the update, since schedules, clipped weights and averages are brought up to date in between. A resumed
run records its load at the same place, before its first forward pass.

A forward pass begins a window at once where a module in training mode, with a parameter that an optimizer holds, is
entered. Any other, as an evaluation that leaves gradients enabled, is in doubt: it begins the window only where a
backward pass follows before one that is in no doubt, for a resumed run will not make that evaluation.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ckptcheck.trace import sampling
from ckptcheck.trace.items import END, Item
from ckptcheck.trace.script.background import Samples
from ckptcheck.trace.script.guard import GUARD
from ckptcheck.trace.script.holding import Pending, Window, is_stepping, joined
from ckptcheck.trace.script.loading import Loads
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.notes import Notes
from ckptcheck.trace.script.optimizers import Optimizers, members
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.present import Present
from ckptcheck.trace.script.rendezvous import Rendezvous
from ckptcheck.trace.script.sections import Sections
from ckptcheck.trace.script.taking import Taking
from ckptcheck.trace.script.tracing import Tracing
from ckptcheck.trace.script.windows import Windows


def _nothing() -> None: ...


class Recording:
    """Takes what is told of a script, and writes a trace. Nothing is written before the first update.

    `began` is called at the first update, `over` when nothing more will be recorded. `cost_s` is the time that the
    script waited for it, in seconds.
    """

    def __init__(
        self, orders: Orders, modules: Modules, optimizers: Optimizers, sections: Sections, notes: Notes | None = None,
        *, began: Callable[[], None] = _nothing, over: Callable[[], None] = _nothing,
    ) -> None:  # fmt: skip
        self._orders = orders
        self._modules = modules
        self._optimizers = optimizers
        self._told_began, self._told_over = began, over
        self._tracing = Tracing(orders)
        self._present = Present(modules, optimizers, sections, lambda: GUARD.try_run(self._leaves))
        self._taking = Taking(orders, self._present, self._tracing)
        self._rendezvous = Rendezvous(orders)
        self._windows = Windows()
        self._notes = notes if notes is not None else Notes()
        self.loads = Loads(orders.digest, modules, lambda: self._windows.step)
        self._load: Samples | None = None
        self._ended: Window | None = None
        """The step before the window in progress, sampled to its end and not written, as the window may still join."""
        self._window: Window | None = None
        self._resting = False
        """Whether the window's update has happened, so that the next one may begin."""
        self._doubt: Window | None = None
        self._pending: dict[int, Pending] = {}
        self._over = False
        self._blind = 0
        """Steps in which no forward pass was seen."""
        self.cost_s = 0.0

    @property
    def touched(self) -> bool:
        """Whether anything has been recorded in this process."""
        return self._windows.step > 0 or self._window is not None

    def forked(self) -> None:
        """This process was forked before anything was recorded, and is recorded by itself."""
        self._rendezvous = Rendezvous(self._orders)
        self._doubt = None

    # What is told.

    def forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An outermost forward pass with gradients begins."""
        if self._over:
            return
        with self._timed():
            self._modules.called(module)
            window = self._window if not self._resting else None
            if window is None and not self._present.trains(module):
                window = self._doubted(module)
            elif window is None:
                self._doubt = None
                window = self._begin()
            if window is not None:
                window.forwards += 1
                if self._taking.samples_around(self._windows.step):
                    self._taking.inputs(window, module, args, kwargs)

    def backward(self, loss: torch.Tensor) -> None:
        """`backward` is about to run on a tensor."""
        if self._over:
            return
        with self._timed():
            window = self._begin()
            if self._taking.samples_around(self._windows.step):
                self._taking.loss(window, loss)

    def before_update(self, optimizer: Any) -> None:
        """An update is about to happen."""
        if self._over:
            return
        with self._timed():
            self._taking.background.wait_all()
            if self._stands_inside(optimizer) or sampling.was_skipped(optimizer):
                return
            self._optimizers.stepped(optimizer)
            held = frozenset(id(tensor) for tensor in members(optimizer))
            if self._window is None or not self._resting or self._windows.opens(id(optimizer), held):
                self._begin()
            else:
                self._doubt = None  # another update of the same step, straight after the one before
            self._count(optimizer, held)

    def after_update(self, optimizer: Any) -> None:
        """An update has happened, unless a scaler told a fused optimizer to skip it."""
        pending = self._pending.pop(id(optimizer), None)
        if pending is None or pending.optimizer is not optimizer or self._over:
            return
        with self._timed():
            if sampling.was_skipped(optimizer) or self._window is None:
                self._take_back(pending)
                return
            if self._taking.samples(self._windows.step):
                self._taking.gradients(self._windows.step, self._window, optimizer)
                self._window.samples[Item("updates", optimizer=pending.place)] = sampling.updates(1)
            self._resting = True
            if self._windows.looks_complete:
                self._present.loosen()
            # Who is killed after this update must have left the step before it whole.
            self._taking.background.wait_written()

    def before_clearing(self) -> None:
        """Gradients are about to be cleared or added to."""
        if self._window is not None and not self._over:
            with self._timed():
                self._taking.background.wait_gradients()

    def before_load(self, section: str, loaded: Any, given: Any, options: dict[str, Any]) -> None:
        """An object is about to load what it is given: what was sampled as the load before is out of date."""
        self.loads.before_load(section, loaded, given, options)
        GUARD.tell(self._expect_load)

    def after_load(self, loaded: Any, returned: Any) -> None:
        """A load has returned."""
        self.loads.after_load(loaded, returned)

    def load_raised(self, loaded: Any, error: BaseException) -> None:
        """A load has raised."""
        self.loads.load_raised(loaded, error)

    def _expect_load(self) -> None:
        self._doubt = None
        if self._windows.step == 0 and self._window is not None and not self._pending and not self._over:
            self._taking.background.wait_all()
            self._load = self._window = None

    def end(self, raised: str = "") -> None:
        """The script has ended; `raised` is the exception that ended it."""
        if self._over:
            return
        self._over = True
        with self._timed():
            for pending in reversed(list(self._pending.values())):
                self._take_back(pending)
            self._pending.clear()
            step, write = self._windows.step, self._taking.background.write
            if step and self._resting and self._window is not None:
                self._rest(self._window)
            if step and self._ended is not None:
                self._write_step(step, self._ended)
            if step:
                samples: Samples = {}
                self._taking.generators(samples)
                self.loads.write_late(write)
                write(step, END, samples)
                self._note()
            else:
                self.loads.write_failed(self._present.subjects, write)
        facts = {"ended": "raised", "raised": raised} if raised else {}
        self._tracing.close(self._facts(facts), clean=not raised)
        if step:
            self._rendezvous.step_done(step)

    def broken(self, reason: str) -> int:
        """Something of ours went wrong: close what is there, and say why; returns the step that was in progress."""
        self._over = True
        step = self._windows.step
        self._load = self._window = self._ended = self._doubt = None
        self._pending.clear()
        self._present.forget()
        self._tracing.break_off(self._facts({"broken": reason}))
        return step

    # Windows and steps.

    def _doubted(self, module: nn.Module) -> Window | None:
        """Where to keep a forward pass that may begin a window or not; None for a module without parameters."""
        if next(module.parameters(), None) is None:
            return None  # a transform of the data, a criterion
        if self._doubt is None:
            self._doubt = Window()
            if self._taking.samples_around(self._windows.step):
                self._taking.generators(self._doubt.samples)
                if not self.touched:
                    self._taking.buffers(self._doubt.samples)
        return self._doubt

    def _begin(self) -> Window:
        """The window in progress; a new one where an update has happened since, or nothing has."""
        if self._window is not None and not self._resting:
            return self._window
        step, doubt = self._windows.step, self._doubt
        sampled = self._taking.samples_around(step)
        if sampled:
            self._present.renew()
        if self._window is not None:
            self._rest(self._window)
        elif self._load is None and step == 0:
            self._load = self._taking.load(doubt.samples if doubt is not None else {})
        self._window, self._doubt = doubt or Window(), None
        if sampled and doubt is None:
            self._taking.generators(self._window.samples)
        if step:
            with self._untimed():
                self._rendezvous.window_begins(step)
        return self._window

    def _rest(self, window: Window) -> None:
        """The step of a window has ended, as far as is known."""
        if self._taking.samples(self._windows.step):
            self._taking.rest(self._windows.step, window)
        self._ended, self._resting = window, False

    def _leaves(self) -> None:
        """A model or an optimizer is about to die: what the step in progress leaves is there for the last time."""
        if self._window is not None and self._resting and not self._over and self._taking.samples(self._windows.step):
            self._taking.rest(self._windows.step, self._window)
        self._present.forget()

    def _count(self, optimizer: Any, held: frozenset[int]) -> None:
        """Count an update that is about to happen, in the window in progress, and sample what it will use."""
        window = self._window
        assert window is not None
        mark = self._windows.mark()
        pending = Pending(optimizer, mark, window, self._ended, self._resting, threading.get_ident(), place=-1)
        opened = self._windows.count(id(optimizer), held)
        step = self._windows.step
        if self._ended is not None and opened:
            self._commit(step - 1, self._ended)
        elif self._ended is not None:
            self._window = window = joined(self._ended, window)
        self._ended, self._resting = None, False
        if self._over:
            return
        place = self._present.place(optimizer)
        items: tuple[Item, ...] = ()
        self._taking.settle(step, window)
        if self._taking.samples_around(step - 1):
            items = self._taking.hyperparameters(window, place, binding=opened)
        self._pending[id(optimizer)] = replace(pending, place=place, items=items)
        self._write_load()
        if self._taking.samples(step):
            self._taking.gradients_early(optimizer)

    def _write_load(self) -> None:
        if self._load is not None:
            samples, self._load = self._load, None
            self._taking.write_load(samples)
            self.loads.write(self._present.subjects, self._taking.background.write)
            self._told_began()

    def _commit(self, step: int, ended: Window) -> None:
        """A step is over for certain: write it, tell the parent, and stop where it was the last one asked for."""
        self._write_step(step, ended)
        last = self._orders.last_step is not None and step >= self._orders.last_step
        if last:
            self._stop(step)
        elif self._rendezvous.waits_after(step):
            self._taking.background.wait_written()
        with self._untimed():
            self._rendezvous.step_done(step)

    def _write_step(self, step: int, ended: Window) -> None:
        self._blind += not ended.forwards
        self._taking.write_step(step, ended)

    def _stop(self, step: int) -> None:
        """Record no more, with what the window that has begun meanwhile began with."""
        assert self._window is not None
        generators = {item: sample for item, sample in self._window.samples.items() if item.kind == "rng"}
        self.loads.write_late(self._taking.background.write)
        self._taking.write(step, END, generators)
        self._over = True
        self._window = None
        self._present.forget()
        self._tracing.close(self._facts({"stopped_after": step}), clean=True)
        self._told_over()

    def _take_back(self, pending: Pending) -> None:
        """An update was none: its step is as it was before, and the window goes on."""
        self._taking.background.wait_all()
        opened = self._windows.step != pending.mark.step
        self._windows.back(pending.mark)
        pending.window.drop(pending.items)
        if not opened:
            self._window, self._ended, self._resting = pending.window, pending.ended, pending.resting

    def _stands_inside(self, optimizer: Any) -> bool:
        """Whether an update happens inside of another one, and so is part of it. Takes back what has raised since."""
        for key, pending in reversed(list(self._pending.items())):
            if pending.thread != threading.get_ident():
                continue
            if pending.optimizer is not optimizer and is_stepping(pending.optimizer):
                self._optimizers.stepped(optimizer)
                return True
            del self._pending[key]
            self._take_back(pending)
            self._notes.say(f"An update raised after step {self._windows.step}, and counts for none.")
        return False

    def _note(self) -> None:
        """Say what was not seen of the training, when it has ended."""
        self._present.renew()
        subjects = self._present.subjects
        slots = [slot for one in subjects.optimizers() for slot in subjects.slots(one)]
        nameless = sum(not held for *_, held in slots)
        if nameless:
            self._notes.say(f"{nameless} of {len(slots)} trained parameters belong to no module that is known: "
                            "they are named by their place in the optimizer's groups.")  # fmt: skip
        stray = [name for name, one in self._present.untrained() if one.is_leaf and one.grad is not None]
        if stray:
            self._notes.say(f"{len(stray)} parameters get gradients and belong to no optimizer that is known, "
                            f"{stray[0]} for one: updates of them by hand are seen by their values only.")  # fmt: skip
        if self._blind:
            self._notes.say(f"No forward pass of a module was seen in {self._blind} of {self._windows.step} steps: "
                            "what enters the model in them is not recorded.")  # fmt: skip

    def _facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """What the header says of the recording when it is over."""
        orders = self._orders
        left_out = {"only": list(orders.only), "grads": orders.grads} if orders.only or not orders.grads else {}
        cost_s = self.cost_s + self.loads.cost_s
        return {**facts, **left_out, "recording_s": cost_s, "notes": list(self._notes.all())}

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._taking.background.go()
            self.cost_s += time.perf_counter() - started

    @contextmanager
    def _untimed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.cost_s -= time.perf_counter() - started
