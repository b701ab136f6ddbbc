"""CK5: numbers in one checkpoint. What its tensors hold was counted while they were read."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ckptcheck.comparison.survey import Content, Survey
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.optimizers.table import SECOND_MOMENTS
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, rule
from ckptcheck.rules.stored import counters, joined, moments
from ckptcheck.rules.stored.broken_settings import nan_hyperparameters
from ckptcheck.rules.stored.sentinels import is_sentinel, is_variance, may_be_odd
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.rules.words import count, count_of, kept, names
from ckptcheck.trace.items import Item

_OF_A_ROW: Final = frozenset({"sum", "variance"})
"""Words that mean a second moment only in classes that are known to have it."""
_WHAT: Final = {
    "param": "of the model", "buffer": "of the model's statistics", "ema": "of the EMA", "extra": "of a further model",
}  # fmt: skip


@rule("CK501", "non-finite", Severity.ERROR, "survey")
def non_finite(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """A parameter, an optimizer state or an average holds NaN or infinity.

    Why: it spreads to every parameter within a step or two, and the run cannot recover: all later checkpoints have it.
    Example: training diverged, or a loss scaler let one overflow pass, and the checkpoint was written all the same.
    Fix: resume from an earlier checkpoint that is clean, and let the save refuse what is not finite.
    Limits: masks of 0 and -inf, observers that begin with infinity, gradients and buffers other than running
    statistics are silent; so is a hyperparameter or a best loss that is infinite. A hyperparameter that is NaN is told.
    """
    assert stored.survey is not None
    found: dict[tuple[str, int, str], list[Item]] = defaultdict(list)
    for item, content in stored.survey.contents.items():
        if not content.finite and may_be_odd(item, stored) and not is_sentinel(item, content, stored):
            found[item.kind, item.optimizer, item.key].append(item)
    for items in found.values():
        yield _odd(items, stored.survey.contents)
    yield from nan_hyperparameters(stored)
    judged = [item for item in stored.survey.unread if may_be_odd(item, stored)]
    yield from unsurveyed(stored.survey, judged)


def _odd(items: Sequence[Item], contents: Mapping[Item, Content]) -> Evidence:
    first = items[0]
    one = contents[first]
    whose = f"{first.key} of optimizer {first.optimizer}" if first.kind == "state" else _WHAT[first.kind]
    kinds = [
        f"{number} {word}" for number, word in ((one.nan, "NaN"), (one.inf, "inf"), (one.minus_inf, "-inf")) if number
    ]
    many = f"{count(items, 'tensor')} {whose} hold NaN or infinity: {names(item.name for item in items)}; {first.name}"
    name = f"{first.name}.{first.key}" if first.kind == "state" else f"{first.name} {whose}"
    return Evidence(
        f"{name if len(items) == 1 else many} has {' and '.join(kinds)} of {count_of(one.numel, 'element')}, the "
        f"first at {_at(one.first_at)}",
        _place(first),
        {
            "nan": one.nan,
            "inf": one.inf,
            "minus_inf": one.minus_inf,
            "numel": one.numel,
            "first_at": _listed(one.first_at),
            "tensors": kept(item.name for item in items),
            "count": len(items),
        },
        "resume from an earlier checkpoint whose numbers are finite",
    )


@rule("CK502", "negative-second-moment", Severity.ERROR, "survey")
def negative_second_moment(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """A second moment or a running variance, which are means of squares, has elements below zero.

    Why: the update, or batch norm, divides by its square root, which is NaN there: the parameters are lost at the next
    step, or the model's output is.
    Example: moments were loaded into the wrong key, averaged or subtracted between ranks, or decoded with the wrong
    dtype; weights were extrapolated with their running statistics.
    Fix: look at what writes or converts the state; resume from a checkpoint from before.
    Limits: moments in quantised form are not looked at, nor keys of classes that are not known.
    """
    assert stored.survey is not None
    found: dict[tuple[int, str], list[Item]] = defaultdict(list)
    for item, content in stored.survey.contents.items():
        if content.negative and is_second_moment(item, stored):
            found[item.optimizer, item.key].append(item)
    yield from _variances(stored, stored.survey)
    for items in found.values():
        first = items[0]
        one = stored.survey.contents[first]
        many = f"{count(items, 'parameter')}: {names(item.name for item in items)}; {first.name} has"
        yield Evidence(
            f"{first.key} of optimizer {first.optimizer} is below zero for "
            f"{f'{first.name}:' if len(items) == 1 else many} {one.negative} of {count_of(one.numel, 'element')}, the "
            f"first at {_at(one.first_negative_at)}",
            _place(first),
            {
                "negative": one.negative,
                "numel": one.numel,
                "first_at": _listed(one.first_negative_at),
                "parameters": kept(item.name for item in items),
                "count": len(items),
            },
            "a mean of squares cannot be below zero: find what wrote this key, and resume from an earlier checkpoint",
        )
    yield from unsurveyed(stored.survey, [item for item in stored.survey.unread if is_second_moment(item, stored)])


def _variances(stored: Stored, survey: Survey) -> Iterator[Evidence]:
    below = [item for item, one in survey.contents.items() if one.negative and is_variance(item, stored)]
    if below:
        first = below[0]
        one = survey.contents[first]
        yield Evidence(
            f"{count(below, 'running variance')} {'is' if len(below) == 1 else 'are'} below zero: "
            f"{names(item.name for item in below)}; {first.name} has {one.negative} such of "
            f"{count_of(one.numel, 'element')}, the first at {_at(one.first_negative_at)}",
            _place(first),
            {"negative": one.negative, "numel": one.numel, "first_at": _listed(one.first_negative_at),
             "tensors": kept(item.name for item in below), "count": len(below)},
            "a mean of squares cannot be below zero: find what wrote it, and take an earlier checkpoint",
        )  # fmt: skip


def is_second_moment(item: Item, stored: Stored) -> bool:
    """Whether an item is a state tensor that holds squares or magnitudes, in the class of its optimizer."""
    if item.kind != "state" or item.key not in SECOND_MOMENTS:
        return False
    return item.key not in _OF_A_ROW or any(item.key in row.keys for row in stored.classes[item.optimizer].rows)


def unsurveyed(survey: Survey, items: Sequence[Item]) -> Iterator[Unjudged]:
    """Say that some tensors were not read, and why the first was not."""
    if items:
        first = items[0]
        name = f"{first.name}.{first.key}" if first.key else first.name
        yield Unjudged(f"{count(items, 'tensor')} could not be read, as {name}: {survey.unread[first]}")


def _place(item: Item) -> Place:
    is_tree = item.kind in ("ema", "extra")
    return Place(
        parameter=item.name,
        key=item.kind if is_tree else item.key or None,
        optimizer=item.optimizer if item.optimizer >= 0 else None,
    )


def _at(index: tuple[int, ...] | None) -> str:
    return f"({', '.join(map(str, index or ()))})"


def _listed(index: tuple[int, ...] | None) -> Json:
    return None if index is None else [*index]


RULES: Final[tuple[Rule[Stored], ...]] = (
    non_finite,
    negative_second_moment,
    moments.underflowed_second_moment,
    moments.dtype_narrowed,
    counters.step_counter_mismatch,
    joined.optimizer_of_another_epoch,
    moments.zero_moments,
)
