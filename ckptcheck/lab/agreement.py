"""The implementations of an optimizer against its loop over parameters: the same steps, the same bits?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from ckptcheck.comparison.tensors import TensorDifference, compare_bytes
from ckptcheck.finding import Json
from ckptcheck.lab.bench import Bench, said_of
from ckptcheck.lab.contract import FOR, NONE, ZERO, Agreement
from ckptcheck.lab.snapshot import Snapshot, same
from ckptcheck.lab.subject import Subject
from ckptcheck.lab.variants import Variant, implementations_of
from ckptcheck.state.tensor import TensorSpec

HISTORY: Final = 5
"""Steps with gradients before the one that is none or zero."""
_SHAPES: Final = {"p": (37, 53), "q": (8, 5)}
"""Large enough for what works in vectors, and with a rest that does not fill one."""


def agreements(
    subject: Subject, variants: Sequence[Variant], device: str, *, flat: bool = False
) -> Iterator[Agreement]:
    """Each implementation that the subject has beside its loop, with each variant."""
    others = [one for one in implementations_of(subject) if one != FOR]
    for variant in variants if others else ():
        for grad in (NONE, ZERO):
            plain = _Last(Bench(subject, variant, FOR, device, flat=flat), grad)
            for implementation in others:
                yield _agreement(plain, _Last(Bench(subject, variant, implementation, device, flat=flat), grad), grad)


class _Last:
    """A twin that made its history and one more step, and what that step changed; `raised` where it did not."""

    def __init__(self, bench: Bench, grad: str) -> None:
        self.bench = bench
        self.raised = ""
        try:
            self.twin = bench.twin(HISTORY, _SHAPES)
            before = self._snapshot()
            self.twin.give(p=grad)
            self.twin.update()
            self.after = self._snapshot()
        except Exception as error:  # noqa: BLE001  whatever it says, it is not there
            self.raised = said_of(error)
        else:
            self.answer = not before.same_param(self.after), before.changed_state(self.after)

    def _snapshot(self) -> Snapshot:
        return Snapshot.of(self.twin.optimizer, self.twin.p)


def _agreement(plain: _Last, other: _Last, grad: str) -> Agreement:
    bench = other.bench
    named = bench.subject.name, bench.variant.name, bench.implementation, grad, HISTORY + 1
    if plain.raised or other.raised:
        return Agreement(*named, raised=other.raised or f"for: {plain.raised}")
    distance = _distance(plain.after.param, other.after.param)
    state = {key: _distance(*pair) for key, pair in _tensors(plain.after, other.after).items() if not same(*pair)}
    told: dict[str, Json] = {key: one.max_ulp for key, one in state.items()}
    keys = plain.after.state.keys() == other.after.state.keys()
    plainly = all(same(plain.after.state[key], other.after.state[key]) for key in _numbers(plain.after, other.after))
    return Agreement(
        *named,
        bitwise=plain.after.same_param(other.after) and not state and keys and plainly and _same_beside(plain, other),
        max_ulp=distance.max_ulp,
        max_abs=distance.max_abs,
        state_ulp=told,
        same_contract=(plain.answer[0], {*plain.answer[1]}) == (other.answer[0], {*other.answer[1]}),
        update=_size_of_update(plain),
    )


def _same_beside(plain: _Last, other: _Last) -> bool:
    """Whether the parameter beside is the same too."""
    return same(plain.twin.parameters["q"].detach(), other.twin.parameters["q"].detach())


def _size_of_update(one: _Last) -> float:
    """The greatest change of a value over all the steps, against which a difference is held."""
    begun = one.bench.parameters(_SHAPES)["p"]
    return float((one.twin.p.detach() - begun.detach()).abs().max())


def _tensors(left: Snapshot, right: Snapshot) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    both = left.state.keys() & right.state.keys()
    pairs = {key: (left.state[key], right.state[key]) for key in both}
    return {key: pair for key, pair in pairs.items() if all(isinstance(one, torch.Tensor) for one in pair)
            and pair[0].shape == pair[1].shape}  # fmt: skip


def _numbers(left: Snapshot, right: Snapshot) -> list[str]:
    held: Mapping[str, Any] = left.state
    return [key for key in held.keys() & right.state.keys() if not isinstance(held[key], torch.Tensor)]


def _distance(left: torch.Tensor, right: torch.Tensor) -> TensorDifference:
    sides = [one.detach().cpu().contiguous() for one in (left, right)]
    specs = [TensorSpec(str(one.dtype).removeprefix("torch."), tuple(one.shape)) for one in sides]
    views = [memoryview(one.reshape(-1).view(torch.uint8).numpy().tobytes()) for one in sides]
    return compare_bytes(views[0], views[1], specs[0], specs[1])
