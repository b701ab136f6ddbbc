"""Taking samples of a script: what each moment is made of, and what the orders leave out."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import torch
from torch import nn

from ckptcheck.state.naming import LiveNames
from ckptcheck.state.tensor_bytes import is_dense
from ckptcheck.state.training_state import SECTIONS
from ckptcheck.trace import sampling
from ckptcheck.trace.capture import Capture
from ckptcheck.trace.items import LOAD, STEP, Item
from ckptcheck.trace.measuring import outside_transforms, unwrapped
from ckptcheck.trace.script.background import Background, Samples
from ckptcheck.trace.script.holding import Window
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.present import Present
from ckptcheck.trace.script.rank import rank_and_world
from ckptcheck.trace.script.tracing import Tracing

_NAMED: Final = frozenset({"param", "buffer", "grad", "state"})
"""Kinds of items that `only` chooses from."""
_OF_OPTIMIZERS: Final = frozenset({"state", *SECTIONS})
"""Kinds that depend on which optimizers there are."""
_OF_REST: Final = _OF_OPTIMIZERS | {"param", "buffer"}
"""Kinds that are sampled when the next step begins."""
_OF_BEGIN: Final = frozenset({"rng", "hyper", "structure"})
"""Kinds that are kept of a step after one that is sampled: with them, the state between both is whole."""


class Taking:
    """Hands live things over to be measured, and finished moments to be written."""

    def __init__(self, orders: Orders, present: Present, tracing: Tracing) -> None:
        self._orders = orders
        self._present = present
        self._tracing = tracing
        self._chosen: dict[str, bool] = {}
        self._capture: Capture | None = None

    @property
    def background(self) -> Background:
        """What measures and writes."""
        return self._tracing.background()

    def samples(self, step: int) -> bool:
        """Whether the step is sampled whole; 0 is the load."""
        orders = self._orders
        return not step or step in orders.always or (orders.first_step + step) % max(orders.every, 1) == 0

    def samples_around(self, step: int) -> bool:
        """Whether the window after a step is sampled: it may still belong to that step, or begin the next."""
        return self.samples(step) or self.samples(step + 1)

    # Windows.

    def generators(self, samples: Samples) -> None:
        """The generators, now."""
        self.background.measure(samples, sampling.generators())

    def inputs(self, window: Window, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What enters the outermost module."""
        name = self._present.name(module)
        leaves = list(sampling.inputs(name, args, kwargs, window.part(f"forward {name}")))
        with outside_transforms():
            plain = [(item, unwrapped(one)) for item, one in leaves]
            self.background.measure(window.samples, self._kept(window, plain))

    def loss(self, window: Window, loss: torch.Tensor) -> None:
        """A tensor on which `backward` is called."""
        item = Item("loss", "backward", part=window.part("backward"))
        self.background.measure(window.samples, self._kept(window, [(item, loss.detach())]))

    def hyperparameters(self, window: Window, place: int, *, binding: bool) -> tuple[Item, ...]:
        """What an update is about to use, and where it begins a step, who is in which group; returns the items."""
        subjects = self._present.subjects
        leaves = [*(sampling.binding(subjects) if binding else ()), *sampling.hyperparameters(subjects, place)]
        self.background.measure(window.samples, leaves)
        return tuple(item for item, _ in leaves)

    def gradients_early(self, optimizer: Any) -> None:
        """Begin with what an update is about to read."""
        if self._orders.grads and self._capturing is None:
            own = ((item, tensor) for item, tensor in self._own(optimizer) if self._chooses(item))
            self.background.measure_early(own)

    def gradients(self, step: int, window: Window, optimizer: Any) -> None:
        """What an update has read, and the gradients of parameters that nobody updates."""
        if self._orders.grads:
            others = ((Item("grad", name), _gradient(tensor)) for name, tensor in self._present.untrained())
            leaves = self._leaves((*self._own(optimizer), *others), step, STEP)
            self.background.measure_gradients(window.samples, leaves)

    def _own(self, optimizer: Any) -> Iterator[tuple[Item, torch.Tensor | None]]:
        for slot in self._present.subjects.slots(optimizer):
            yield slot.gradient, _gradient(slot.tensor)

    def rest(self, step: int, window: Window) -> None:
        """What a step leaves. All of it rests until the next update, but for buffers."""
        subjects = self._present.subjects
        self._measure(window.samples, sampling.buffers(subjects), step, STEP)
        for place, _ in enumerate(subjects.optimizers()):
            window.samples.setdefault(Item("updates", optimizer=place), sampling.updates(0))
            self._measure(window.samples, sampling.optimizer_state(subjects, place), step, STEP)
        self._measure(window.samples, sampling.parameters(subjects), step, STEP)
        self._measure(window.samples, sampling.sections(subjects), step, STEP)

    def drop_rest(self, samples: Samples) -> None:
        """Forget what a step left, as something else stands in its place when the next one begins."""
        for item in [one for one in samples if one.kind in _OF_REST]:
            del samples[item]

    def taken_over(self, step: int, window: Window, before: LiveNames) -> None:
        """A new optimizer trains from here on: what stands after the step is what that one begins with.

        `before` are the names under which the step was sampled.
        """
        samples = window.samples
        for item in [one for one in samples if one.kind in _OF_OPTIMIZERS]:
            del samples[item]
        subjects = self._present.subjects
        for place, _ in enumerate(subjects.optimizers()):
            self._measure(samples, sampling.optimizer_state(subjects, place), step, STEP)
        self._measure(samples, sampling.sections(subjects), step, STEP)
        self._follow(samples, before, "param", step, STEP)
        self._follow(samples, before, "buffer", step, STEP)

    def _follow(self, samples: Samples, before: LiveNames, kind: str, step: int, moment: str) -> None:
        """Samples of parameters or buffers under the names of now, told by identity; those that are new, as they are.

        A tensor that another one has taken the place of keeps its name: a buffer that forward passes make anew.
        """
        now = _tensors(self._present.subjects.names(), kind)
        had = {name: samples.pop(Item(kind, name), None) for name in _tensors(before, kind)}
        known = {id(tensor): had[name] for name, tensor in _tensors(before, kind).items()}
        here = {id(tensor) for tensor in now.values()}
        gone = {name for name, tensor in _tensors(before, kind).items() if id(tensor) not in here}
        new = []
        for name, tensor in now.items():
            sample = known.get(id(tensor)) or (had[name] if name in gone else None)
            if sample is None:
                new.append((Item(kind, name), tensor))
            else:
                samples[Item(kind, name)] = sample
        self._measure(samples, new, step, moment)

    # The load.

    def load_renamed(self, samples: Samples, before: LiveNames) -> None:
        """What was sampled of the load, under the names of now; with what has become known since."""
        now = self._present.subjects.names()
        self._follow(samples, before, "param", 0, LOAD)
        self._follow(samples, before, "buffer", 0, LOAD)
        if list(now.modules) != list(before.modules):
            self._measure(samples, sampling.modes(self._present.subjects), 0, LOAD)

    def buffers_renamed(self, samples: Samples, before: LiveNames) -> None:
        """As `load_renamed`, for what was sampled even earlier than the load."""
        self._follow(samples, before, "buffer", 0, LOAD)

    def buffers(self, samples: Samples) -> None:
        """The buffers, now."""
        self._measure(samples, sampling.buffers(self._present.subjects), 0, LOAD)

    def load(self, before: Samples) -> Samples:
        """The whole state before the first forward pass; `before` has what was sampled even earlier."""
        subjects = self._present.subjects
        samples: Samples = {}
        for leaves in (sampling.parameters(subjects), sampling.sections(subjects), sampling.modes(subjects)):
            self._measure(samples, leaves, 0, LOAD)
        earlier = {item for item in before if item.kind in ("rng", "buffer")}
        self._measure(
            samples,
            (one for one in (*sampling.generators(), *sampling.buffers(subjects)) if one[0] not in earlier), 0, LOAD
        )  # fmt: skip
        samples.update({item: before[item] for item in earlier})
        return samples

    def write_load(self, samples: Samples) -> None:
        """Write the load once the first update shows which optimizers there are, and which rates it will use."""
        subjects = self._present.subjects
        self._measure(samples, sampling.binding(subjects), 0, LOAD)
        for place, _ in enumerate(subjects.optimizers()):
            self._measure(samples, sampling.hyperparameters(subjects, place), 0, LOAD)
            self._measure(samples, sampling.optimizer_state(subjects, place), 0, LOAD)
        self.write(0, LOAD, samples)

    # Writing.

    def write_step(self, step: int, window: Window) -> None:
        """Write a step that is over: whole, or of one after a sampled one what it began with, or nothing."""
        if self.samples(step):
            self.write(step, STEP, window.samples)
        elif self.samples(step - 1):
            begin = {item: sample for item, sample in window.samples.items() if item.kind in _OF_BEGIN}
            self.write(step, STEP, begin)

    def write(self, step: int, moment: str, samples: Samples) -> None:
        """Write a moment."""
        self.background.write(step, moment, samples)
        if self._capturing is not None:
            self._capturing.close(step, moment)

    def settle(self, step: int, window: Window) -> None:
        """It is known which step a window belongs to: lay out what was kept of it."""
        kept, window.kept = window.kept, {}
        if self._capturing is not None:
            for item, tensor in kept.items():
                self._capturing.take(step, STEP, item, tensor)

    # What is left out, and what is laid out.

    def _measure(self, samples: Samples, leaves: Iterable[tuple[Item, Any]], step: int, moment: str) -> None:
        self.background.measure(samples, self._leaves(leaves, step, moment))

    def _leaves(self, leaves: Iterable[tuple[Item, Any]], step: int, moment: str) -> Iterator[tuple[Item, Any]]:
        capture = self._capturing
        for item, leaf in leaves:
            if not self._chooses(item):
                continue
            if capture is not None and _can_be_laid_out(leaf):
                capture.take(step, moment, item, leaf)
            yield item, leaf

    def _kept(self, window: Window, leaves: Iterable[tuple[Item, Any]]) -> Iterator[tuple[Item, Any]]:
        for item, leaf in leaves:
            if self._capturing is not None and _can_be_laid_out(leaf):
                window.kept[item] = leaf.detach().clone()
            yield item, leaf

    def _chooses(self, item: Item) -> bool:
        if not self._orders.only or item.kind not in _NAMED:
            return True
        chosen = self._chosen.get(item.name)
        if chosen is None:
            chosen = self._chosen[item.name] = any(fnmatchcase(item.name, glob) for glob in self._orders.only)
        return chosen

    @property
    def _capturing(self) -> Capture | None:
        orders = self._orders
        if self._capture is None and orders.capture is not None and orders.wanted is not None:
            rank, _ = rank_and_world()
            folder = orders.capture if rank == 0 else orders.capture / f"rank-{rank}"
            self._capture = Capture(folder, orders.wanted)
        return self._capture


def _can_be_laid_out(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and is_dense(leaf)


def _tensors(names: LiveNames, kind: str) -> Mapping[str, torch.Tensor]:
    return names.parameters if kind == "param" else names.buffers


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    # torch warns where the gradient is asked for of a tensor that keeps none.
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None
