"""CK6, what is live right after a load against what was saved: everything that no closer code names."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.states import EntryDifference
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.numbers import narrowed_to
from ckptcheck.rules.runs.origin import other_parameters
from ckptcheck.rules.words import at_load, count, differ, kept, modules, names, shown


@rule("CK601", "load-not-faithful", Severity.ERROR, "load")
def load_not_faithful(case: Case) -> Iterator[Evidence]:
    """What is live right after the load differs from what was saved, in a way that no closer code names.

    Why: training goes on from another state than it stopped at.
    Example: an asynchronous save that wrote tensors while the next step changed them; another file was loaded.
    Fix: copy tensors before a save goes to the background; load the file of this very step.
    Limits: a generator, gradients or modes that differ without effect are warnings.
    """
    if case.other_step is not None and case.load is not None:
        changed = [one for one in case.load.entries if one.section in ("param", "state") and one.changed]
        yield Evidence(
            f"{count(changed, 'tensor')} hold the values of step {case.other_step}, not of step {case.step}: "
            f"{names(one.name for one in changed)}",
            at_load(case.step, parameter=changed[0].name, key=changed[0].key or None),
            {"values_of_step": case.other_step, "tensors": len(changed)},
            "copy tensors before a save goes to the background, and check that the file of this step is loaded",
        )
        return
    others = other_parameters(case)
    if any(others):
        yield _of_another_model(case, *others)
        return
    left = [one for one in (*case.loaded("param"), *case.loaded("state")) if not _explained(case, one)]
    left += [one for one in case.loaded("extra") if case.persists("extra") or case.reaches("inputs")]
    if left:
        one = left[0]
        yield Evidence(
            f"{count(left, 'entry', 'entries')} {differ(left)} after the load: "
            f"{names(f'{entry.name}.{entry.key}' if entry.key else entry.name for entry in left)}{_specs(one)}",
            _place_of_entry(case, one),
            {"saved": shown(one.left), "loaded": shown(one.right), "entries": len(left)},
            UNTRAINED
            if _untrained(case, left)
            else "compare what your save writes with what your load puts back for these entries",
        )
    yield from _modes(case)


def _place_of_entry(case: Case, one: EntryDifference) -> Place:
    """Where an entry is: of a parameter, or of an object that the run declares."""
    if one.section == "extra":
        return at_load(case.step, key=one.name)
    return at_load(case.step, parameter=one.name, key=one.key or None, optimizer=one.optimizer)


def _specs(one: EntryDifference) -> str:
    """For a sentence on entries that differ: of which shape and dtype the first was and is, where that changed."""
    specs = [side.spec if side is not None else None for side in (one.left, one.right)]
    return f"; {one.name} was {specs[0]} and is {specs[1]}" if all(specs) and specs[0] != specs[1] else ""


def _of_another_model(case: Case, gone: list[str], new: list[str]) -> Evidence:
    """Parameters are compared by name, and these have none on the other side."""
    said = [f"{names(gone)} {'is' if len(gone) == 1 else 'are'} not there"] if gone else []
    said += [f"{names(new)} {'is' if len(new) == 1 else 'are'} new"] if new else []
    return Evidence(
        f"the resumed run has other parameters than the run that was saved: {'; '.join(said)}",
        at_load(case.step, parameter=(gone or new)[0]),
        {"only_when_saved": kept(gone), "only_after_load": kept(new)},
        "resume with the model that was saved: parameters are compared by name",
    )


UNTRAINED: Final = "no optimizer trains these: a target network or teacher that the checkpoint does not hold?"


def _untrained(case: Case, differing: list[EntryDifference]) -> bool:
    """Whether all that differs are parameters that no optimizer has, beside others that one has."""
    optimizers = case.load.left.optimizers if case.load is not None else ()
    held = {name for one in optimizers for name in one.members}
    return bool(held) and all(one.section == "param" and one.name not in held for one in differing)


def _explained(case: Case, one: EntryDifference) -> bool:
    """Whether a closer code speaks of this parameter or state entry."""
    if narrowed_to(case, one) is not None:
        return True
    if one.section == "param":
        if case.load is not None and any(one.name in pair for pair in (*case.load.untied, *case.load.tied)):
            return True
        before = case.built.parameters.get(one.name) if case.built is not None else None
        return before is not None and one.right is not None and before.entry.digest == one.right.digest
    bound = next((slot for slot in case.bound if slot.optimizer == one.optimizer), None)
    if bound is None:
        return False
    by_name = (*bound.permuted, *bound.missing, *bound.partial, *bound.left_only, *bound.right_only)
    by_key = (*bound.counted, *bound.reshaped)
    stale = bool(bound.stale) and (one.left is None or one.right is None)
    return stale or one.name in by_name or (one.name, one.key) in by_key


def _modes(case: Case) -> Iterator[Evidence]:
    if case.load is None or not case.reaches("buffers"):
        return
    differing = [name for name in {**case.load.left.modes, **case.load.right.modes}
                 if case.load.left.modes.get(name, True) != case.load.right.modes.get(name, True)]  # fmt: skip
    if differing:
        was = case.load.left.modes.get(differing[0], True)
        yield Evidence(
            f"{count(differing, 'module')} changed between train and eval mode in the load, {modules(differing)}: "
            f"{'train' if was else 'eval'} mode when saved, {'eval' if was else 'train'} mode after the load",
            at_load(case.step, key=modules(differing[:1])),
            {"modules": kept(differing)},
            "call model.train() after the load"
            if was
            else "put these modules into eval mode at the end of your load, after model.train()",
        )


@rule("CK613", "accumulated-gradients-lost", Severity.ERROR, "load")
def accumulated_gradients_lost(case: Case) -> Iterator[Evidence]:
    """Gradients accumulated when the run was saved are not there after the load, and the next update misses them.

    Why: the first update after the resume is made of a part of its window.
    Example: a checkpoint in the middle of an accumulation window.
    Fix: save at the window's end only, or save the gradients too.
    Limits: gradients left over that the next step clears are a warning. Those that a script holds over a save are not
    seen: there it is not judged.
    """
    if case.load is None or case.trajectory is None or case.other_step is not None:
        return
    missed = {one.item.name for one in case.trajectory.differences if one.stage == "grad" and one.step == case.step + 1}
    both = case.load.left.parameters.keys() & case.load.right.parameters.keys()  # one that was tied has other names
    lost = [one.name for one in case.loaded("grad") if one.name in missed & both and not _used_up(case, one)]
    if lost and (case.reaches("grad") or _window_is_open(case)):
        added = all(case.load.left.parameters[name].presence == "none" for name in lost)
        which = count(lost, "parameter")
        yield Evidence(
            f"the gradients of {which} were not there when it was saved, the next update adds to them: {names(lost)}"
            if added
            else f"the gradients of {which} accumulated up to step {case.step} differ after the load: {names(lost)}",
            at_load(case.step, parameter=lost[0]),
            {"parameters": kept(lost), "after_load": case.load.right.parameters[lost[0]].presence},
            "clear the gradients at the end of your load"
            if added
            else "save at the end of an accumulation window only, or save and restore the gradients",
        )


def _window_is_open(case: Case) -> bool:
    """Whether the step before the save made no update and skipped none, so that its gradients wait for the next one."""
    if case.load is None or case.origins is None or not case.load.left.optimizers:
        return False
    updated = any(case.origins.updated(case.step, place) for place in range(len(case.load.left.optimizers)))
    return not updated and case.origins.scaler_rested(case.step)


def _used_up(case: Case, gradient: EntryDifference) -> bool:
    """Whether the step before the save updated with this gradient, so that the next one clears what is left of it.

    So does one that an earlier update has read, where an update of others differs before its own comes.
    """
    if case.load is None or case.origins is None:
        return False
    name, left = gradient.name, gradient.left
    digest = left.digest if left is not None and case.load.left.parameters[name].presence != "none" else None
    for place, one in enumerate(case.load.left.optimizers if digest is not None else ()):
        if one.group_of(name) is not None and digest is not None:
            lies_there = case.origins.last_read(case.step, place, name, digest.value) and _others_differ(case)
            return lies_there or case.origins.updated(case.step, place)
    # Nobody tells when it is used: whatever else came back otherwise explains gradients that differ.
    return any(one.section not in ("grad", "rng") for one in case.load.entries)


def _others_differ(case: Case) -> bool:
    """Whether the first step after the load made an update with gradients that differ."""
    if case.load is None or case.origins is None or case.trajectory is None:
        return False
    step = case.step + 1
    made = [one for place, one in enumerate(case.load.left.optimizers) if case.origins.updated(step, place)]
    names = [one.item.name for one in case.trajectory.differences if one.stage == "grad" and one.step == step]
    return any(one.group_of(name) is not None for one in made for name in names)


RULES = (load_not_faithful, accumulated_gradients_lost)
