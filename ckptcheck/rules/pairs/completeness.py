"""CK2: what the later checkpoint lacks that the earlier one has."""

from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.comparison.checkpoint_diff import Kind, OptimizerPair
from ckptcheck.finding import Place, Severity
from ckptcheck.optimizers.table import KEPT_BESIDE, OPTIMIZERS
from ckptcheck.rules.pairs.course import both, model_rows, state_rows
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import completeness as runs
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.scalars import value_of
from ckptcheck.state.training_state import Optimizer
from ckptcheck.state.tree import ASIDES


def optimizers_apart(pair: Pair) -> str:
    """Why the state of the optimizers cannot be held against each other; "" where it can."""
    if pair.course.why_not:
        return pair.course.why_not
    if pair.course.prefixes is not None:
        return "the names of one side begin otherwise (CK310): use --map to compare the rest"
    for side, checkpoint in (("left", pair.diff.left), ("right", pair.diff.right)):
        if not checkpoint.state.optimizers:
            return f"the {side} checkpoint holds no optimizer"
    return ""


def lost_keys(pair: Pair, one: OptimizerPair) -> dict[str, list[str]]:
    """State keys of each parameter that only the left has, the parameter being still in the optimizer's groups."""
    gone = {
        moved.parameter for moved in pair.diff.regrouped
        if moved.optimizer == one.optimizer and moved.right_group is None
    }  # fmt: skip
    found: dict[str, list[str]] = {}
    for (optimizer, parameter, key), row in state_rows(pair.diff).items():
        if optimizer == one.optimizer and row.kind is Kind.REMOVED and parameter not in gone:
            found.setdefault(parameter, [])
            if not key.endswith(ASIDES):
                found[parameter].append(key)
    return {name: keys for name, keys in found.items() if keys}


def has_rested(pair: Pair, parameter: str) -> bool:
    """Whether a parameter's value is that of the left, while others moved: it was not trained in between."""
    told = pair.diff.right.state.parameters.get(parameter)
    if told is not None and told.requires_grad is False:
        return True
    rows = model_rows(pair.diff)
    in_model = parameter in pair.diff.left.state.parameters and told is not None
    return pair.diff.whole and in_model and pair.course.advanced and bool(rows) and parameter not in rows


def lacking(
    pair: Pair, one: OptimizerPair, right: Optimizer, lost: Mapping[str, list[str]]
) -> tuple[list[str], dict[str, list[str]]]:
    """Parameters that lack all their state, and those that lack some keys of it."""
    on_right = set(right.members)
    whole, part = [], {}
    for name, keys in lost.items():
        if name in on_right or name in right.state:
            is_all = right.state.get(name, {}).keys().isdisjoint(_kept_keys(pair, one, name))
        else:  # paired by position, the right has it under another name
            is_all = len(keys) >= len(_kept_keys(pair, one, name))
        if is_all:
            whole.append(name)
        else:
            part[name] = keys
    return whole, part


def _kept_keys(pair: Pair, one: OptimizerPair, name: str) -> list[str]:
    state = pair.diff.left.state.optimizers[one.left if one.left is not None else 0].state
    return [key for key in state.get(name, {}) if not key.endswith(ASIDES)]


@also(runs.optimizer_state_absent)
def optimizer_state_absent(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint has none of the optimizer state that the earlier one has."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    for one, left, right in both(pair.diff):
        had = [name for name, entries in left.state.items() if any(not is_off(right, key) for key in entries)]
        if had and not any(right.state.values()):
            yield Evidence(
                f"optimizer {one.label or one.optimizer} has no state in the right checkpoint; "
                f"{count(had, 'parameter')} had some in the left one",
                Place(optimizer=one.optimizer, parameter=had[0]),
                {"parameters": kept(had), "missing": len(had)},
                "save optimizer.state_dict() after the first step, and look at how the optimizer was restored",
            )
    for one in pair.diff.optimizers:
        if one.left is not None and one.right is None and any(pair.diff.left.state.optimizers[one.left].state.values()):
            had = list(pair.diff.left.state.optimizers[one.left].state)
            yield Evidence(
                f"the right checkpoint lacks optimizer {one.label or one.left}, which holds state of "
                f"{count(had, 'parameter')} in the left one",
                Place(optimizer=one.optimizer, parameter=had[0]),
                {"parameters": kept(had), "missing": len(had)},
                "save every optimizer's state_dict()",
            )


@also(runs.optimizer_state_missing_for_parameter)
def optimizer_state_missing_for_parameter(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint lacks the state of a parameter that is still in the optimizer."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    by_contract = {one.parameter for one in pair.broken or () if one.what == "dropped"}
    for one, left, right in both(pair.diff):
        if _keys(left).isdisjoint(_keys(right)):
            continue  # all of it (CK201), or state of another class (CK203)
        if reason := unpaired(one, left, right):
            yield Unjudged(reason)
            continue
        lost = lost_keys(pair, one)
        for name in lacking(pair, one, right, lost)[0]:
            if not has_rested(pair, name) and name not in by_contract:
                yield Evidence(
                    f"{name} has no optimizer state in the right checkpoint; it had {', '.join(lost[name])} in the "
                    "left one",
                    Place(optimizer=one.optimizer, parameter=name),
                    {"keys": kept(lost[name])},
                    "look for what drops this parameter's entry from the saved optimizer state",
                )


@also(runs.optimizer_state_partial)
def optimizer_state_partial(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint lacks some keys of a parameter's state."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    for one, left, right in both(pair.diff):
        if not any(right.state.values()):
            continue
        dropped = {key for key in _keys(left) - _keys(right) if not is_off(right, key)}
        if dropped:
            yield _dropped(one, left, right, sorted(dropped))
        part = lacking(pair, one, right, lost_keys(pair, one))[1] if not unpaired(one, left, right) else {}
        for name, keys in part.items():
            missing = [key for key in keys if key in _keys(right)]
            if missing:
                yield Evidence(
                    f"{name} lacks {names(missing)} in the right checkpoint; the other keys are there",
                    Place(optimizer=one.optimizer, parameter=name, key=missing[0]),
                    {"missing_keys": kept(missing)},
                    "save every key of the optimizer's state for this parameter",
                )


def unpaired(one: OptimizerPair, left: Optimizer, right: Optimizer) -> str:
    """Why nothing tells which parameter of an optimizer is which on the other side; "" where something does."""
    counts = [len(set(side.members)) for side in (left, right)]
    if one.paired_by != "none" or 0 in counts:
        return ""
    return (
        f"optimizer {one.label or one.optimizer} has {counts[0]} parameters in the left checkpoint and {counts[1]} in "
        "the right one, and no names that are certain on both sides: which has lost its state is not told"
    )


def is_off(optimizer: Optimizer, key: str) -> bool:
    """Whether a hyperparameter says that the optimizer keeps no such state: momentum 0, amsgrad off."""
    switches = {row.when[key] for row in OPTIMIZERS if key in row.when}
    values = [group.hyperparameters.get(name) for group in optimizer.groups for name in switches]
    return any(entry is not None and not value_of(entry) for entry in values)


def _dropped(one: OptimizerPair, left: Optimizer, right: Optimizer, dropped: list[str]) -> Evidence:
    """Said once where no parameter has a key any more."""
    owner = next(name for name, entries in left.state.items() if dropped[0] in entries)
    new = sorted(_keys(right) - _keys(left))
    other = f", and has {names(new)} instead: it is of another class" if new else ""
    return Evidence(
        f"no parameter of optimizer {one.label or one.optimizer} has {names(dropped)} in the right checkpoint{other}",
        Place(optimizer=one.optimizer, parameter=owner, key=dropped[0]),
        {"missing_keys": kept(dropped), "new_keys": kept(new)},
        "go on with the optimizer that the training began with" if new else "save every key of the optimizer's state",
        Severity.WARNING if KEPT_BESIDE.issuperset(dropped) else None,  # other writers keep full weights elsewhere
    )


def _keys(optimizer: Optimizer) -> set[str]:
    return {key for entries in optimizer.state.values() for key in entries if not key.endswith(ASIDES)}


RULES: Final[tuple[Rule[Pair], ...]] = (
    optimizer_state_absent,
    optimizer_state_missing_for_parameter,
    optimizer_state_partial,
)
