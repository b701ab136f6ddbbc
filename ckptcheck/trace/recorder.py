"""The recorder: samples every stage of every step into a trace. Boundaries are told, not guessed."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Final, TypeAlias

import torch

from ckptcheck.state.tensor_bytes import is_dense
from ckptcheck.state.tree import flatten
from ckptcheck.trace import sampling
from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.hooks import Hooks
from ckptcheck.trace.items import AFTER_SAVE, BUILT, END, LOAD, SAVED, STEP, Item, Sample
from ckptcheck.trace.measuring import Measurer, outside_transforms, unwrapped
from ckptcheck.trace.sharing import noting_shared
from ckptcheck.trace.subjects import Subjects

MAX_PARTS: Final = 64
"""Forward calls, losses and updates counted apart in one step; further ones are recorded as the last."""

Tap: TypeAlias = Callable[[int, str, Item, torch.Tensor], None]
"""Called with (step, moment, item, live tensor) for every dense tensor that is sampled."""


class Recorder(AbstractContextManager["Recorder"]):
    """Records a run: `load`, then for each step `begin` and `end`, and around a save `saved` and `after_save`.

    A context manager: hooks are in place inside it only. Draws no random number and keeps no tensor past the
    moment; memory does not grow with steps. `cost_s` is the time spent in it so far, in seconds.
    """

    def __init__(self, subjects: Subjects, writer: TraceWriter, algorithm: str, tap: Tap | None = None) -> None:
        self._subjects = subjects
        self._writer = writer
        self._measurer = Measurer(algorithm)
        self._tap = tap
        self._hooks = Hooks(subjects, self)
        self._step = 0
        self._moment = LOAD
        self._samples: dict[Item, Sample] = {}
        self._updates: dict[int, int] = {}
        self._applied: dict[int, int] = {}
        self._calls: dict[str, int] = {}
        self._in_step = False
        self._before_load: Mapping[str, Mapping[str, Any]] = {}
        self.cost_s = 0.0

    def __enter__(self) -> "Recorder":
        self._hooks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.__exit__(kind, value, trace)

    def built(self, step: int) -> None:
        """Record the whole state before a load: what the load leaves as it is was not loaded."""
        self._before_load = self._subjects.sections()
        self._whole(step, BUILT)

    def load(self, step: int) -> None:
        """Record the whole state at the start of the run; after a load, straight after it. `step` are done."""
        now, before = self._subjects.sections(), self._before_load
        replaced = [
            kind for kind, ones in before.items() if any(now.get(kind, {}).get(k) is not v for k, v in ones.items())
        ]
        self._before_load = {}
        self._whole(step, LOAD, [(Item("structure", "replaced"), json.dumps(replaced))])

    def saved(self, step: int) -> None:
        """Record the whole state that is about to be saved after `step`."""
        self._whole(step, SAVED)

    def after_save(self, step: int) -> None:
        """Record the whole state when saving has returned."""
        self._whole(step, AFTER_SAVE)

    def finish(self, step: int) -> None:
        """Record the generators when the run has ended after `step`."""
        with self._timed():
            self._start(step, END)
            self._take(sampling.generators())
            self._write()

    def begin(self, step: int) -> None:
        """Step `step` begins: sample the generators and listen."""
        with self._timed():
            self._start(step, STEP)
            self._updates.clear()
            self._applied.clear()
            self._calls.clear()
            self._subjects.refresh()
            self._hooks.renew()
            self._take(sampling.generators())
        self._in_step = True

    def end(self, step: int, loss: Any = None) -> None:
        """Step `step` has ended, with the loss that it returned or None: sample what is sampled after updates."""
        self._in_step = False
        with self._timed():
            self._subjects.refresh()  # a step may put new tensors in the place of old ones
            if loss is not None:
                self._take((Item("loss", "returned", path), leaf) for path, leaf in flatten(loss))
            self._take(sampling.buffers(self._subjects))
            self._after_updates()
            self._take(sampling.parameters(self._subjects))
            self._take(sampling.sections(self._subjects))
            if not self._updates:
                self._take(sampling.binding(self._subjects))
            self._write()
            self._subjects.forget()

    def _after_updates(self) -> None:
        sampled = {item.name for item in self._samples if item.kind == "grad"}
        for name, parameter in self._subjects.names().parameters.items():
            if name not in sampled:
                self._gradient(name, parameter)
        for place in range(len(self._subjects.optimizers())):
            self._put(Item("updates", optimizer=place), self._applied.get(place, 0))
            if not self._updates.get(place, 0):
                self._take(sampling.hyperparameters(self._subjects, place))
            self._take(sampling.optimizer_state(self._subjects, place))

    def _whole(self, step: int, moment: str, more: Iterable[tuple[Item, Any]] = ()) -> None:
        with self._timed():
            self._start(step, moment)
            names = self._subjects.refresh()
            self._take(sampling.generators())
            self._take(sampling.parameters(self._subjects))
            self._take(sampling.buffers(self._subjects))
            for name, parameter in names.parameters.items():
                self._gradient(name, parameter)
            for place in range(len(self._subjects.optimizers())):
                self._take(sampling.hyperparameters(self._subjects, place))
                self._take(sampling.optimizer_state(self._subjects, place))
            shared: dict[str, str] = {}
            self._take(noting_shared(sampling.sections(self._subjects), names.parameters, shared))
            self._take(sampling.binding(self._subjects))
            self._take(sampling.modes(self._subjects))
            if shared:
                self._put(Item("structure", "shared"), json.dumps(shared))
            self._take(more)
            self._write()
            self._subjects.forget()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.cost_s += time.perf_counter() - started

    def _start(self, step: int, moment: str) -> None:
        self._step, self._moment, self._samples = step, moment, {}

    def _write(self) -> None:
        self._writer.write(self._step, self._moment, self._samples.items())
        self._samples = {}

    def _take(self, leaves: Iterable[tuple[Item, Any]]) -> None:
        for item, leaf in leaves:
            self._put(item, leaf)

    def _put(self, item: Item, leaf: Any) -> None:
        if self._tap is not None and isinstance(leaf, torch.Tensor) and is_dense(leaf):
            self._tap(self._step, self._moment, item, leaf)
        sample = self._measurer.leaf(leaf)
        self._samples[item] = sample._replace(value=None) if item.kind == "rng" else sample

    def _gradient(self, name: str, parameter: torch.Tensor, part: int = 0) -> None:
        # torch warns where the gradient is asked for of a tensor that keeps none
        gradient = parameter.grad if parameter.is_leaf or parameter.retains_grad else None
        item = Item("grad", name, part=part)
        if gradient is not None and self._tap is not None and is_dense(gradient):
            self._tap(self._step, self._moment, item, gradient)
        self._samples[item] = self._measurer.gradient(gradient)

    # What the hooks tell.

    def before_update(self, optimizer: Any) -> None:
        """Sample the hyperparameters as the update will use them."""
        place = self._place(optimizer)
        if place is not None:
            with self._timed():
                if not self._updates:
                    self._take(sampling.binding(self._subjects))
                part = self._part(self._updates.get(place, 0))
                self._take(sampling.hyperparameters(self._subjects, place, part))

    def after_update(self, optimizer: Any) -> None:
        """Sample the gradients that the update has read: forward and backward may run inside `step`."""
        place = self._place(optimizer)
        if place is not None:
            with self._timed():
                part = self._part(self._updates.get(place, 0))
                for _, _, tensor, name, _, _ in self._subjects.slots(optimizer):
                    self._gradient(name, tensor, part)
                self._updates[place] = self._updates.get(place, 0) + 1
                if not sampling.was_skipped(optimizer):
                    self._applied[place] = self._applied.get(place, 0) + 1

    def forward(self, module: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Sample what enters the outermost module."""
        if self._in_step:
            with self._timed():
                part = self._count(f"forward {module}")
                leaves = list(sampling.inputs(module, args, kwargs, part))
                with outside_transforms():
                    self._take((item, unwrapped(leaf)) for item, leaf in leaves)

    def backward(self, loss: torch.Tensor) -> None:
        """Sample a tensor on which `backward` is called."""
        if self._in_step:
            with self._timed():
                self._put(Item("loss", "backward", part=self._count("backward")), loss.detach())

    def gradient(self, parameter: torch.Tensor) -> None:
        """Sample a gradient that no optimizer will read; a hand-written update clears it before the step ends."""
        if self._in_step:
            with self._timed():
                name = self._subjects.names().name_of(parameter)
                if name is not None:
                    self._gradient(name, parameter)

    def _place(self, optimizer: Any) -> int | None:
        if not self._in_step:
            return None
        for place, known in enumerate(self._subjects.optimizers()):
            if known is optimizer or getattr(known, "optimizer", None) is optimizer:
                return place
        return None

    def _count(self, what: str) -> int:
        count = self._calls.get(what, 0)
        self._calls[what] = count + 1
        return self._part(count)

    @staticmethod
    def _part(count: int) -> int:
        return min(count, MAX_PARTS - 1)
