"""CK3: hyperparameters and horizons that differ between two checkpoints."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.checkpoint_diff import Kind, Row
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.words import brief, kept, names
from ckptcheck.state.scalars import value_of

_IMPLEMENTATION: Final = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Flags that choose a kernel."""
_RATES: Final = frozenset({"lr", "initial_lr", "max_lr", "min_lr", "base_lr", "swa_lr", "lr_scale"})
_CYCLED: Final = frozenset({"momentum", "betas", "base_momentum", "max_momentum"})
"""What a schedule of momentum moves."""
_BOUNDS: Final = frozenset({"base_momentum", "max_momentum"})
_TAGS: Final = frozenset({"name", "param_names", "params", "group_name"})
_COUNTERS: Final = frozenset(
    {"step", "k", "train_mode",
     "weight_sum", "lr_max", "scheduled_lr",
     "d", "d_max", "d_hat", "d_numerator", "d_denom", "numerator_weighted", "gsq_weighted", "sksq_weighted"}
)  # fmt: skip
"""What an optimizer keeps in its groups and moves by itself: counts, sums of schedule-free, distances of Prodigy."""
_HORIZON: Final = frozenset(
    {"T_max", "T_0", "T_mult", "total_steps", "total_iters", "eta_min", "gamma", "step_size", "milestones",
     "start_factor", "end_factor", "base_lrs", "max_lrs", "min_lrs", "warmup_steps", "num_training_steps", "max_lr",
     "power", "factor", "patience", "threshold", "cooldown"}
)  # fmt: skip
"""What a schedule was made with, and does not move."""


@also(runs.hyperparameter_changed)
def hyperparameter_changed(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """A hyperparameter of a group is another in the later checkpoint, or its schedule was made with other values."""
    if pair.course.why_not:
        yield Unjudged(pair.course.why_not)
        return
    rows = [row for row in pair.diff.rows if row.kind is Kind.CHANGED]
    of_groups = [row for row in rows if row.section == "optimizer" and row.parameter is None and row.key]
    yield from _groups([row for row in of_groups if not (_root(row.key or "") in _CYCLED and _cycles(pair, row))])
    yield from _horizon([row for row in rows if row.section == "scheduler" and _root(row.key or "") in _HORIZON])


def _groups(rows: list[Row]) -> Iterator[Evidence]:
    changed: list[Row] = []
    rates: list[Row] = []
    for row in rows:
        root = _root(row.key or "")
        if root in _IMPLEMENTATION | _TAGS | _COUNTERS or root in ("lr", "param_groups"):
            continue
        (rates if root in _RATES else changed).append(row)
    if changed:
        yield _evidence(changed, "look for code that sets it depending on how often the process has started", None)
    if rates:
        yield _evidence(rates, "a rate that was overridden on purpose needs nothing", Severity.INFO)


def _cycles(pair: Pair, row: Row) -> bool:
    """Whether the schedule moves the momentum of a row's optimizer: it plants its bounds in the groups."""
    place = next((one.left for one in pair.diff.optimizers if one.optimizer == row.optimizer), None)
    groups = pair.diff.left.state.optimizers[place].groups if place is not None else ()
    return any(not _BOUNDS.isdisjoint(group.hyperparameters) for group in groups)


def _evidence(rows: list[Row], fix: str, severity: Severity | None) -> Evidence:
    first = rows[0]
    sides = "in the left checkpoint", "in the right one"
    said = [
        f"{row.key} of group {row.group} is {_shown(row)[0]} {sides[0]} and {_shown(row)[1]} {sides[1]}" for row in rows
    ]
    return Evidence(
        names(said),
        Place(optimizer=first.optimizer, group=first.group, key=first.key),
        {"left": _plain(first, left=True), "right": _plain(first, left=False), "changes": kept(said), "wins": "right"},
        fix,
        severity,
    )


def _horizon(rows: list[Row]) -> Iterator[Evidence]:
    if rows:
        said = [f"{row.key} was {_shown(row)[0]}, is {_shown(row)[1]}" for row in rows]
        yield Evidence(
            f"the schedule was made with other values: {names(said)}",
            Place(key=rows[0].key),
            {"left": _plain(rows[0], left=True), "right": _plain(rows[0], left=False), "changes": kept(said)},
            "a longer horizon needs nothing; else build the schedule with the same values in every run",
            Severity.INFO,
        )


def _shown(row: Row) -> tuple[str, str]:
    return brief(value_of(row.left)), brief(value_of(row.right))


def _plain(row: Row, *, left: bool) -> Json:
    return value_of(row.left if left else row.right)


def _root(key: str) -> str:
    """The name that a hyperparameter has, behind what numbers the schedulers and before its own places."""
    whole = key.rpartition(".")[2] or key
    return whole.partition("[")[0].lstrip("_") or whole


RULES: Final[tuple[Rule[Pair], ...]] = (hyperparameter_changed,)
