"""CK4: frozen parameters between two checkpoints, by contract and by what the two show."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.contracts import Broken
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.pairs.completeness import has_rested, lacking, lost_keys, optimizers_apart
from ckptcheck.rules.pairs.course import both, unnamed
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also, rule
from ckptcheck.rules.runs import frozen as runs
from ckptcheck.rules.words import brief, count, kept, names


def _of(pair: Pair, *what: str) -> list[Broken]:
    return [one for one in pair.broken or () if one.what in what]


def _unheld(pair: Pair, *what: str) -> Iterator[Unjudged]:
    """What contracts of this kind could not be held against the two."""
    yield from (Unjudged(one.reason) for one in pair.not_held if one.what in what)


def _numbers(one: Broken) -> dict[str, Json]:
    """How far, and over how many updates."""
    measured = one.row.difference if one.row is not None else None
    told: dict[str, Json] = {"contract": one.contract, "pattern": one.pattern}
    if measured is not None:
        told |= {"max_abs": measured.max_abs, "rel_l2": measured.rel_l2, "max_ulp": measured.max_ulp,
                 "differing": measured.differing, "numel": measured.numel}  # fmt: skip
    if one.left_count is not None or one.right_count is not None:
        told |= {"left_count": one.left_count, "right_count": one.right_count}
    return told | ({"decay_factor": one.decay} if one.decay is not None else {})


def _how_far(one: Broken) -> str:
    measured = one.row.difference if one.row is not None else None
    if measured is None:
        return ""
    numbers = (("max abs", measured.max_abs), ("rel L2", measured.rel_l2), ("max ULP", measured.max_ulp))
    said = [f"{name} {brief(value)}" for name, value in numbers if value is not None]
    return f" by {', '.join(said)}" if said else ""


def _updates(one: Broken) -> str:
    """Said of the counters: "over 3 updates (its counter went from 5 to 8)"."""
    if one.left_count is None or one.right_count is None:
        return ""
    made = one.right_count - one.left_count
    return f", over {made} updates (its counter went from {one.left_count} to {one.right_count})"


def _moment(one: Broken) -> str:
    """What shows an update where no counter does."""
    return "" if one.left_count is not None or not one.key else f": its {one.key} moved{_how_far(one)}"


def _place(one: Broken) -> Place:
    return Place(parameter=one.parameter, key=one.key or None, optimizer=one.optimizer)


@also(runs.frozen_parameter_moved, "broken")
def frozen_parameter_moved(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The value of a parameter under a freeze contract is another one in the right checkpoint."""
    for one in _of(pair, "param"):
        decayed = f"; weight decay alone explains it: the factor (1 - lr x weight_decay)^n is {brief(one.decay)}" \
            if one.decay is not None else ""  # fmt: skip
        yield Evidence(
            f"{one.parameter} is under contract {one.contract!r} and moved{_how_far(one)}{_updates(one)}{decayed}",
            _place(one),
            {**_numbers(one), "moved": "value"},
            runs.HOW_TO_FREEZE,
        )
    yield from _unheld(pair, "param")


@also(runs.frozen_state_drift, "broken")
def frozen_state_drift(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The optimizer state of a parameter under `hold` is another one on the right, or still there under `reset`."""
    for one in _of(pair, "state", "kept-state"):
        moved = f"changed{_how_far(one)}" if one.what == "state" else "was kept"
        yield Evidence(
            f"{one.key} of {one.parameter}, which is under contract {one.contract!r}, {moved}{_updates(one)}",
            _place(one),
            {**_numbers(one), "moved": one.key},
            runs.HOW_TO_FREEZE,
        )
    yield from _unheld(pair, "state")


@also(runs.gradient_on_frozen_parameter, "broken")
def gradient_on_frozen_parameter(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """An update read a gradient of a parameter under `no-grad`, or one under `removed` is still in a group."""
    for one in _of(pair, "gradient"):
        yield Evidence(
            f"{one.parameter} is under contract {one.contract!r}, and updates read a gradient of it{_updates(one)}"
            f"{_moment(one)}",
            _place(one),
            {**_numbers(one), "read": True},
            "set p.grad = None when you freeze, and clear gradients with set_to_none=True",
            Severity.ERROR,
        )
    for one in _of(pair, "member"):
        yield Evidence(
            f"{one.parameter} is under contract 'removed' and is in optimizer {one.optimizer} of the right checkpoint",
            _place(one),
            {"contract": one.contract, "pattern": one.pattern},
            "leave it out of the optimizer's groups",
            Severity.ERROR,
        )
    yield from _unheld(pair, "gradient")


@rule("CK404", "frozen-buffers-moved", Severity.WARNING, "broken")
def frozen_buffers_moved(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """Buffers of a module under a freeze contract changed: running statistics do not follow requires_grad.

    Why: a frozen BatchNorm in train mode goes on averaging, so the frozen part gives other outputs than before.
    Example: `requires_grad_(False)` on a backbone, and `model.train()` at the start of each epoch.
    Fix: put frozen modules into eval mode, again after each `model.train()`.
    Limits: judged for `no-update` and `hold`. A buffer is bound by a pattern that matches its own name, or by that of
    every parameter of its module.
    """
    moved = _of(pair, "buffer")
    if moved:
        first = moved[0]
        found = [one.parameter for one in moved]
        yield Evidence(
            f"{count(found, 'buffer')} under contract {first.contract!r} moved: {names(found)}; {first.parameter}"
            f"{_how_far(first)}",
            Place(parameter=first.parameter),
            {**_numbers(first), "buffers": kept(found), "count": len(found)},
            "put the frozen modules into eval mode, again after each model.train()",
        )
    yield from _unheld(pair, "buffer")


@also(runs.freeze_set_changed)
def freeze_set_changed(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """Other parameters are trained on the way to the later checkpoint than before: a change that may be meant."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    yield from _requires_grad(pair)
    for one, left, _ in both(pair.diff):
        if reason := unnamed(pair.diff, one):
            yield Unjudged(reason)
            continue
        here = [entry for entry in pair.diff.regrouped if entry.optimizer == one.optimizer]
        known, right = set(left.members), pair.diff.right.state
        held = {name for optimizer in right.optimizers for name in optimizer.members}
        entered = [entry.parameter for entry in here if entry.left_group is None and entry.parameter not in known]
        gone = [
            entry.parameter for entry in here
            if entry.right_group is None and entry.parameter not in held
            and (entry.parameter not in right.parameters
                 or right.parameters[entry.parameter].requires_grad is False)
            and pair.freeze.get(entry.parameter) != "removed"
        ]  # fmt: skip
        yield from _changed(one.optimizer, entered, "came into optimizer", "thawed")
        yield from _changed(one.optimizer, gone, "left optimizer", "frozen")
        yield from _stalled(pair, one.optimizer)


def _requires_grad(pair: Pair) -> Iterator[Evidence]:
    left, right = pair.diff.left.state.parameters, pair.diff.right.state.parameters
    both_say = [
        (name, one.requires_grad) for name, one in left.items()
        if name in right and one.requires_grad is not None and right[name].requires_grad is not None
        and one.requires_grad != right[name].requires_grad
    ]  # fmt: skip
    frozen = [name for name, trained in both_say if trained]
    thawed = [name for name, trained in both_say if not trained]
    if frozen or thawed:
        parts = [f"no longer trained: {names(frozen)}" if frozen else "",
                 f"now trained: {names(thawed)}" if thawed else ""]  # fmt: skip
        yield Evidence(
            f"{count(both_say, 'parameter')} changed requires_grad; {'; '.join(part for part in parts if part)}",
            Place(parameter=both_say[0][0]),
            {"frozen": kept(frozen), "thawed": kept(thawed)},
            "where it is not meant, restore requires_grad from the checkpoint before the optimizer is built",
            Severity.WARNING,
        )


def _changed(optimizer: int, found: list[str], how: str, kind: str) -> Iterator[Evidence]:
    if found:
        yield Evidence(
            f"{count(found, 'parameter')} {how} {optimizer} between the two checkpoints: {names(found)}",
            Place(optimizer=optimizer, parameter=found[0]),
            {kind: kept(found)},
            "where it is not meant, build the optimizer over the same parameters as before",
            Severity.WARNING,
        )


def _stalled(pair: Pair, optimizer: int) -> Iterator[Evidence]:
    """Parameters that were trained up to the left checkpoint and then neither counted nor moved, while others did."""
    counters = pair.course.of(optimizer)
    newest = max((one.left for one in counters.values()), default=0.0)
    still = [
        one for name, one in counters.items()
        if one.rise == 0 and one.left == newest > 0 and name not in pair.freeze and has_rested(pair, name)
    ]  # fmt: skip
    if still and pair.course.updates > 0:
        found = [one.parameter for one in still]
        yield Evidence(
            f"{count(found, 'parameter')} of optimizer {optimizer} got no update after the left checkpoint, though in "
            f"a group and trained before; others got {brief(pair.course.updates)}: {names(found)}",
            Place(optimizer=optimizer, parameter=found[0], key="step", group=still[0].group),
            {"frozen": kept(found), "counter": still[0].left, "updates_of_others": pair.course.updates},
            "where it is not meant, look for code that freezes at every start, and restore requires_grad",
            Severity.WARNING,
        )


@also(runs.frozen_state_dropped)
def frozen_state_dropped(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """A parameter that rested between the two checkpoints had optimizer state in the earlier one and has none now."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    by_contract = {one.parameter: one for one in _of(pair, "dropped")}
    for one, left, right in both(pair.diff):
        lost = lost_keys(pair, one)
        found = [
            name for name in lacking(pair, one, right, lost)[0]
            if any(right.state.values()) and pair.freeze.get(name) not in ("reset", "removed")
            and (name in by_contract or has_rested(pair, name))
        ]  # fmt: skip
        if found:
            yield Evidence(
                f"{count(found, 'frozen parameter')} of optimizer {one.label or one.optimizer} had state in the left "
                f"checkpoint and {'has' if len(found) == 1 else 'have'} none in the right one: {names(found)}",
                Place(optimizer=one.optimizer, parameter=found[0], group=left.group_of(found[0])),
                {"parameters": kept(found), "keys": kept(lost[found[0]])},
                "keep the state of frozen parameters in the checkpoint",
            )


RULES: Final[tuple[Rule[Pair], ...]] = (
    frozen_parameter_moved,
    frozen_state_drift,
    gradient_on_frozen_parameter,
    frozen_buffers_moved,
    freeze_set_changed,
    frozen_state_dropped,
)
