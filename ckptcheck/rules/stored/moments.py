"""CK5: moments of an optimizer that became zero, were never anything else, or are kept too narrow."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.survey import Content, Survey, Underflow
from ckptcheck.finding import Place, Severity
from ckptcheck.optimizers.guessing import Guess
from ckptcheck.optimizers.row import Kind
from ckptcheck.optimizers.table import KEPT_BESIDE, SECOND_MOMENTS, TORCH
from ckptcheck.rules.rule import Evidence, Unjudged, also, rule
from ckptcheck.rules.runs import numbers as runs
from ckptcheck.rules.stored.counters import counters_of, number_of
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.rules.words import brief, count, kept, names
from ckptcheck.state.tensor import ITEMSIZE_BYTES
from ckptcheck.state.training_state import Entry, Group, Optimizer
from ckptcheck.trace.items import Item

_MAXIMUM: Final = "max_exp_avg_sq"
"""With amsgrad, what an update divides by in place of `exp_avg_sq`."""
_ADAM_KEYS: Final = frozenset({"step", "exp_avg", "exp_avg_sq", _MAXIMUM, *KEPT_BESIDE})
_NATURAL: Final = 1e-16
"""First moments below this come of gradients whose square is no float32: their second moment is rightly zero."""
MOMENTS: Final = frozenset({"exp_avg", "grad_avg", "momentum_buffer", *SECOND_MOMENTS})
"""State keys that are averages or sums of gradients, or of their squares."""
_FLOATS: Final = frozenset({"float64", "float32", "float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class _Lost:
    """Elements of one second moment that became zero, against the `eps` of its group."""

    item: Item
    found: Underflow
    eps: float

    @property
    def factor(self) -> float:
        """How many learning rates the next update can be long; inf where eps is 0."""
        return self.found.largest / self.eps if self.eps else float("inf")


@rule("CK503", "underflowed-second-moment", Severity.ERROR, "survey")
def underflowed_second_moment(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """Elements of a second moment are zero although their first moment is far from it.

    Why: the next update divides by eps alone and is many times the learning rate there: the loss jumps on resume.
    Example: moments were saved as float16, in which the squares of small gradients are zero.
    Fix: save optimizer state in the dtype that training uses; resume from a checkpoint that has it.
    Limits: judged where the first moment is larger than the group's eps, so that the update would exceed the learning
    rate; gradients so small that their square is no float32 are silent, as are classes that are not known.
    """
    assert stored.survey is not None
    found: dict[tuple[int, str], list[_Lost]] = defaultdict(list)
    unknown: list[str] = []
    for item, one in stored.survey.underflows.items():
        optimizer = stored.checkpoint.state.optimizers[item.optimizer]
        if _MAXIMUM in optimizer.state[item.name] and item.key != _MAXIMUM:
            continue
        if not _divides(stored.classes[item.optimizer], optimizer.state[item.name]):
            unknown.append(f"what optimizer {item.optimizer} divides by is not known: its class is not")
            continue
        group = _group(optimizer, item.name)
        eps = number_of(group.hyperparameters.get("eps")) if group is not None else None
        if eps is None or group is None:
            unknown.append(f"groups of optimizer {item.optimizer} have no eps")
        elif _outlives(group) and one.largest > max(eps, _NATURAL):
            found[item.optimizer, item.key].append(_Lost(item, one, eps))
    for lost in found.values():
        yield _underflowed(lost)
    for reason in dict.fromkeys(unknown):
        yield Unjudged(f"second moments are zero where first ones are not, and {reason}")
    yield from _unread(stored.survey)


def _underflowed(lost: Sequence[_Lost]) -> Evidence:
    worst = max(lost, key=lambda one: (one.factor, one.found.largest))
    item, found = worst.item, worst.found
    return Evidence(
        f"{item.key} of optimizer {item.optimizer} is zero where {SECOND_MOMENTS[item.key]} is not, for "
        f"{count(lost, 'parameter')}: {names(one.item.name for one in lost)}; {item.name} has {found.count} such "
        f"elements of {found.numel}, and the next update can be {brief(worst.factor)} times the learning rate there",
        Place(parameter=item.name, key=item.key, optimizer=item.optimizer),
        {
            "count": found.count,
            "numel": found.numel,
            "first_at": [*found.first_at],
            "largest": found.largest,
            "eps": worst.eps,
            "factor": worst.factor if worst.eps else "inf",
            "parameters": kept(one.item.name for one in lost),
        },
        "save the optimizer's state in the dtype that training uses, and resume from a checkpoint that has it",
    )


def _divides(guess: Guess, kept_entries: Mapping[str, Entry]) -> bool:
    """Whether it is known that the class divides a first moment by the second one of the same element."""
    return bool(guess.rows) or _ADAM_KEYS.issuperset(kept_entries)


def _outlives(group: Group) -> bool:
    """Whether a second moment decays slower than the square of the first, as it does with all usual betas."""
    betas = [number_of(group.hyperparameters.get(f"betas[{place}]")) for place in (0, 1)]
    return betas[0] is None or betas[1] is None or betas[1] > betas[0] ** 2


def _group(optimizer: Optimizer, name: str) -> Group | None:
    place = optimizer.group_of(name)
    return optimizer.groups[place] if place is not None else None


def _unread(survey: Survey) -> Iterator[Unjudged]:
    items = [item for item in survey.unread if item.kind == "state" and item.key in MOMENTS]
    if items:
        reason = survey.unread[items[0]]
        yield Unjudged(f"{count(items, 'moment')} could not be read, as {items[0].name}.{items[0].key}: {reason}")


@dataclass(frozen=True, slots=True)
class _Beside:
    """A moment and the dtypes of both: its own, and its parameter's."""

    name: str
    key: str
    dtype: str
    parameter_dtype: str


@also(runs.dtype_narrowed)
def dtype_narrowed(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """Moments are kept in a narrower dtype than their own parameter, in a class that makes them in the parameter's."""
    for place in range(len(stored.checkpoint.state.optimizers)):
        beside = _moments_beside(stored, place)
        narrow = [one for one in beside if ITEMSIZE_BYTES[one.dtype] < ITEMSIZE_BYTES[one.parameter_dtype]]
        if narrow:
            yield _narrow(narrow, place)


def _moments_beside(stored: Stored, place: int) -> Iterator[_Beside]:
    optimizer, parameters = stored.checkpoint.state.optimizers[place], stored.checkpoint.state.parameters
    for name, key, entry in _whole_moments(optimizer, stored.classes[place]):
        whose = parameters[name].entry.spec if name in parameters else None
        if entry.spec is not None and whose is not None and {entry.spec.dtype, whose.dtype} <= _FLOATS:
            yield _Beside(name, key, entry.spec.dtype, whose.dtype)


def _narrow(found: Sequence[_Beside], place: int) -> Evidence:
    first = found[0]
    listed = [f"{one.name}.{one.key}" for one in found]
    return Evidence(
        f"optimizer {place} has {count(found, 'moment')} in {first.dtype} beside parameters in "
        f"{first.parameter_dtype}: {names(listed)}",
        Place(parameter=first.name, key=first.key, optimizer=place),
        {
            "dtype": first.dtype,
            "parameter_dtype": first.parameter_dtype,
            "tensors": kept(listed),
            "count": len(found),
        },
        f"save moments in the dtype that training uses, not as {first.dtype}",
    )


def _whole_moments(optimizer: Optimizer, guess: Guess) -> Iterator[tuple[str, str, Entry]]:
    """Moments of a parameter's shape, of classes of torch, which make them like the parameter; others may choose."""
    if not guess.rows or not set(guess.names) <= {row.name for row in TORCH}:
        return
    if any("dtype" in path for group in optimizer.groups for path in group.hyperparameters):
        return
    keys = {key for row in guess.rows for key, kind in row.keys.items() if kind is Kind.PARAMETER} & MOMENTS
    keys -= {"variance"}  # of Adafactor, as its rows and columns
    for name, state in optimizer.state.items():
        yield from ((name, key, entry) for key, entry in state.items() if key in keys)


@rule("CK506", "zero-moments", Severity.WARNING, "survey")
def zero_moments(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """Every moment, or every first one, of an optimizer is zero although its counters say that it was stepped.

    Why: the state was made up and holds no history: the first updates after a resume are those of a fresh optimizer.
    Example: the state was read through the state_dict helpers of torch.distributed.checkpoint before any step, which
    step once with zero gradients to make it; or it was made for another optimizer than the one that trains; or a
    conversion filled in first moments that it did not find.
    Fix: save the optimizer that is stepped, after it was.
    Limits: single parameters whose moments are zero are silent, as rows that were never used; so are classes without
    counters, as SGD, and quantised moments.
    """
    assert stored.survey is not None
    for place, optimizer in enumerate(stored.checkpoint.state.optimizers):
        yield from _first_moments_lost(stored, place, stored.survey)
        contents = _contents(place, optimizer, stored.survey)
        if not contents or not all(one is not None and one.zeros == one.numel for one in contents):
            continue
        steps = [one.value for one in counters_of(stored, place) if one.value is not None and one.value > 0]
        if steps:
            yield Evidence(
                f"all {len(contents)} moments of optimizer {place} are zero although its counters stand at "
                f"{brief(max(steps))}: the state holds no history",
                Place(optimizer=place),
                {"moments": len(contents), "step": max(steps)},
                "save the optimizer that trains, after it was stepped",
            )


def _first_moments_lost(stored: Stored, place: int, survey: Survey) -> Iterator[Evidence]:
    """Every first moment is zero and its second one is not, which no step leaves where the first beta is above 0."""
    optimizer = stored.checkpoint.state.optimizers[place]
    zero: list[str] = []
    for name, state in optimizer.state.items():
        first, second = (survey.contents.get(Item("state", name, key, place)) for key in ("exp_avg", "exp_avg_sq"))
        if not {"exp_avg", "exp_avg_sq"} <= state.keys() or first is None or second is None:
            continue
        if first.zeros < first.numel:
            return
        if second.zeros < second.numel:
            zero.append(name)
    betas = [number_of(group.hyperparameters.get("betas[0]")) for group in optimizer.groups]
    steps = [one.value for one in counters_of(stored, place) if one.value is not None and one.value > 0]
    if zero and steps and all(beta is not None and beta > 0 for beta in betas):
        yield Evidence(
            f"exp_avg of optimizer {place} is zero for every parameter, and exp_avg_sq is not for {names(zero)}: no "
            f"step leaves them so, and its counters stand at {brief(max(steps))}",
            Place(parameter=zero[0], key="exp_avg", optimizer=place),
            {"parameters": kept(zero), "count": len(zero), "step": max(steps)},
            "look for what drops first moments when the state is saved or converted",
        )


def _contents(place: int, optimizer: Optimizer, survey: Survey) -> list[Content | None]:
    """What each moment holds, None where that is not known; none at all where the class keeps others beside them."""
    found: list[Content | None] = []
    for name, state in optimizer.state.items():
        for key, entry in state.items():
            if entry.spec is not None and entry.spec.numel and key in MOMENTS:
                found.append(survey.contents.get(Item("state", name, key, place)))
            elif entry.spec is not None and entry.spec.numel > 1 and key not in KEPT_BESIDE:
                return []
    return found
