"""CK309: weights that are farther from the earlier ones than updates of Adam can move them."""

import math
from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.checkpoint_diff import OptimizerPair, Row
from ckptcheck.finding import Place, Severity
from ckptcheck.optimizers.guessing import guess, without_places
from ckptcheck.optimizers.table import SHARED_HYPERPARAMETERS
from ckptcheck.rules.pairs.course import Counted, model_rows
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence
from ckptcheck.rules.words import brief, kept, names
from ckptcheck.state.scalars import finite_number, value_of
from ckptcheck.state.training_state import Optimizer
from ckptcheck.trace.items import Item

WIDE: Final = ("float32", "float64")
"""Dtypes in which an update of a usual size does not vanish, nor grow by rounding."""
_SLACK: Final = 1.5
_SLACK_OF_SCHEDULE: Final = 5.0
"""How many times the farthest that Adam can go most weights must have moved, to be others; where a schedule may have
had higher rates in between than both files know."""
_FAR: Final = 10.0
"""The same of a few weights, the rest of which went on: so far no rate that a schedule sets by itself takes them."""
_ANEW: Final = 0.9
"""Norm of the move over that of the weights: of two that do not know each other it is about 1 or more."""
_ADAM: Final = frozenset({"Adam", "AdamW", "NAdam", "RAdam", "Adamax", "SparseAdam"})
"""Classes whose update is bound by the rate alone; others, such as LAMB, go by the size of the weights."""


def leapt(pair: Pair, one: OptimizerPair, right: Optimizer) -> Iterator[Evidence]:
    """Say that most weights, or a few, were not trained on from the left ones."""
    rows, counters = model_rows(pair.diff), pair.course.of(one.optimizer)
    slack = _SLACK_OF_SCHEDULE if _has_schedule(pair) else _SLACK
    all_far, few_far, seen = [], [], 0
    adam = _is_adam(right)
    for place, group in enumerate(right.groups):
        bound = _bound(pair, one, place)
        for name in group.members:
            row, counted = rows.get(name or ""), counters.get(name or "")
            if bound is None or name is None or counted is None or counted.rise <= 0:
                continue
            seen += 1
            moved = row.difference.max_abs if row is not None and row.difference is not None else None
            if moved is None or row is None:
                continue
            most = bound * counted.rise
            if moved > slack * most:
                all_far.append((name, moved, most))
            if (
                adam
                and _is_wide(row)
                and _is_another(row)
                and moved > _FAR * (most + _decayed(pair, one, place, counted))
            ):
                few_far.append((name, moved, most))
    most_leapt = len(all_far) * 2 > seen
    if far := all_far if most_leapt else few_far:
        yield _told(one, far, seen, counters, _averaged(pair) and not most_leapt)


def _told(
    one: OptimizerPair,
    far: list[tuple[str, float, float]],
    seen: int,
    counters: dict[str, Counted],
    may_be_averaged: bool,
) -> Evidence:
    name, moved, most = max(far, key=lambda entry: entry[1] / entry[2] if entry[2] else math.inf)
    which = "" if len(far) == 1 else f" ({names(entry[0] for entry in far)})"
    return Evidence(
        f"{len(far)} of {seen} parameters moved farther than their updates can move them{which}: {name} by "
        f"{brief(moved)}, where {brief(counters[name].rise)} updates go {brief(most)} at most; the weights were "
        "not loaded, or others were",
        Place(optimizer=one.optimizer, parameter=name),
        {"parameters": kept(entry[0] for entry in far), "moved": moved, "most": most, "of": seen},
        "look at the missing and unexpected keys that load_state_dict returns",
        Severity.WARNING if may_be_averaged else None,
    )


def _is_wide(row: Row) -> bool:
    sides = [entry.spec if entry is not None else None for entry in (row.left, row.right)]
    return all(spec is not None and spec.dtype in WIDE for spec in sides)


def _is_another(row: Row) -> bool:
    """Whether a tensor is so far away as one that was made anew; who prunes takes a part of it away."""
    measured = row.difference
    return measured is not None and (measured.rel_l2 is None or measured.rel_l2 >= _ANEW)


def _averaged(pair: Pair) -> bool:
    """Whether a side keeps an average, which may stand in the model's place when it is saved."""
    return any(side.state.sections.get("ema") for side in (pair.diff.left, pair.diff.right))


def _has_schedule(pair: Pair) -> bool:
    return any(side.state.sections.get("schedule") for side in (pair.diff.left, pair.diff.right))


def _is_adam(optimizer: Optimizer) -> bool:
    """Whether it is of a class of torch's Adam family, with nothing of its own in the groups."""
    rows = guess(optimizer).rows
    if not rows or not _ADAM.issuperset(row.name for row in rows):
        return False
    own = {without_places(path) for group in optimizer.groups for path in group.hyperparameters}
    known = {key for row in rows for key in (*row.hyperparameters, *row.perhaps, *row.flags)}
    return own <= known | SHARED_HYPERPARAMETERS


def _decayed(pair: Pair, one: OptimizerPair, place: int, counted: Counted) -> float:
    """The farthest that decoupled weight decay takes an element; without bound where its size is not known."""
    hyperparameters = pair.diff.right.state.optimizers[one.right or 0].groups[place].hyperparameters
    decay = finite_number(hyperparameters.get("weight_decay"))
    if not decay:
        return 0.0
    survey = pair.surveys[0]
    content = survey.contents.get(Item("param", counted.parameter)) if survey is not None else None
    rate = max(_rates(pair, one, place), default=0.0)
    return math.inf if content is None else abs(decay) * rate * counted.rise * content.largest


def _rates(pair: Pair, one: OptimizerPair, place: int) -> list[float]:
    """Rates of a group that either file knows."""
    sides = [pair.diff.left.state.optimizers[one.left or 0], pair.diff.right.state.optimizers[one.right or 0]]
    groups = [side.groups[place].hyperparameters for side in sides if place < len(side.groups)]
    rates = [finite_number(group.get(key)) for group in groups for key in ("lr", "initial_lr", "max_lr")]
    return [float(rate) for rate in rates if rate is not None]


def _bound(pair: Pair, one: OptimizerPair, place: int) -> float | None:
    """The farthest that one Adam update moves an element, at the highest rate that either file knows; None for others.

    |m| / sqrt(v) <= (1 - beta1) / sqrt(1 - beta2) (Kingma and Ba 2015, section 2.1), or 1.
    """
    sides = [pair.diff.left.state.optimizers[one.left or 0], pair.diff.right.state.optimizers[one.right or 0]]
    groups = [side.groups[place].hyperparameters for side in sides if place < len(side.groups)]
    known = _rates(pair, one, place)
    betas = [value_of(groups[-1].get(key)) for key in ("betas[0]", "betas[1]")]
    keeps_peak = any(key in group for group in groups for key in ("initial_lr", "max_lr"))
    if not known or not all(isinstance(beta, float) and 0 <= beta < 1 for beta in betas):
        return None
    if "weight_decay" not in groups[-1] or (not keeps_peak and (_has_schedule(pair) or min(known) < max(known))):
        return None  # a rate that is set by hand may have been higher in between
    first, second = (float(beta) for beta in betas if beta is not None)
    return max(known) * max(1.0, (1 - first) / math.sqrt(1 - second))
