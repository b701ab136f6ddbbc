"""The recording of one process of a script: from what it does to the steps of a trace.

When things are sampled: generators when the first forward pass of a step begins; hyperparameters before the update;
gradients when it has returned; everything else of a step when the next one begins, with the first forward pass with
gradients after the update, since schedules, clipped weights and averages are brought up to date in between. A resumed
run records its load at the same place, before its first forward pass.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ckptcheck.trace import sampling
from ckptcheck.trace.items import END, LOAD, STEP, Item
from ckptcheck.trace.script.background import Background, Samples
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.optimizers import Optimizers, members
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.sections import Sections
from ckptcheck.trace.script.tracing import Tracing
from ckptcheck.trace.script.windows import Windows
from ckptcheck.trace.subjects import Subjects


class Recording:
    """Takes what is told of a script, and writes a trace. Nothing is written before the first update.

    `cost_s` is the time that the script waited for it, in seconds.
    """

    def __init__(self, orders: Orders, modules: Modules, optimizers: Optimizers, sections: Sections) -> None:
        self._orders = orders
        self._modules = modules
        self._optimizers = optimizers
        self._sections = sections
        self._tracing = Tracing(orders)
        self._windows = Windows()
        self._subjects = Subjects(self._roots, optimizers.all, lambda: sections.all(optimizers.all()))
        self._load: Samples | None = None
        self._ended: Samples | None = None
        """The step before the window in progress, sampled to its end and not written, as the window may still join."""
        self._window: Samples | None = None
        self._resting: Samples | None = None
        """The step whose update has happened, until the next window begins."""
        self._counts: dict[str, int] = {}
        self._opened = False
        self.cost_s = 0.0

    def _roots(self) -> dict[str, nn.Module]:
        return self._modules.roots(tensor for one in self._optimizers.all() for tensor in members(one))

    @property
    def _measured(self) -> Background:
        return self._tracing.background()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.cost_s += time.perf_counter() - started

    # What is told.

    def forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pass with gradients begins: the first one after an update begins a window."""
        with self._timed():
            self._modules.called(module)
            window = self._begin()
            name = self._subjects.names().names_of_modules.get(id(module), type(module).__name__)
            part = self._count(f"forward {name}")
            self._measured.measure(window, sampling.inputs(name, args, kwargs, part))

    def backward(self, loss: torch.Tensor) -> None:
        """`backward` is about to run on a tensor."""
        with self._timed():
            window = self._begin()
            self._measured.measure(window, [(Item("loss", "backward", part=self._count("backward")), loss.detach())])

    def before_update(self, optimizer: Any) -> None:
        """An update is about to happen."""
        with self._timed():
            self._optimizers.stepped(optimizer)
            window = self._begin()
            held = [id(tensor) for tensor in members(optimizer)]
            self._measured.wait_all()
            self._opened = self._windows.opens(id(optimizer), held)
            if self._ended is not None:
                if self._opened:
                    self._write(self._windows.step - 1, self._ended)
                else:
                    self._window = window = _joined(self._ended, window)
                self._ended = None
            place = self._place(optimizer)
            if self._opened:
                self._measured.measure(window, sampling.binding(self._subjects))
            self._measured.measure(window, sampling.hyperparameters(self._subjects, place))
            if self._load is not None:
                self._write_load(self._load)
                self._load = None

    def after_update(self, optimizer: Any) -> None:
        """An update has happened, unless a scaler told a fused optimizer to skip it."""
        with self._timed():
            if self._window is None:
                return
            if sampling.was_skipped(optimizer):
                self._windows.skipped(id(optimizer), [id(tensor) for tensor in members(optimizer)], self._opened)
                return
            if self._orders.grads:
                slots = self._subjects.slots(optimizer)
                gradients = [(Item("grad", name), tensor.grad) for _, _, tensor, name, _ in slots]
                self._measured.measure_gradients(self._window, gradients)
            self._window[Item("updates", optimizer=self._place(optimizer))] = sampling.updates(1)
            self._resting = self._window

    def before_clearing(self) -> None:
        """Gradients are about to be cleared or added to."""
        if self._window is not None or self._resting is not None:
            with self._timed():
                self._measured.wait_gradients()

    def before_load(self, section: str, loaded: Any, given: Any) -> None:
        """An object is about to load what it is given."""

    def end(self) -> None:
        """The script has ended."""
        if self._windows.step:
            with self._timed():
                if self._resting is not None:
                    self._end_step(self._resting)
                    self._write(self._windows.step, self._resting)
                samples: Samples = {}
                self._measured.measure(samples, sampling.generators())
                self._measured.write(self._windows.step, END, samples)
            self._tracing.close(clean=True, cost_s=self.cost_s)

    # Windows and steps.

    def _begin(self) -> Samples:
        """The window in progress; a new one where an update has happened since, or nothing has."""
        if self._window is not None and self._resting is None:
            return self._window
        self._subjects.refresh()
        if self._resting is not None:
            self._end_step(self._resting)
            self._ended, self._resting = self._resting, None
        elif self._load is None and self._windows.step == 0:
            self._load = self._whole()
        self._counts.clear()
        self._window = {}
        self._measured.measure(self._window, sampling.generators())
        return self._window

    def _end_step(self, samples: Samples) -> None:
        """Sample what a step leaves: it rests until the next update, but for buffers."""
        subjects = self._subjects
        self._measured.measure(samples, sampling.buffers(subjects))
        for place, _ in enumerate(subjects.optimizers()):
            samples.setdefault(Item("updates", optimizer=place), sampling.updates(0))
            self._measured.measure(samples, sampling.optimizer_state(subjects, place))
        self._measured.measure(samples, sampling.parameters(subjects))
        self._measured.measure(samples, sampling.sections(subjects))

    def _whole(self) -> Samples:
        samples: Samples = {}
        subjects = self._subjects
        for leaves in (
            sampling.generators(), sampling.parameters(subjects), sampling.buffers(subjects),
            sampling.sections(subjects), sampling.modes(subjects),
        ):  # fmt: skip
            self._measured.measure(samples, leaves)
        return samples

    def _write_load(self, samples: Samples) -> None:
        """Write the load once the first update shows which optimizers there are, and which rates it will use."""
        subjects = self._subjects
        self._measured.measure(samples, sampling.binding(subjects))
        for place, _ in enumerate(subjects.optimizers()):
            self._measured.measure(samples, sampling.hyperparameters(subjects, place))
            self._measured.measure(samples, sampling.optimizer_state(subjects, place))
        self._measured.write(0, LOAD, samples)

    def _write(self, step: int, samples: Samples) -> None:
        self._measured.write(step, STEP, samples)

    def _place(self, optimizer: Any) -> int:
        return next(place for place, one in enumerate(self._subjects.optimizers()) if one is optimizer)

    def _count(self, what: str) -> int:
        count = self._counts.get(what, 0)
        self._counts[what] = count + 1
        return count


def _joined(step: Samples, window: Samples) -> Samples:
    """A step with one more window: what is counted in a step goes on counting, generators stay those of its begin."""
    joined = dict(step)
    counted = {(item.kind, item.name): item.part + 1 for item in sorted(step, key=lambda one: one.part)}
    for item, sample in window.items():
        if item.kind in ("inputs", "loss"):
            joined[item._replace(part=item.part + counted.get((item.kind, item.name), 0))] = sample
        elif item.kind != "rng":
            joined[item] = sample
    return joined
