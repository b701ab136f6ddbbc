"""CK3: which state, group, value and tensor belong to which parameter."""

from collections.abc import Iterator

from ckptcheck.comparison.groups import parse_groups
from ckptcheck.comparison.states import EntryDifference
from ckptcheck.comparison.traces import FLAGS, Difference
from ckptcheck.finding import Json, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.origin import of_other_step, other_parameters, rate_by_hand
from ckptcheck.rules.words import KEPT, at_load, count, kept, names, place_of, shown
from ckptcheck.trace.items import Sample


@rule("CK301", "group-membership-mismatch", Severity.ERROR, "load")
def group_membership_mismatch(case: Case) -> Iterator[Evidence]:
    """Parameters are in another param group than the run that was saved had them in.

    Why: decay, rate and momentum of the wrong group act on them, and position-bound state goes astray.
    Example: the rule that sorts parameters into decay and no-decay changed between save and load.
    Fix: build the groups by the same rule on both sides.
    Limits: groups in another order, or members in another order, are the same groups.
    """
    for one in case.bound:
        moved = one.regrouped
        if moved and not one.stale:
            places: dict[str, Json] = {name: list(pair) for name, pair in list(moved.items())[:KEPT]}
            spelled = (f"{name} (group {was} when saved, now {now})" for name, (was, now) in moved.items())
            yield Evidence(
                f"{count(list(moved), 'parameter')} changed group in optimizer {one.optimizer}: {names(spelled)}",
                at_load(
                    case.step, optimizer=one.optimizer, parameter=next(iter(moved)), group=next(iter(moved.values()))[1]
                ),
                {"groups": places, "carries_state_of": dict(one.permuted)},
                "sort parameters into groups by the same rule before the save and before the load",
            )
        if one.right_only and not one.left_only and not one.stale:
            yield Evidence(
                f"{count(one.right_only, 'parameter')} came into optimizer {one.optimizer}, which did not have them "
                f"when saved: {names(one.right_only)}",
                at_load(case.step, optimizer=one.optimizer, parameter=one.right_only[0]),
                {"only_after_load": kept(one.right_only)},
                "hand the same parameters to the optimizer before the save and before the load",
            )
    first = case.first
    if first is not None and first.item.kind == "structure" and first.item.name == "groups":
        yield Evidence(
            f"the param groups differ from step {first.step} on{_who_moved(first)}",
            place_of(first),
            {"only_left": kept(_members_beside(first.left, first.right)),
             "only_right": kept(_members_beside(first.right, first.left))},
            "look for add_param_group or a regrouping that the resumed run does not repeat",
        )  # fmt: skip


def _members_beside(one: Sample | None, other: Sample | None) -> list[str]:
    """The members of all groups of one side that the other side has in none."""
    sides = [
        [name or "a tensor that no module holds" for optimizer in parse_groups(str(side.value)) for group in optimizer
         for name in group] if side is not None else []
        for side in (one, other)
    ]  # fmt: skip
    return [name for name in sides[0] if name not in set(sides[1])]


def _who_moved(first: Difference) -> str:
    only = [_members_beside(first.left, first.right), _members_beside(first.right, first.left)]
    said = [f"only the {run} run optimizes {names(found)}"
            for run, found in zip(("uninterrupted", "resumed"), only, strict=True) if found]  # fmt: skip
    return f": {' and '.join(said)}" if said else ""


@rule("CK302", "parameter-order-mismatch", Severity.ERROR, "load")
def parameter_order_mismatch(case: Case) -> Iterator[Evidence]:
    """Parameters carry the optimizer state of other parameters: state was bound by position.

    Why: `Optimizer.load_state_dict` binds by position and never looks at names; same shapes swap silently.
    Example: the optimizer is built over a set, a reversed list, or another selection of the same length.
    Fix: give the optimizer its parameters in the same order on both sides.
    Limits: found by equal digests, so state that is all zero cannot be told apart.
    """
    for one in case.bound:
        if one.stale or case.other_step is not None:
            continue
        gone, new = other_parameters(case)
        permuted = {name: owner for name, owner in one.permuted.items() if owner not in gone}
        if permuted or (one.left_only and one.right_only and not gone and not new):
            pairs = [f"{name} has the state of {owner}" for name, owner in permuted.items()]
            swapped = zip(one.left_only, one.right_only, strict=False)
            members = [f"{now} took the place of {was}" for was, now in swapped]
            where = next(iter(permuted), None) or one.right_only[0]
            yield Evidence(
                f"optimizer {one.optimizer} binds state to other parameters than were saved: {names(pairs or members)}",
                at_load(case.step, optimizer=one.optimizer, parameter=where),
                {
                    "permutation": dict(list(permuted.items())[:KEPT]),
                    "only_when_saved": kept(one.left_only),
                    "only_after_load": kept(one.right_only),
                },
                "hand the parameters to the optimizer in the same order, by the same selection, in both runs",
            )


@rule("CK303", "trainable-parameter-in-no-group", Severity.ERROR, "load")
def trainable_parameter_in_no_group(case: Case) -> Iterator[Evidence]:
    """A trainable parameter that was optimized when saved is in no param group after the load.

    Why: it is never updated again, and nothing says so.
    Example: a head added after the optimizer was built.
    Fix: build the optimizer over all trainable parameters.
    Limits: judged only against the run that was saved.
    """
    if case.load is None:
        return
    held = {name for optimizer in case.load.right.optimizers for group in optimizer.groups for name in group.members}
    for one in case.bound:
        gone = [name for name in one.left_only if name not in held
                and (now := case.load.right.parameters.get(name)) and now.requires_grad is not False]  # fmt: skip
        if gone and not one.stale and not one.right_only:
            yield Evidence(
                f"{count(gone, 'trainable parameter')} of optimizer {one.optimizer} "
                f"{'is' if len(gone) == 1 else 'are'} in no group now: {names(gone)}",
                at_load(case.step, optimizer=one.optimizer, parameter=gone[0]),
                {"parameters": kept(gone)},
                "build the optimizer over the same parameters as before",
            )


@rule("CK304", "state-shape-mismatch", Severity.ERROR, "load")
def state_shape_mismatch(case: Case) -> Iterator[Evidence]:
    """Optimizer state has another shape after the load than was saved for that parameter.

    Why: `load_state_dict` takes any shape; the first step raises, or broadcasts.
    Example: parameters of unlike shapes in another order.
    Fix: as for CK302: the same parameters in the same order.
    Limits: state that is explained by a permutation (CK302) is reported there.
    """
    for one in case.bound:
        for name, key in one.reshaped:
            sides = (case.load.left, case.load.right) if case.load else ()
            entries = [side.optimizers[one.optimizer].state[name][key] for side in sides]
            shapes = [str(entry.spec) if entry.spec else "a plain value" for entry in entries]
            yield Evidence(
                f"{key} of {name} was saved as {shapes[0]} and is {shapes[1]} after the load",
                at_load(case.step, optimizer=one.optimizer, parameter=name, key=key),
                {"saved": shapes[0], "loaded": shapes[1]},
                "load the state of this parameter into this parameter",
            )


@rule("CK306", "hyperparameter-changed", Severity.WARNING, "load")
def hyperparameter_changed(case: Case) -> Iterator[Evidence]:
    """A hyperparameter of a group differs from what was saved, while the schedule's own state is right.

    Why: the run goes on with another rate, decay or momentum; which side wins depends on the order of loading.
    Example: `group["lr"] = args.lr` after `load_state_dict`, or a constructor value that the file overrides.
    Fix: load the optimizer last, or change the value on purpose on both sides.
    Limits: implementation flags (foreach, fused) are CK614.
    """
    differing = [one for one in case.loaded("hyper") if matters(case, one)]
    if differing:
        yield _hyper_evidence(case, differing)
    first = case.first
    if first is None or None in (first.left, first.right):  # where one side has none, it updates less often
        return
    if first.item.kind == "hyper" and not case.loaded("hyper") and not _is_rate(first.item.key):
        yield Evidence(
            f"{first.item.key} of group {first.item.group} differs at step {first.step}: "
            f"{shown(first.left)} in the uninterrupted run, {shown(first.right)} in the resumed one",
            place_of(first),
            {"saved": shown(first.left), "loaded": shown(first.right)},
            "its value follows something that is not saved: look for a counter, a closure or a clock that sets it",
        )


def _hyper_evidence(case: Case, differing: list[EntryDifference]) -> Evidence:
    one = differing[0]
    changes = [
        f"{entry.key} of group {entry.group}: {shown(entry.left)} when saved, {shown(entry.right)} after the load"
        for entry in differing
    ]
    return Evidence(
        f"the live value won over the saved one: {names(changes)}",
        at_load(case.step, optimizer=one.optimizer, group=one.group, key=one.key),
        {"saved": shown(one.left), "loaded": shown(one.right), "changes": kept(changes), "wins": "live"},
        "leave the groups as load_state_dict sets them, or change the value in both runs",
    )


def matters(case: Case, one: EntryDifference) -> bool:
    """Whether a differing hyperparameter lasts, has an effect, and is not explained by a wrong schedule."""
    if one.key in FLAGS:
        return False
    explained = of_other_step(case, one) or (_is_rate(one.key) and schedule_is_wrong(case))
    return case.persists("hyper") and not explained


def _is_rate(key: str) -> bool:
    return key in ("lr", "initial_lr", "min_lr", "max_lr", "momentum", "base_momentum", "max_momentum", "betas[0]")


def schedule_is_wrong(case: Case) -> bool:
    """Whether the schedule explains differing rates: its state, a constructor after the load, or the step it is at."""
    return bool(case.loaded("schedule")) or constructed_late(case) or rate_by_hand(case) is not None


def constructed_late(case: Case) -> bool:
    """Whether the schedule was built after the optimizer was loaded, so that its constructor moved the rates."""
    rates = [one for one in case.loaded("hyper") if one.key == "lr"]
    if not rates or case.load is None:
        return False
    if "schedule" in case.replaced:
        return True
    schedule = case.load.right.sections.get("schedule", {})
    factors = [entry.value for path, entry in schedule.items() if path.endswith("start_factor")]
    return any(_is_product(one, factor) for one in rates for factor in factors)


def _is_product(one: EntryDifference, factor: object) -> bool:
    pair = (one.left.value if one.left else None, one.right.value if one.right else None)
    numbers = isinstance(pair[0], float) and isinstance(pair[1], float) and isinstance(factor, float)
    return numbers and pair[1] == pair[0] * factor  # type: ignore[operator]


@rule("CK307", "stale-parameter-reference", Severity.ERROR, "load")
def stale_parameter_reference(case: Case) -> Iterator[Evidence]:
    """The optimizer holds a tensor that the model no longer holds.

    Why: it steps the old tensor; the model's own never moves, while counters and moments rise as usual.
    Example: a layer is replaced, or weights are loaded with `assign=True`, after the optimizer was built.
    Fix: build the optimizer after the last change of the model's parameters.
    Limits: tensors that no module held on either side are not judged.
    """
    for one in case.bound:
        if one.stale:
            stale = [slot.parameter for slot in one.stale]
            yield Evidence(
                f"optimizer {one.optimizer} steps tensors that the model does not hold, in place of {names(stale)}",
                at_load(case.step, optimizer=one.optimizer, parameter=stale[0], group=one.stale[0].group),
                {"parameters": kept(stale), "slots": [[slot.group, slot.index] for slot in one.stale[:KEPT]]},
                "build the optimizer after the model is complete, and load weights in place (no assign=True)",
            )


@rule("CK309", "weights-not-loaded", Severity.ERROR, "load", "built")
def weights_not_loaded(case: Case) -> Iterator[Evidence]:
    """Parameters are, after the load, still what the factory made them.

    Why: a part of the model starts anew; `strict=False` and a wrong prefix say nothing.
    Example: `load_state_dict(state, strict=False)` with a module renamed.
    Fix: load strictly, or check the returned missing and unexpected keys.
    Limits: a parameter that never changed since it was built is equal on both sides and silent.
    """
    if case.built is None or case.other_step is not None:
        return
    left = [one for one in case.loaded("param") if one.changed and (before := case.built.parameters.get(one.name))
            and one.right and before.entry.digest == one.right.digest]  # fmt: skip
    if left:
        found = [one.name for one in left]
        total = len(case.load.left.parameters) if case.load else 0
        yield Evidence(
            f"{len(found)} of {total} parameters were not loaded, they are as {case.maker} made them: {names(found)}",
            at_load(case.step, parameter=found[0]),
            {"parameters": kept(found), "not_loaded": len(found), "of": total, **case.origin},
            "load with strict=True, or look at the missing and unexpected keys that load_state_dict returns",
        )


@rule("CK311", "tied-weights-broken", Severity.ERROR, "load")
def tied_weights_broken(case: Case) -> Iterator[Evidence]:
    """Two names that were one tensor when saved are two tensors after the load, or the other way round.

    Why: they train apart from the first step on, at twice the memory.
    Example: `load_state_dict(assign=True)`, or a head that is built anew.
    Fix: tie again after the load, before the optimizer is built.
    Limits: equal values are not a tie; only the same tensor is.
    """
    found = ((case.load.untied, "untied"), (case.load.tied, "tied")) if case.load is not None else ()
    for pair, how in ((pair, how) for pairs, how in found for pair in pairs):
        yield Evidence(
            f"{pair[0]} and {pair[1]} were {'one tensor' if how == 'untied' else 'two tensors'} when saved "
            f"and are {'two' if how == 'untied' else 'one'} after the load",
            at_load(case.step, parameter=pair[0], key=pair[1]),
            {"names": list(pair), "how": how},
            "tie the weights again in your load, and load in place",
        )


RULES = (
    group_membership_mismatch,
    parameter_order_mismatch,
    trainable_parameter_in_no_group,
    state_shape_mismatch,
    hyperparameter_changed,
    stale_parameter_reference,
    weights_not_loaded,
    tied_weights_broken,
)
