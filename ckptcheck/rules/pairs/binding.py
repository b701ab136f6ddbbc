"""CK3: groups, order and shapes of the optimizer state of two checkpoints."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.checkpoint_diff import ORDER_KEY, Kind, OptimizerPair, Regrouped, Row
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.pairs.completeness import optimizers_apart
from ckptcheck.rules.pairs.course import both, model_rows, state_rows, unnamed
from ckptcheck.rules.pairs.exchanged import not_following
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored.moments import MOMENTS
from ckptcheck.rules.words import KEPT, count, kept, names
from ckptcheck.state.scalars import value_of
from ckptcheck.state.training_state import Group, Optimizer

_SHOWN_VALUES: Final = ("lr", "weight_decay", "momentum")
"""Hyperparameters by which a message tells two groups apart."""


@also(runs.group_membership_mismatch)
def group_membership_mismatch(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """A parameter is in another group of the later checkpoint than of the earlier one, by name."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    for one, left, right in both(pair.diff):
        if reason := unnamed(pair.diff, one):
            yield Unjudged(reason)
            yield from _resized(pair, one, left, right)
            continue
        moved = [
            entry for entry in pair.diff.regrouped
            if entry.optimizer == one.optimizer and entry.left_group is not None and entry.right_group is not None
        ]  # fmt: skip
        if moved:
            yield _regrouped(one, _by_number(moved, left, right), left, right)
        elif pair.diff.right.raw.container != "dcp" and (places := swapped_groups(left, right)):
            yield _swapped(one, places, left, right)


def swapped_groups(left: Optimizer, right: Optimizer) -> list[tuple[int, int]]:
    """The groups of the left, with the place on the right, that stand at another place with the same members."""
    ours, theirs = ([frozenset(group.members) for group in side.groups] for side in (left, right))
    if ours == theirs or len(set(ours)) < len(ours) or set(ours) != set(theirs):
        return []
    return [(place, theirs.index(members)) for place, members in enumerate(ours) if theirs[place] != members]


def _swapped(one: OptimizerPair, places: list[tuple[int, int]], left: Optimizer, right: Optimizer) -> Evidence:
    said = (f"group {ours}{_values(left, ours)} of the left checkpoint is group {theirs} of the right one"
            for ours, theirs in places)  # fmt: skip
    first = next((name for name in right.groups[places[0][0]].members if name), None)
    return Evidence(
        f"the groups of optimizer {one.label or one.optimizer} changed places: {names(said)}; torch loads groups by "
        "their place, so that members get the hyperparameters and the state of others",
        Place(optimizer=one.optimizer, parameter=first, group=places[0][0]),
        {"groups": [[ours, theirs] for ours, theirs in places]},
        "hand the groups to the optimizer in the same order in every run",
    )


def _by_number(moved: list[Regrouped], left: Optimizer, right: Optimizer) -> list[Regrouped]:
    """Those whose group has another number, where groups that answer to each other have not the same one."""
    if all(entry.left_group != entry.right_group for entry in moved) or len(left.groups) != len(right.groups):
        return moved
    ours, theirs = left.first_groups(), right.first_groups()
    told = [
        Regrouped(name, moved[0].optimizer, group, theirs[name])
        for name, group in ours.items()
        if name in theirs and theirs[name] != group
    ]
    return told or moved


def _regrouped(one: OptimizerPair, moved: list[Regrouped], left: Optimizer, right: Optimizer) -> Evidence:
    places: dict[str, Json] = {entry.parameter: [entry.left_group, entry.right_group] for entry in moved[:KEPT]}
    spelled = (
        f"{entry.parameter} (group {entry.left_group}{_values(left, entry.left_group)} in the left checkpoint, "
        f"now {entry.right_group}{_values(right, entry.right_group)})"
        for entry in moved
    )
    return Evidence(
        f"{count(moved, 'parameter')} changed group in optimizer {one.label or one.optimizer}: {names(spelled)}",
        Place(optimizer=one.optimizer, parameter=moved[0].parameter, group=moved[0].right_group),
        {"groups": places},
        "sort parameters into groups by the same rule before the save and before the load",
    )


def _values(optimizer: Optimizer, group: int | None) -> str:
    if group is None or len(optimizer.groups) < 2:
        return ""
    told = _differing(optimizer.groups)
    values = [f"{key} {value_of(optimizer.groups[group].hyperparameters.get(key))}" for key in told]
    return f" with {' and '.join(values)}" if values else ""


def _differing(groups: tuple[Group, ...]) -> list[str]:
    """What tells the groups of an optimizer apart."""
    return [
        key for key in _SHOWN_VALUES if len({value_of(group.hyperparameters.get(key)) for group in groups}) > 1
    ]  # fmt: skip


def _resized(pair: Pair, one: OptimizerPair, left: Optimizer, right: Optimizer) -> Iterator[Evidence]:
    """Sizes of groups tell without names that somebody moved, where nobody came or went."""
    sizes = [[len(group.members) for group in side.groups] for side in (left, right)]
    if len(sizes[0]) == len(sizes[1]) and sum(sizes[0]) == sum(sizes[1]) and sorted(sizes[0]) != sorted(sizes[1]):
        yield Evidence(
            f"the groups of optimizer {one.label or one.optimizer} hold {names(map(str, sizes[0]))} parameters in the "
            f"left checkpoint and {names(map(str, sizes[1]))} in the right one; which ones moved cannot be told: "
            "the file has no names that are certain",
            Place(optimizer=one.optimizer),
            {"left_sizes": [*sizes[0]], "right_sizes": [*sizes[1]]},
            "sort parameters into groups by the same rule before the save and before the load",
        )


@also(runs.parameter_order_mismatch)
def parameter_order_mismatch(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """Parameters of the later checkpoint carry the state that others have in the earlier one."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    for one, left, right in both(pair.diff):
        reason = unnamed(pair.diff, one)
        if reason:
            yield Unjudged(reason)
        permuted = _permuted(pair, one)
        if permuted:
            first = next(iter(permuted))
            pairs = [f"{name} has the state of {owner}" for name, owner in permuted.items()]
            yield Evidence(
                f"optimizer {one.label or one.optimizer} of the right checkpoint binds state to other parameters than "
                f"the left one: {names(pairs)}",
                Place(optimizer=one.optimizer, parameter=first),
                {"permutation": dict(list(permuted.items())[:KEPT])},
                "hand the parameters to the optimizer in the same order, by the same selection, in both runs",
                Severity.WARNING if reason else None,
            )
        elif exchanged := not reason and not_following(pair, one, left, right):
            said = (f"{name} has the state that {owner} had" for name, owner in exchanged.items())
            yield Evidence(
                f"optimizer {one.label or one.optimizer} has other param_names at the places of its state: "
                f"{names(said)}",
                Place(optimizer=one.optimizer, parameter=next(iter(exchanged))),
                {"permutation": dict(list(exchanged.items())[:KEPT])},
                "keep param_names in the order of params",
            )
        elif not swapped_groups(left, right) and (row := _reordered(pair, one)):
            yield Evidence(
                f"optimizer {one.label or one.optimizer} lists its parameters in another order: "
                f"{value_of(row.left)} in the left checkpoint, {value_of(row.right)} in the right one; where their "
                "state follows the names, torch binds it to others, as it loads by position",
                Place(optimizer=one.optimizer),
                {"left": value_of(row.left), "right": value_of(row.right)},
                "hand the parameters to the optimizer in the same order in every run",
                Severity.WARNING,
            )


def _permuted(pair: Pair, one: OptimizerPair) -> dict[str, str]:
    """Right parameters that hold what another had on the left, where the weights did not move likewise."""
    weights = model_rows(pair.diff)
    found: dict[str, str] = {}
    for (optimizer, owner, _), row in state_rows(pair.diff).items():
        if optimizer != one.optimizer or row.kind is not Kind.MOVED or "/" in row.other:
            continue
        followed = weights.get(owner)
        if followed is None or followed.kind not in (Kind.MOVED, Kind.RENAMED) or followed.other != row.other:
            found.setdefault(row.other, owner)
    return found


def _reordered(pair: Pair, one: OptimizerPair) -> Row | None:
    rows = (row for row in pair.diff.rows if row.optimizer == one.optimizer and row.key == ORDER_KEY)
    return next((row for row in rows if row.kind is Kind.MOVED and not unnamed(pair.diff, one)), None)


@also(runs.trainable_parameter_in_no_group)
def trainable_parameter_in_no_group(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """A parameter that the earlier checkpoint's optimizer held is in no group of the later one."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    held = {name for optimizer in pair.diff.right.state.optimizers for name in optimizer.members}
    trained = pair.diff.right.state.parameters
    for one, left, right in both(pair.diff):
        if reason := unnamed(pair.diff, one):
            yield Unjudged(reason)
            yield from _fewer(one, left, right)
            continue
        gone = [
            name for name in dict.fromkeys(_left_it(pair, one))
            if name not in held and name in trained and trained[name].requires_grad is not False
            and pair.freeze.get(name) != "removed"
        ]  # fmt: skip
        if gone:
            # Who freezes by a new optimizer starts its counters anew; where they go on, somebody was lost.
            goes_on = pair.course.updates > 0 and not any(entry.rise < 0 for entry in pair.course.counters)
            known = any(trained[name].requires_grad for name in gone)
            yield Evidence(
                f"{count(gone, 'parameter')} of optimizer {one.label or one.optimizer} {_is(gone)} in no group of the "
                f"right checkpoint: {names(gone)}",
                Place(optimizer=one.optimizer, parameter=gone[0], group=left.group_of(gone[0])),
                {"parameters": kept(gone)},
                "build the optimizer over the same parameters as before; where they are frozen on purpose, say so "
                "with --freeze NAME=removed",
                None if goes_on or known else Severity.WARNING,
            )


def _fewer(one: OptimizerPair, left: Optimizer, right: Optimizer) -> Iterator[Evidence]:
    """Counts tell without names that somebody was lost."""
    counts = [len(set(side.members)) for side in (left, right)]
    if counts[1] < counts[0]:
        yield Evidence(
            f"optimizer {one.label or one.optimizer} steps {counts[0]} parameters in the left checkpoint and "
            f"{counts[1]} in the right one; which it lost cannot be told: the file has no names that are certain",
            Place(optimizer=one.optimizer),
            {"left_count": counts[0], "right_count": counts[1]},
            "build the optimizer over the same parameters as before; where some are frozen on purpose, nothing is to "
            "be done",
            Severity.WARNING,
        )


def _left_it(pair: Pair, one: OptimizerPair) -> list[str]:
    """Parameters that only the left's groups hold, by their row, or as a whole where the right has none of them."""
    return [
        entry.parameter for entry in pair.diff.regrouped
        if entry.optimizer == one.optimizer and entry.right_group is None
    ]  # fmt: skip


def _is(values: list[str]) -> str:
    return "is" if len(values) == 1 else "are"


@also(runs.state_shape_mismatch)
def state_shape_mismatch(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """State of a parameter has another shape in the later checkpoint, and the parameter itself has not."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    weights = model_rows(pair.diff)
    by_number = {one.optimizer: one for one, _, _ in both(pair.diff)}
    found: dict[tuple[int, bool], list[Row]] = {}
    for (optimizer, name, key), row in state_rows(pair.diff).items():
        resized = name in weights and weights[name].kind in (Kind.SHAPE, Kind.REMOVED, Kind.ADDED)
        if row.kind is Kind.SHAPE and not resized and optimizer in by_number:
            found.setdefault((optimizer, _can_only_be(pair, by_number[optimizer], key)), []).append(row)
    for (_, is_sure), rows in found.items():
        yield _reshaped(rows, None if is_sure else Severity.WARNING)


def _reshaped(rows: list[Row], severity: Severity | None) -> Evidence:
    row = rows[0]
    shapes = [str(entry.spec) if entry is not None else "" for entry in (row.left, row.right)]
    others = [f"{one.key} of {one.parameter}" for one in rows[1:]]
    return Evidence(
        f"{row.key} of {row.parameter} is {shapes[0]} in the left checkpoint and {shapes[1]} in the right one"
        f"{f'; the shape changed too of {names(others)}' if others else ''}",
        Place(optimizer=row.optimizer, parameter=row.parameter, key=row.key, group=row.group),
        {"left": shapes[0], "right": shapes[1], "count": len(rows),
         "tensors": kept(f"{one.parameter}.{one.key}" for one in rows)},
        "load the state of this parameter into this parameter",
        severity,
    )  # fmt: skip


def _can_only_be(pair: Pair, one: OptimizerPair, key: str) -> bool:
    """Whether state can only be of the same parameter on both sides: by name, or by a place that nobody moved from.

    A moment keeps the shape of its parameter, and a run that goes on without names loads it by its place.
    """
    if not unnamed(pair.diff, one):
        return True
    sides = [pair.diff.left.state.optimizers[one.left or 0], pair.diff.right.state.optimizers[one.right or 0]]
    sizes = [[len(group.members) for group in side.groups] for side in sides]
    moved = any(row.kind is not Kind.CHANGED and name in pair.diff.left.state.parameters
                for name, row in model_rows(pair.diff).items())  # fmt: skip
    return key in MOMENTS and sizes[0] == sizes[1] and not moved and pair.course.advanced


RULES: Final[tuple[Rule[Pair], ...]] = (
    group_membership_mismatch,
    parameter_order_mismatch,
    trainable_parameter_in_no_group,
    state_shape_mismatch,
)
