"""CK301, CK302, CK308: which group and whose state a load gives to which parameter."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ckptcheck.comparison.bindings import Binding
from ckptcheck.comparison.traces import FLAGS
from ckptcheck.finding import Json, Severity
from ckptcheck.rules.loads.dry_run import DryRun, Paired
from ckptcheck.rules.loads.views import (
    BOOKKEEPING,
    at,
    bound,
    displaced,
    members_by_place,
    moved,
    refused,
    sizes,
)
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored import binding as stored
from ckptcheck.rules.words import KEPT, count, kept, names
from ckptcheck.state.training_state import TrainingState


@also(runs.group_membership_mismatch)
def group_membership_mismatch(dry: DryRun) -> Iterator[Evidence | Unjudged]:
    """The target's groups hold other parameters than the file's."""
    for pair in dry.pairs:
        if pair.file is None:
            continue
        if refused(dry, pair):
            yield _refused(dry, pair)
            continue
        # Without effect on any hyperparameter it is another order of the same training, which CK302 looks at.
        regrouped = {name: groups for name, groups in moved(pair).items() if _matters(dry, pair, *groups)}
        if regrouped:
            spelled = (
                f"{name} (group {was} in the file, {now} in the target)" for name, (was, now) in regrouped.items()
            )
            places: dict[str, Json] = {name: list[Json](pair) for name, pair in list(regrouped.items())[:KEPT]}
            first = next(iter(regrouped))
            yield Evidence(
                f"{count(list(regrouped), 'parameter')} of optimizer {pair.place} get another group's hyperparameters: "
                f"{names(spelled)}",
                at(optimizer=pair.place, parameter=first, group=regrouped[first][1]),
                {"groups": places},
                "sort parameters into groups by the same rule as when the file was saved",
            )
        yield from _new_members(dry, pair)
        yield from _unseen(dry, pair)


def _matters(dry: DryRun, pair: Paired, was: int, now: int) -> bool:
    """Whether a parameter in another group gets other hyperparameters after the load than the file has for it."""
    assert pair.file is not None
    if dry.loaded_optimizers is not None:
        after = dry.loaded_optimizers[pair.place].groups[now].hyperparameters
    else:
        after = (pair.file if pair.by_position else pair.live).groups[now].hyperparameters
    saved = pair.file.groups[was].hyperparameters
    keys = (saved.keys() & after.keys()) - FLAGS - BOOKKEEPING
    return any(saved[key].digest != after[key].digest for key in keys)


def _refused(dry: DryRun, pair: Paired) -> Evidence:
    assert pair.file is not None
    ours, theirs = sizes(pair.file), sizes(pair.live)
    only_file = sorted(set(pair.file.members) - set(pair.live.members)) if pair.named else []
    only_live = sorted(set(pair.live.members) - set(pair.file.members)) if pair.named else []
    more = [
        f"only the {side} has {names(listed)}"
        for side, listed in (("file", only_file), ("target", only_live))
        if listed
    ]
    return Evidence(
        f"optimizer {pair.place} has {_groups(ours)} in the file and {_groups(theirs)} in the target: "
        f"load_state_dict raises{'; ' + ' and '.join(more) if more else ''}",
        at(optimizer=pair.place, parameter=next(iter((*only_live, *only_file)), None)),
        {"file": list[Json](ours[:KEPT]), "target": list[Json](theirs[:KEPT]), "raised": dry.raised,
         "only_file": kept(only_file), "only_target": kept(only_live)},
        "build the optimizer over the same parameters, in the same groups, as when the file was saved",
    )  # fmt: skip


def _groups(counts: Sequence[int]) -> str:
    shown = ", ".join(map(str, counts[:4])) + (", ..." if len(counts) > 4 else "")
    return f"{count(counts, 'group')} of {shown} parameters"


def _new_members(dry: DryRun, pair: Paired) -> Iterator[Evidence]:
    if pair.file is None or not (pair.named and pair.exact_groups) or displaced(pair):
        return
    known = {*pair.file.members, *pair.file.state}
    new = [name for name in pair.live.members if name not in known]
    if new and len(new) < len(pair.live.members):
        yield Evidence(
            f"the target's optimizer {pair.place} has {count(new, 'parameter')} that the file's does not have: "
            f"{names(new)}; their state begins anew",
            at(optimizer=pair.place, parameter=new[0]),
            {"only_target": kept(new)},
            "hand the same parameters to the optimizer as when the file was saved",
        )


def _unseen(dry: DryRun, pair: Paired) -> Iterator[Unjudged]:
    classes = _of_one_shape(dry.built, pair)
    if classes:
        yield Unjudged(
            f"the file has no names for the parameters of optimizer {pair.place}: an exchange among the "
            f"{sum(map(len, classes))} that share their shape with another one would not be seen"
        )


def _of_one_shape(state: TrainingState, pair: Paired) -> list[list[str]]:
    """Parameters of one optimizer whose shapes are equal, so that position alone says which is which."""
    if pair.file is None or pair.named or not pair.by_position:
        return []
    by_shape: dict[object, list[str]] = {}
    for name in pair.live.members:
        one = state.parameters.get(name)
        by_shape.setdefault(one.entry.spec if one is not None else name, []).append(name)
    return [one for one in by_shape.values() if len(one) > 1]


@also(runs.parameter_order_mismatch)
def parameter_order_mismatch(dry: DryRun) -> Iterator[Evidence | Unjudged]:
    """The file's names stand in another order than the target's parameters, and the load binds by position."""
    found = {pair.place: _exchanged(dry, one) for pair, one in bound(dry)}
    for pair in dry.pairs:
        if dry.loaded_optimizers is None or pair.place not in found:
            found.setdefault(pair.place, displaced(pair))
        wrong = found[pair.place]
        if not pair.named:
            yield from _moved_by_the_load(dry, pair, wrong)
            yield from _unseen(dry, pair)
            continue
        if not wrong and dry.loaded is not None and dry.raised is None and pair.by_position and "torch" in dry.how:
            live = set(pair.live.members)
            wrong = {name: was for name, was in displaced(pair).items() if was not in live}
        if wrong:
            spelled = (f"{name} gets that of {owner}" for name, owner in wrong.items())
            yield Evidence(
                f"optimizer {pair.place} binds state by position, and the file has its parameters in another order: "
                f"{names(spelled)}",
                at(optimizer=pair.place, parameter=next(iter(wrong))),
                {"permutation": dict(list(wrong.items())[:KEPT]), "parameters": len(wrong)},
                "hand the parameters to the optimizer in the order in which they were saved",
            )


def _exchanged(dry: DryRun, one: Binding) -> dict[str, str]:
    """Live parameters that carry another one's state; what became of tensors that are in no model CK307 tells."""
    return {name: was for name, was in one.permuted.items() if name in dry.now.parameters}


def _moved_by_the_load(dry: DryRun, pair: Paired, wrong: Mapping[str, str]) -> Iterator[Evidence]:
    """State of a file without names that the target's own load has put in another place than the file's."""
    if not wrong or dry.raised is not None or all(pair.suggested.get(was) == name for name, was in wrong.items()):
        return  # a load that puts each state where the order of the file's model wants it knows what it does
    index = {name: place for place, name in enumerate(members_by_place(pair.live))}
    spelled = (f"{name} (index {index.get(name)}) gets that of {was} (index {index.get(was)})"
               for name, was in wrong.items())  # fmt: skip
    yield Evidence(
        f"the load puts state of optimizer {pair.place} into other places than the file has it in: {names(spelled)}",
        at(optimizer=pair.place, parameter=next(iter(wrong))),
        {"permutation": dict(list(wrong.items())[:KEPT]), "parameters": len(wrong)},
        "leave the state where optimizer.load_state_dict puts it, or save the parameters' names",
    )


@also(stored.names_not_aligned, severity=Severity.INFO)
def names_not_aligned(dry: DryRun) -> Iterator[Evidence]:
    """The file has no names, and the target's tell which state goes where, not which state it was."""
    for pair in dry.pairs:
        classes = _of_one_shape(dry.built, pair)
        if classes:
            unlike = {name: own for name, own in pair.suggested.items() if own != name and own in dry.built.parameters}
            yield Evidence(
                f"the file has no names for the parameters of optimizer {pair.place}: the target's order says where a "
                f"load puts the state, and an exchange among parameters of one shape would not be seen: "
                f"{'; '.join(names(one) for one in classes[:3])}{_otherwise(unlike)}",
                at(optimizer=pair.place),
                {"classes": [kept(one) for one in classes[:KEPT]], "otherwise": dict(list(unlike.items())[:KEPT])},
                "build the optimizer from model.named_parameters(): torch 2.6 and later then keep param_names",
            )


def _otherwise(unlike: Mapping[str, str]) -> str:
    """Said where the order of the file's own model speaks for other places than the target's optimizer has."""
    if not unlike:
        return ""
    spelled = names(f"{name} for what would be {own}" for name, own in unlike.items())
    return f"; in the order of the file's model the places are others: the target has {spelled}"


RULES: Final[tuple[Rule[DryRun], ...]] = (
    group_membership_mismatch,
    parameter_order_mismatch,
    names_not_aligned,
)
