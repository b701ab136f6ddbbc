"""CK3: names, ties and weights of two checkpoints, and weights that no update reached."""

import math
from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.comparison.checkpoint_diff import Kind, OptimizerPair, Row
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.pairs.completeness import optimizers_apart
from ckptcheck.rules.pairs.course import both, model_rows, state_rows, unnamed
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored import binding as stored
from ckptcheck.rules.words import brief, count, kept, names
from ckptcheck.state.scalars import value_of
from ckptcheck.state.training_state import Optimizer

_WIDE: Final = ("float32", "float64")
"""Dtypes in which an update of a usual size does not vanish."""
_LEAST_RATE: Final = 1e-6
"""Rates below may round away."""
_UNSCALED: Final = "momentum_buffer"
"""A moment that a weight is moved by as it is, times the rate; others are divided by their size."""
_LEAST_CHANGE: Final = 1e-7
"""Moments that changed by less may be of rounding alone, and move no weight."""
_MOMENTS: Final = ("exp_avg", "momentum_buffer", "exp_inf", "prev")
"""State that a gradient can turn to another sign."""
_SLACK: Final = 1.5
_SLACK_OF_SCHEDULE: Final = 5.0
"""How many times the farthest that Adam can go a weight must have moved, to be another weight; where a schedule may
have had higher rates in between than both files know."""


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
        yield from _unlike_names(pair)
    if not optimizers_apart(pair):
        for one, _, right in both(pair.diff):
            yield from _leapt(pair, one, right)


def _unlike_names(pair: Pair) -> Iterator[Evidence]:
    parameters = {**pair.diff.left.state.parameters, **pair.diff.right.state.parameters}
    rows = [(name, row) for name, row in model_rows(pair.diff).items() if name in parameters]
    gone = [name for name, row in rows if row.kind in (Kind.REMOVED, Kind.RENAMED)]
    new = [name for name, row in rows if row.kind is Kind.ADDED]
    if gone or new:
        parts = [f"{names(gone)} of the left checkpoint only" if gone else "",
                 f"{names(new)} of the right one only" if new else ""]  # fmt: skip
        yield Evidence(
            f"{count([*gone, *new], 'parameter')} {'has' if len(gone) + len(new) == 1 else 'have'} no partner: "
            f"{'; '.join(part for part in parts if part)}",
            Place(parameter=(*gone, *new)[0]),
            {"left_only": kept(gone), "right_only": kept(new)},
            "load with strict=True, or look at the missing and unexpected keys that load_state_dict returns",
            Severity.WARNING if gone and pair.diff.right.state.optimizers else Severity.INFO,
        )


def _leapt(pair: Pair, one: OptimizerPair, right: Optimizer) -> Iterator[Evidence]:
    """Adam bounds every update: weights that moved much farther were not trained on from the left ones."""
    rows = model_rows(pair.diff)
    counters = pair.course.of(one.optimizer)
    has_schedule = any(side.state.sections.get("schedule") for side in (pair.diff.left, pair.diff.right))
    slack = _SLACK_OF_SCHEDULE if has_schedule else _SLACK
    far, seen = [], 0
    for place, group in enumerate(right.groups):
        bound = _bound(pair, one, place)
        for name in group.members:
            row, counted = rows.get(name or ""), counters.get(name or "")
            if bound is None or name is None or counted is None or counted.rise <= 0:
                continue
            seen += 1
            moved = row.difference.max_abs if row is not None and row.difference is not None else None
            if moved is not None and moved > slack * bound * counted.rise:
                far.append((name, moved, bound * counted.rise))
    if far and len(far) * 2 > seen:
        name, moved, most = far[0]
        yield Evidence(
            f"{len(far)} of {seen} parameters moved farther than their updates can move them: {name} by "
            f"{brief(moved)}, where {brief(counters[name].rise)} updates go {brief(most)} at most; the weights were "
            "not loaded, or others were",
            Place(optimizer=one.optimizer, parameter=name),
            {"parameters": kept(entry[0] for entry in far), "moved": moved, "most": most, "of": seen},
            "look at the missing and unexpected keys that load_state_dict returns",
        )


def _bound(pair: Pair, one: OptimizerPair, place: int) -> float | None:
    """The farthest that one Adam update moves an element, at the highest rate that either file knows; None for others.

    |m| / sqrt(v) <= (1 - beta1) / sqrt(1 - beta2) (Kingma and Ba 2015, section 2.1), or 1.
    """
    sides = [pair.diff.left.state.optimizers[one.left or 0], pair.diff.right.state.optimizers[one.right or 0]]
    groups = [side.groups[place].hyperparameters for side in sides if place < len(side.groups)]
    rates = [value_of(group.get(key)) for group in groups for key in ("lr", "initial_lr", "max_lr")]
    betas = [value_of(groups[-1].get(key)) for key in ("betas[0]", "betas[1]")]
    known = [rate for rate in rates if isinstance(rate, float)]
    has_schedule = any(side.state.sections.get("schedule") for side in (pair.diff.left, pair.diff.right))
    keeps_peak = any(key in group for group in groups for key in ("initial_lr", "max_lr"))
    if not known or not all(isinstance(beta, float) and 0 <= beta < 1 for beta in betas):
        return None
    if "weight_decay" not in groups[-1] or (has_schedule and not keeps_peak):
        return None
    first, second = (float(beta) for beta in betas if beta is not None)
    return max(known) * max(1.0, (1 - first) / math.sqrt(1 - second))


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
        side is not None and side.entry.spec is not None and side.entry.spec.dtype in _WIDE for side in sides
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
