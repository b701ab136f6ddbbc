"""Digests beside the training: what rests until the next update is measured while the script goes on.

Everything is done in the order in which it was handed over, on one thread. Tensors handed over are let go of when
they need not rest any longer. What is on another device is measured there at once, and its samples come over with the
next write.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch

from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.items import NONE, Item, Sample
from ckptcheck.trace.measuring import Measurer
from ckptcheck.trace.script.handing import Awaited, Handed, Rest, Trial
from ckptcheck.trace.script.resting import MOVED, TRIALS, Trust, may_rest, seen
from ckptcheck.trace.script.worker import Job, Worker
from ckptcheck.trace.staging import Making, Transfer

_CHUNK_BYTES: Final = 4 << 20
"""Tensors are measured in lots of about this size: what is digested is then in the cache for its norm."""
_SIMPLE: Final = frozenset({bool, int, float, str, type(None)})
_MAX_KNOWN: Final = 100_000


Samples: TypeAlias = dict[Item, "Sample | Awaited"]
_NOT_YET: Final = Awaited()


class Background:
    """Measures and writes. Whatever goes wrong is raised by the next call.

    `here` are the types of devices whose tensors are measured in place; samples of others are brought over in one
    transfer a write. `moved` counts the samples that were left out, since what should have rested did not.
    """

    def __init__(self, measurer: Measurer, writer: TraceWriter, here: Sequence[str] = ("cpu", "meta")) -> None:
        self._measurer = measurer
        self._writer = writer
        self._here = here
        self._cpu_is_here = "cpu" in here
        self._process = os.getpid()
        self._worker = Worker()
        self._whole, self._gradients = Rest(), Rest()
        self._update = Trust()
        """Which gradients an update leaves alone."""
        self._early: dict[Item, Handed] = {}
        self._trials_early: dict[Item, bytes] = {}
        self._making: list[tuple[Awaited, Making]] = []
        self._known: dict[Item, tuple[Any, Sample]] = {}
        self._written: Job | None = None
        self._writes = 0
        self.moved: dict[Item, int] = {}
        self.waited_s = 0.0

    def measure(self, samples: Samples, leaves: Iterable[tuple[Item, Any]]) -> None:
        """Measure leaves that rest until the next `wait_all`, into `samples`."""
        if self._ready():
            self._take(samples, leaves, self._whole, gradients=False)

    def measure_early(self, gradients: Iterable[tuple[Item, torch.Tensor | None]]) -> None:
        """Begin with gradients that an update is about to read. `measure_gradients` takes those that it left alone."""
        if not self._ready():
            return
        self._early.clear()
        self._trials_early.clear()
        handed: list[Handed] = []
        for item, gradient in gradients:
            standing = self._update.standing(item)
            if standing == MOVED or gradient is None or not may_rest(item, gradient):
                continue
            if standing < TRIALS:
                self._trials_early[item] = self._measurer.digest(gradient)
            elif (looked := seen(gradient)) is not None:
                one = self._early[item] = Handed(item, looked)
                handed.append(one)
        self._hand_over(handed, self._gradients, gradients=True)

    def measure_gradients(self, samples: Samples, gradients: Iterable[tuple[Item, torch.Tensor | None]]) -> None:
        """Measure gradients that rest until the next `wait_gradients`, into `samples`; None is one that is absent."""
        if not self._ready():
            return
        self.wait_written()  # so that at most the step in progress is lost where the process is killed
        rest = []
        for item, gradient in gradients:
            early = self._early.pop(item, None)
            if (digest := self._trials_early.pop(item, None)) is not None:
                same = gradient is not None and self._measurer.digest(gradient) == digest
                self._update.judge(item, same)
            if early is not None and early.looked.tensor is gradient and not early.looked.moved():
                samples[item] = early
                self._gradients.awaited.append(early)
            elif gradient is None:
                samples[item] = Sample(None, None, NONE)
            else:
                if early is not None:
                    self._update.judge(item, rested=False)
                samples[item] = Awaited()
                rest.append((item, gradient))
        self._early.clear()
        self._take(samples, rest, self._gradients, gradients=True)
        self._trials_early.clear()

    def wait_gradients(self) -> None:
        """Return when all gradients handed over are measured."""
        if self._ready():
            for item in (*self._early, *self._trials_early):  # they change inside of the update
                self._update.judge(item, rested=False)
            self._early.clear()
            self._trials_early.clear()
            self._wait(self._gradients)
            self.wait_written()

    def wait_all(self) -> None:
        """Return when everything handed over is measured."""
        if self._ready():
            self._wait(self._gradients)
            self._wait(self._whole)

    def write(self, step: int, moment: str, samples: Mapping[Item, "Sample | Awaited"]) -> None:
        """Write a moment whose samples have all been handed over."""
        if not self._ready():
            return
        awaited = [one for one, _ in self._making]
        transfer = Transfer([making for _, making in self._making]) if awaited else None
        self._making = []
        items = list(samples.items())

        def write() -> None:
            if transfer is not None:
                _settle(awaited, transfer.samples())
            whole = ((item, one.sample if isinstance(one, Awaited) else one) for item, one in items)
            self._writer.write(step, moment, [(item, sample) for item, sample in whole if sample is not None])

        if self._writes:
            self._written = self._worker.do(write)
        else:  # the first one makes the file, whose header asks for what torch keeps for each thread
            self._worker.idle()
            write()
        self._writes += 1

    def wait_written(self) -> None:
        """Return when everything is in the file that was to be written."""
        if self._ready() and self._written is not None:
            self._worker.go()
            self._written.wait()
            self._written = None
            self._worker.complain()

    def go(self) -> None:
        """Begin with what was handed over: the script goes on. Whoever waits begins with it too."""
        if os.getpid() == self._process:
            self._worker.go()

    def close(self) -> None:
        """Finish everything, and measure no more."""
        if os.getpid() != self._process:
            return
        self._worker.end()
        for rest in (self._whole, self._gradients):
            rest.trials.clear()
            self._find_moved(rest)
        self._early.clear()
        if self.moved:
            self._writer.set_header({"moved": [list(item) for item in self.moved]})
        self._worker.complain()

    def _ready(self) -> bool:
        """Whether this is the process that is recorded: what it forks is not. Raises what has gone wrong."""
        if os.getpid() != self._process:
            return False
        self._worker.complain()
        return True

    def _take(self, samples: Samples, leaves: Iterable[tuple[Item, Any]], rest: Rest, *, gradients: bool) -> None:
        now: list[tuple[Item, torch.Tensor]] = []
        on_trial: list[int] = []
        handed: list[Handed] = []
        standings = rest.trust.rested
        for item, leaf in leaves:
            if not isinstance(leaf, torch.Tensor) or item[0] == "rng":
                samples[item] = self._plain(item, leaf)
                continue
            if (
                not (leaf.is_cpu and self._cpu_is_here)
                and leaf.device.type not in self._here
                and (making := self._measurer.make(leaf, gradient=gradients))
            ):
                awaited = samples[item] = Awaited()
                self._making.append((awaited, making))
                continue
            standing = standings.get(item, 0)
            if standing != MOVED and may_rest(item, leaf):
                if standing == TRIALS and (looked := seen(leaf)) is not None:
                    one = samples[item] = Handed(item, looked)
                    handed.append(one)
                    continue
                if standing < TRIALS:
                    on_trial.append(len(now))
            samples[item] = _NOT_YET  # its place among the others
            now.append((item, leaf))
        rest.awaited += handed
        self._hand_over(handed, rest, gradients=gradients)
        measured = self._measured(now, gradients=gradients)
        for (item, _), sample in zip(now, measured, strict=True):
            samples[item] = sample._replace(value=None) if item.kind == "rng" else sample
        for place in on_trial:
            (item, tensor), digest = now[place], measured[place].digest
            if digest is not None and (looked := seen(tensor)) is not None:
                rest.trials.append(Trial(item, looked, digest))

    def _measured(self, now: list[tuple[Item, torch.Tensor]], *, gradients: bool) -> list[Sample]:
        return self._measurer.tensors([tensor for _, tensor in now], gradients=gradients)

    def _plain(self, item: Item, leaf: Any) -> Sample:
        known = self._known.get(item)
        # The same object is the same value where nobody can change it; states of generators are ours.
        if known is not None and known[0] is leaf and (type(leaf) in _SIMPLE or item.kind == "rng"):
            return known[1]
        sample = self._measurer.leaf(leaf)
        sample = sample._replace(value=None) if item.kind == "rng" else sample
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[item] = (leaf if type(leaf) in _SIMPLE or item.kind == "rng" else None, sample)
        return sample

    def _hand_over(self, handed: list[Handed], rest: Rest, *, gradients: bool) -> None:
        if handed:
            todo = handed[::-1]
            rest.jobs.append(self._worker.do(lambda: self._measure_all(todo, gradients=gradients)))

    def _measure_all(self, handed: list[Handed], *, gradients: bool) -> None:
        while handed:
            lot: list[Handed] = []
            size_bytes = 0
            while handed and size_bytes < _CHUNK_BYTES:
                one = handed.pop()
                size_bytes += one.looked.size
                if one.looked.stands:
                    lot.append(one)
            samples = self._measurer.tensors([one.looked.held for one in lot], gradients=gradients)
            for one, sample in zip(lot, samples, strict=True):
                if not one.looked.changed():
                    one.sample = sample

    def _wait(self, rest: Rest) -> None:
        self._worker.go()
        started = time.perf_counter()
        while rest.jobs:
            rest.jobs.pop().wait()
        self.waited_s += time.perf_counter() - started
        self._worker.complain()
        self._find_moved(rest)
        for trial in rest.trials:
            rested = not trial.looked.moved() and self._measurer.digest(trial.looked.tensor) == trial.digest
            rest.trust.judge(trial.item, rested)
        rest.trials.clear()

    def _find_moved(self, rest: Rest) -> None:
        """Leave out what has moved, whether the thread was before it or not: two runs shall leave out the same."""
        gradients = rest is self._gradients
        for one in rest.awaited:
            looked = one.take()
            if looked.moved():
                one.sample = None
                rest.trust.judge(one.item, rested=False)
                self.moved[one.item] = self.moved.get(one.item, 0) + 1
            elif one.sample is None:  # it had moved, and is back as it was
                rest.trust.judge(one.item, rested=False)
                (one.sample,) = self._measured([(one.item, looked.tensor)], gradients=gradients)
        rest.awaited.clear()


def _settle(pending: list[Awaited], samples: list[Sample]) -> None:
    for one, sample in zip(pending, samples, strict=True):
        one.sample = sample
