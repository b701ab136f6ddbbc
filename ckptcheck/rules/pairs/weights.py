"""CK3: names, ties and weights of two checkpoints, and weights that no update reached."""

from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.comparison.checkpoint_diff import Kind, Row
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.pairs.completeness import optimizers_apart
from ckptcheck.rules.pairs.course import both, model_rows, state_rows, unnamed
from ckptcheck.rules.pairs.leaps import WIDE, leapt
from ckptcheck.rules.pairs.lost_names import statistics_anew, unlike_buffers, unlike_names
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored import binding as stored
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.scalars import value_of
from ckptcheck.state.training_state import Optimizer

_LEAST_RATE: Final = 1e-6
"""Rates below may round away."""
_UNSCALED: Final = "momentum_buffer"
"""A moment that a weight is moved by as it is, times the rate; others are divided by their size."""
_LEAST_CHANGE: Final = 1e-7
"""Moments that changed by less may be of rounding alone, and move no weight."""
_MOMENTS: Final = ("exp_avg", "momentum_buffer", "exp_inf", "prev")
"""State that a gradient can turn to another sign."""


@also(stored.names_not_aligned)
def names_not_aligned(pair: Pair) -> Iterator[Evidence]:
    """The members of an optimizer cannot be told apart by name, so that groups and order are not judged."""
    for one, left, _ in both(pair.diff) if not optimizers_apart(pair) else ():
        if reason := unnamed(pair.diff, one):
            members = sum(len(group.members) for group in left.groups)
            yield Evidence(
                f"{reason}; whether its {members} parameters changed group or order is not judged",
                Place(optimizer=one.optimizer),
                {"members": members, "paired_by": one.paired_by},
                "build the optimizer from model.named_parameters(), so that its groups keep param_names",
            )


@also(stored.key_prefix_mismatch)
def key_prefix_mismatch(pair: Pair) -> Iterator[Evidence]:
    """The names of one checkpoint begin with something that those of the other lack."""
    prefixes = pair.course.prefixes
    if prefixes is not None:
        side, prefix = ("left", prefixes[0]) if prefixes[0] else ("right", prefixes[1])
        gone = [row.parameter for row in pair.diff.rows
                if row.section == "model" and row.kind in (Kind.REMOVED, Kind.RENAMED) and row.parameter]  # fmt: skip
        released = not (pair.diff.left.state.optimizers and pair.diff.right.state.optimizers)
        pattern = f"^{prefix}=" if side == "left" else f"^={prefix}"
        yield Evidence(
            f"{count(gone, 'name')} of the model {'begins' if len(gone) == 1 else 'begin'} with {prefix!r} in the "
            f"{side} checkpoint only, so that a load with strict=False takes none of them: {names(gone)}",
            Place(parameter=gone[0]),
            {"prefix": prefix, "side": side, "count": len(gone), "names": kept(gone)},
            f"save the same module each time; to compare the two, use --map '{pattern}'",
            Severity.WARNING if released else None,
        )


@also(runs.weights_not_loaded)
def weights_not_loaded(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """Names came or went, or weights are farther from the earlier ones than updates can move them."""
    if pair.course.why_not:
        yield Unjudged(pair.course.why_not)
        return
    if pair.course.prefixes is None:
        yield from unlike_names(pair)
        yield from unlike_buffers(pair)
        yield from statistics_anew(pair)
    if not optimizers_apart(pair):
        for one, _, right in both(pair.diff):
            yield from leapt(pair, one, right)


@also(runs.stale_parameter_reference)
def stale_parameter_reference(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """Weights are byte for byte those of the earlier checkpoint although gradients reached the optimizer's state."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    weights = model_rows(pair.diff)
    rows = state_rows(pair.diff)
    for one, left, right in both(pair.diff):
        if reason := unnamed(pair.diff, one) if one.paired_by != "name" else "":
            yield Unjudged(reason)
            continue
        resting = [
            name for group in right.groups for name in group.members
            if name is not None and _is_in_both(pair, name) and name not in weights
            and _steps(left, name) and _steps(right, name)
        ]  # fmt: skip
        sure = any(_got_gradient(rows, one.optimizer, name, _rate(right, name)) for name in resting)
        stale = [name for name in resting if any((one.optimizer, name, key) in rows for key in _MOMENTS)]
        if sure and pair.diff.whole:
            yield Evidence(
                f"{count(stale, 'parameter')} of optimizer {one.label or one.optimizer} {_is(stale)} byte for byte as "
                "in the left checkpoint, although gradients changed the optimizer state: it steps other tensors than "
                f"the model holds: {names(stale)}",
                Place(optimizer=one.optimizer, parameter=stale[0], group=right.group_of(stale[0])),
                {"parameters": kept(stale), "updates": pair.course.updates},
                "build the optimizer after the model is complete, and load weights in place (no assign=True)",
            )


def _is_in_both(pair: Pair, name: str) -> bool:
    """Whether both hold the parameter, in a dtype that keeps small updates."""
    sides = [side.state.parameters.get(name) for side in (pair.diff.left, pair.diff.right)]
    return all(
        side is not None and side.entry.spec is not None and side.entry.spec.dtype in WIDE for side in sides
    )  # fmt: skip


def _steps(optimizer: Optimizer, name: str) -> bool:
    """Whether the rate of a parameter's group moves it."""
    return _rate(optimizer, name) >= _LEAST_RATE


def _rate(optimizer: Optimizer, name: str) -> float:
    place = optimizer.group_of(name)
    rate = value_of(optimizer.groups[place].hyperparameters.get("lr")) if place is not None else None
    return float(rate) if isinstance(rate, float | int) else 0.0


def _got_gradient(rows: Mapping[tuple[int, str, str], Row], optimizer: int, name: str, rate: float) -> bool:
    """Whether a moment took a gradient in: one that only decays keeps every sign and comes no farther than zero.

    A bias before a norm gets none but rounding, which may turn signs and moves no weight.
    """
    for key in _MOMENTS:
        row = rows.get((optimizer, name, key))
        measured = row.difference if row is not None and row.kind is Kind.CHANGED else None
        if measured is None or measured.max_abs is None:
            continue
        if measured.max_abs * (rate if key == _UNSCALED else 1.0) < _LEAST_CHANGE:
            continue
        if measured.sign_flips or (measured.rel_l2 is not None and measured.rel_l2 > 1):
            return True
    return False


def _is(values: list[str]) -> str:
    return "is" if len(values) == 1 else "are"


@also(runs.tied_weights_broken)
def tied_weights_broken(pair: Pair) -> Iterator[Evidence]:
    """Two names that are one tensor in one checkpoint are two tensors in the other, of the same format."""
    left, right = pair.diff.left, pair.diff.right
    if pair.course.why_not or left.raw.container != right.raw.container:
        return  # safetensors and others keep no ties by design
    rows = model_rows(pair.diff)
    for side, one, other in (("left", left, right), ("right", right, left)):
        held = other.state.parameters
        for name, parameter in one.state.parameters.items():
            for alias in parameter.aliases:
                if name in held and alias in held:
                    apart = _apart(rows, name, alias)
                    yield Evidence(
                        f"{name} and {alias} are one tensor in the {side} checkpoint and two in the other, "
                        f"{'which differ' if apart else 'of the same values'}",
                        Place(parameter=name, key=alias),
                        {"names": [name, alias], "tied": side, "values_differ": apart},
                        "tie the weights again in your load, and load in place",
                        None if apart else Severity.WARNING,
                    )


def _apart(rows: Mapping[str, Row], name: str, alias: str) -> bool:
    """Whether two names that are one tensor on a side differ on the other: they are apart from it by other amounts."""
    found = [rows.get(name), rows.get(alias)]
    measured = [row.difference if row is not None else None for row in found]
    return measured[0] != measured[1] or (found[0] is None) != (found[1] is None)


RULES: Final[tuple[Rule[Pair], ...]] = (
    names_not_aligned,
    key_prefix_mismatch,
    weights_not_loaded,
    stale_parameter_reference,
    tied_weights_broken,
)
