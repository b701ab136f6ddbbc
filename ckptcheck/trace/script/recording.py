"""The recording of one process of a script: from what it does to the steps of a trace.

When things are sampled: generators when the first forward pass of a step begins; hyperparameters before the update;
gradients when it has returned; everything else of a step when the next one begins, with the first forward pass with
gradients after the update, since schedules, clipped weights and averages are brought up to date in between. A resumed
run records its load at the same place, before its first forward pass.

A forward pass begins a window at once where a module in training mode, with a parameter that an optimizer holds, is
entered. Any other, as an evaluation that leaves gradients enabled, is in doubt: it begins the window only where a
backward pass follows before one that is in no doubt, for a resumed run will not make that evaluation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ckptcheck.trace import sampling
from ckptcheck.trace.items import END, Item
from ckptcheck.trace.script.background import Samples
from ckptcheck.trace.script.clock import Clock
from ckptcheck.trace.script.guard import GUARD
from ckptcheck.trace.script.holding import Window
from ckptcheck.trace.script.loading import Loads
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.notes import Notes
from ckptcheck.trace.script.optimizers import Optimizers
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.present import Present
from ckptcheck.trace.script.rendezvous import Rendezvous
from ckptcheck.trace.script.sections import Sections
from ckptcheck.trace.script.steps import Steps
from ckptcheck.trace.script.taking import Taking
from ckptcheck.trace.script.tracing import Tracing
from ckptcheck.trace.script.unseen import unseen


def _nothing() -> None: ...


class Recording:
    """Takes what is told of a script, and writes a trace. Nothing is written before the first update.

    `began` is called at the first update, `over` when nothing more will be recorded.

    Memory: no tensor is copied on the CPU, so that the peak grows by some 30 MB, whatever the size of the model:
    measured at 1161 MB without and 1189 MB with a recording, for 50 million parameters under AdamW.
    """

    def __init__(
        self, orders: Orders, modules: Modules, optimizers: Optimizers, sections: Sections, notes: Notes | None = None,
        *, began: Callable[[], None] = _nothing, over: Callable[[], None] = _nothing,
    ) -> None:  # fmt: skip
        self._orders = orders
        self._modules = modules
        self._told_began, self._told_over = began, over
        self._notes = notes if notes is not None else Notes()
        self._tracing = Tracing(orders)
        self._present = Present(modules, optimizers, sections, lambda: GUARD.try_run(self._leaves))
        self._taking = Taking(orders, self._present, self._tracing)
        self._rendezvous = Rendezvous(orders)
        self._steps = Steps(self._present, self._taking, optimizers, self._notes)
        self.loads = Loads(orders.digest, modules, lambda: self._steps.number)
        self._clock = Clock()
        self._over = False
        self._blind = 0
        """Steps in which no forward pass was seen."""
        modules.tell_called = self._called

    @property
    def touched(self) -> bool:
        """Whether anything has been recorded in this process."""
        return self._steps.number > 0 or self._steps.window is not None

    @property
    def cost_s(self) -> float:
        """The time that the script waited for it, in seconds."""
        return self._clock.spent_s + self.loads.cost_s

    def forked(self) -> None:
        """This process was forked before anything was recorded, and is recorded by itself."""
        self._rendezvous = Rendezvous(self._orders)
        self._steps.doubt_no_more()

    # What is told.

    def forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An outermost forward pass with gradients begins."""
        if self._over:
            return
        with self._timed():
            self._modules.called(module)
            before = self._steps.window
            window = self._steps.entered(module)
            if window is not None and window is self._steps.window is not before:
                self._begun()
            if window is not None and not self._over:
                window.forwards += 1
                if self._taking.samples_around(self._steps.number):
                    self._taking.inputs(window, module, args, kwargs)

    def backward(self, loss: torch.Tensor) -> None:
        """`backward` is about to run on a tensor."""
        if self._over:
            return
        with self._timed():
            window = self._begin()
            if self._taking.samples_around(self._steps.number) and not self._over:
                self._taking.loss(window, loss)

    def before_update(self, optimizer: Any) -> None:
        """An update is about to happen."""
        if self._over:
            return
        with self._timed():
            self._taking.background.wait_all()
            if self._steps.stands_inside(optimizer) or sampling.was_skipped(optimizer):
                return
            if self._steps.opens(optimizer) and not self._goes_on():
                return
            self._steps.count(optimizer)
            self._write_load()
            if self._taking.samples(self._steps.number):
                self._taking.gradients_early(optimizer)

    def after_update(self, optimizer: Any) -> None:
        """An update has happened, unless a scaler told a fused optimizer to skip it."""
        pending = self._steps.counted(optimizer)
        if pending is None or self._over:
            return
        with self._timed():
            window = self._steps.window
            if sampling.was_skipped(optimizer) or window is None:
                self._steps.take_back(pending)
                return
            if self._taking.samples(self._steps.number):
                self._taking.gradients(self._steps.number, window, optimizer)
                window.samples[Item("updates", optimizer=pending.place)] = sampling.updates(1)
            self._steps.resting = True
            if self._steps.looks_complete:
                self._present.loosen()
            # Who is killed after this update must have left the step before it whole.
            self._taking.background.wait_written()

    def before_clearing(self) -> None:
        """Gradients are about to be cleared or added to."""
        if self._steps.window is not None and not self._over:
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
        if not self._over:
            self._steps.loads()

    def _called(self, module: nn.Module) -> None:
        if not self._over:
            self._steps.called(module)

    def _leaves(self) -> None:
        if not self._over:
            with self._timed():
                self._steps.leaves()
                self._taking.background.wait_all()  # what dies is not to live on until it is measured

    def end(self, raised: str = "") -> None:
        """The script has ended; `raised` is the exception that ended it."""
        if self._over:
            return
        self._over = True
        steps, write = self._steps, self._taking.background.write
        with self._timed():
            steps.take_all_back()
            if steps.number and steps.resting:
                steps.rest()
            self._write_step()
            if steps.number:
                samples: Samples = {}
                self._taking.generators(samples)
                self.loads.write_late(write)
                write(steps.number, END, samples)
                self._present.renew()
                for sentence in unseen(self._present, self._blind, steps.number):
                    self._notes.say(sentence)
            else:
                self.loads.write_failed(self._present.subjects, write)
        facts = {"ended": "raised", "raised": raised} if raised else {}
        self._tracing.close(self._facts(facts), clean=not raised)
        if steps.number:
            self._rendezvous.step_done(steps.number)

    def broken(self, reason: str) -> int:
        """Something of ours went wrong: close what is there, and say why; returns the step that was in progress."""
        self._over = True
        self._steps.forget()
        self._tracing.break_off(self._facts({"broken": reason}))
        return self._steps.number

    # What is written.

    def _begin(self) -> Window:
        """The window in progress, which may begin here."""
        before = self._steps.window
        window = self._steps.begin()
        if window is not before:
            self._begun()
        return window

    def _begun(self) -> None:
        """A window has begun: where a signal will end the process, what it leaves is on disk before that comes."""
        step = self._steps.number
        if self._rendezvous.signals_after(step) and (self._steps.looks_complete or step == 1):
            self._commit()
            self._wait_for_signal()

    def _goes_on(self) -> bool:
        """A new step begins: whether it is to be recorded."""
        self._commit()
        self._wait_for_signal()
        return not self._over

    def _wait_for_signal(self) -> None:
        with self._clock.rests():
            self._rendezvous.window_begins(self._steps.number)

    def _write_load(self) -> None:
        samples, self._steps.load = self._steps.load, None
        if samples is not None:
            self._taking.write_load(samples)
            self.loads.write(self._present.subjects, self._taking.background.write)
            self._told_began()

    def _commit(self) -> None:
        """A step is over for certain: write it, tell the parent, and stop where it was the last one asked for."""
        step = self._steps.number
        if not self._write_step():
            return
        if self._orders.last_step is not None and step >= self._orders.last_step:
            self._stop(step)
        elif self._rendezvous.waits_after(step):
            self._taking.background.wait_written()
        with self._clock.rests():
            self._rendezvous.step_done(step)

    def _write_step(self) -> bool:
        """Write the step before the window in progress; whether there is one that was not written yet."""
        ended = self._steps.over()
        if ended is not None:
            self._blind += not ended.forwards
            self._taking.write_step(self._steps.number, ended)
        return ended is not None

    def _stop(self, step: int) -> None:
        """Record no more, with what the window that has begun meanwhile began with."""
        window = self._steps.window
        assert window is not None
        generators = {item: sample for item, sample in window.samples.items() if item.kind == "rng"}
        self.loads.write_late(self._taking.background.write)
        self._taking.write(step, END, generators)
        self._over = True
        self._steps.forget()
        self._tracing.close(self._facts({"stopped_after": step}), clean=True)
        self._told_over()

    def _facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """What the header says of the recording when it is over."""
        return {**facts, "recording_s": self.cost_s, "notes": list(self._notes.all())}

    @contextmanager
    def _timed(self) -> Iterator[None]:
        with self._clock.runs():
            try:
                yield
            finally:
                self._taking.background.go()
