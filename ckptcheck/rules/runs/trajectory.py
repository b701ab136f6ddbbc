"""CK6, what the steps say: gradients, updates, repeated steps, saving, and the rest."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ckptcheck.comparison.traces import Difference
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.calls import calls_apart, updates_apart
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.forward import forward_apart, inputs_seen, left_unread
from ckptcheck.rules.runs.origin import drawn_otherwise_within, of_other_step, repeated_step
from ckptcheck.rules.words import at_load, count_of, kept, names, place_of, shown
from ckptcheck.trace.items import Sample

STARTS_AND_STOPS: Final = "look at where the resumed loop starts and stops"
STOPS: Final = (
    "look for what ends the loop and is not in the checkpoint: patience, a best score, a counter, a number of steps"
)


def _described(one: Difference) -> str:
    item = one.item
    return f"{item.name}.{item.key}" if item.name and item.key else item.name or item.key or item.kind


@rule("CK606", "gradient-diverged", Severity.ERROR, "trajectory")
def gradient_diverged(case: Case) -> Iterator[Evidence]:
    """Loss or gradients differ although inputs, parameters, buffers and generators are the same.

    Why: something that the training reads is in no part of the recorded state.
    Example: a python attribute that the forward pass reads, a mode, a flag of torch, a curriculum counter.
    Fix: put that value into the checkpoint, and declare it in `Run(extra=...)` so that it is compared.
    Limits: kernels that are not deterministic do the same; the repeat tells them apart.
    """
    first = forward_apart(case)
    if first is None or drawn_otherwise_within(case, first) or case.trajectory is None:
        return
    apart = [one for one in case.trajectory.differences if one.order == first.order]
    differing = [_described(one) for one in apart]
    same = "inputs, " if inputs_seen(case, first.step) else ""
    what = "the loss differs" if first.stage == "loss" else "gradients differ"
    unseen = "" if same else "; what entered the model could not be seen, so it may be the data (CK604)"
    yield Evidence(
        f"at step {first.step} {what} with the same {same}parameters and generators: {names(differing)}{unseen}",
        place_of(first),
        {"differing": kept(differing), "inputs_seen": bool(same)},
        "look for what the forward pass reads beside parameters and buffers, and save it"
        if first.stage == "loss"
        else "the loss is equal: look between backward and update, at clipping, hooks, zero_grad and accumulation",
    )


@rule("CK607", "update-diverged", Severity.ERROR, "trajectory")
def update_diverged(case: Case) -> Iterator[Evidence]:
    """The update gave another result from the same gradients, hyperparameters and state.

    Why: the update rule itself reads something that was not restored.
    Example: an optimizer that keeps state outside its `state`; weights changed by hand after the update.
    Fix: keep such state in `optimizer.state` or save it apart.
    Limits: fused and foreach kernels differ in the last place; see CK614. Whether the optimizer or the step wrote a
    parameter is not seen, unless no optimizer has it.
    """
    first = case.first
    if first is not None and case.trajectory is not None and first.stage in ("state", "param"):
        apart = case.trajectory.at_first_stage()
        message, fix = _written_otherwise(case, first, [one.item.name for one in apart])
        numbers: dict[str, Json] = {"differing": kept(map(_described, apart))}
        numbers |= {"left_norm": _norm(first, True), "right_norm": _norm(first, False)}
        yield Evidence(message, place_of(first), numbers, fix)


def _written_otherwise(case: Case, first: Difference, apart: Sequence[str]) -> tuple[str, str]:
    """What CK607 says of parameters or state that one run wrote otherwise, and what to do."""
    name = first.item.name
    update = f"at step {first.step} the update of {name} differs with the same gradients and hyperparameters"
    if first.stage == "state":
        return update, "look for state that the optimizer keeps outside its state_dict"
    optimizers = case.load.left.optimizers + case.load.right.optimizers if case.load is not None else ()
    held = {member for one in optimizers for member in one.members}
    if case.load is None or name in held:
        return f"{update} and optimizer state", (
            "look for what the optimizer keeps outside its state_dict, and for what the step itself writes into "
            "parameters after the update (an average, a copy, a clamp, from values that are not saved)"
        )
    others = {one for one in apart if one not in held and one != name}
    what = f"{name} and {count_of(len(others), 'more parameter')}" if others else name
    who = f"no optimizer has {'them' if others else 'it'}" if held else "no optimizer is declared"
    return f"at step {first.step} something wrote {what} otherwise, and {who}", (
        "look for a counter or a condition that is not saved and decides when or how the step writes it: the sync of a "
        "target network, an average, an update by hand"
    )


def _norm(one: Difference, left: bool) -> Json:
    sample = one.left if left else one.right
    return sample.norm if sample is not None else None


@rule("CK609", "saving-perturbs-training", Severity.ERROR, "saving")
def saving_perturbs_training(case: Case) -> Iterator[Evidence]:
    """The run that saves goes on otherwise than the same run without saving.

    Why: a checkpoint must not change the training; each save then makes it another run.
    Example: a save that draws random numbers, evaluates a sample, or leaves the model in eval mode.
    Fix: take the generators' states before and put them back after, or draw from a generator of its own.
    Limits: without a repeat (--quick) only what is live before and after the save is compared. The saving of a script
    cannot be left out: there it is not judged.
    """
    for one in case.saving or ():
        if one.touched:
            first = one.touched[0]
            what = [_described(touched) for touched in one.touched]
            place = place_of(first)
            yield Evidence(
                f"saving after step {one.step} changed the {first.stage} of the live run: {names(what)}",
                place,
                {"changed": kept(what), "later_step": one.later.step if one.later else None},
                "save without changing the live run: restore generators and modes that the save uses",
            )
        elif one.later is not None:
            yield Evidence(
                f"the run that saved after step {one.step} goes on otherwise than the same run without saving, "
                f"from step {one.later.step} on, in {_described(one.later)}",
                place_of(one.later),
                {"saved_after_step": one.step},
                "look for what the save reads or consumes: a data iterator, a queue, a counter",
            )


@rule("CK610", "unexplained-divergence", Severity.ERROR)
def unexplained_divergence(case: Case) -> Iterator[Evidence]:
    """The resumed run differs, and no closer code explains how.

    Why: the run does not go on as if it had never stopped.
    Example: state in an `extra` object that its own state_dict does not hold; best weights or a replay buffer that a
    script saves and does not load, so that what it saves after the resume is another.
    Fix: start from the first divergence and look for what is not saved.
    Limits: this is the code for what we do not know. Plain values that a script saves otherwise (counters, scores,
    arguments) are a warning.
    """
    first = case.first
    if first is not None and first.stage in ("extra", "hyperparameters", "data", "schedule"):
        yield Evidence(
            f"{_described(first)} differs first, at step {first.step}, in stage {first.stage}",
            place_of(first),
            {"left": shown(first.left), "right": shown(first.right)},
            "look for what this value depends on that the checkpoint does not hold",
        )
    elif calls_apart(case) and not updates_apart(case):
        yield _calls_evidence(case)
    elif case.raised is not None:
        how = "failed" if case.commands else "raised"
        yield Evidence(
            f"the resumed run {how} where the uninterrupted one did not: {case.raised}",
            Place(step=case.raised_step) if case.raised_step is not None else at_load(case.step),
            {"raised": case.raised, "last_lines": kept(case.last_lines)},
            _to_do(case),
        )


def _to_do(case: Case) -> str:
    """What one can do about a resumed run that raised."""
    if not case.commands and case.raised_step is None:
        return "mend your load, which does not take what was saved: the line of it that raised is named there"
    if case.last_lines:
        return "look at what the resumed run said last"
    return "start the resume command by itself" if case.commands else "look at the line of your code that raised"


def _calls_evidence(case: Case) -> Evidence:
    """A model that one run calls more often in a step, though both make the same updates."""
    apart = case.trajectory.at_first_stage() if case.trajectory is not None else ()
    calls = {(one.item.name, one.item.part): one.left is None for one in apart if one.left is None or one.right is None}
    in_resumed = next(iter(calls.values()))
    more, fewer = ("resumed", "uninterrupted") if in_resumed else ("uninterrupted", "resumed")
    modules_called = [name or "the model itself" for name, _ in calls]
    return Evidence(
        f"in step {apart[0].step} the {more} run calls {names(modules_called)} more often than the {fewer} one",
        place_of(apart[0]),
        {"calls_apart": len(calls), "modules": kept(modules_called)},
        "look for a counter, or the length of a loader or loop, that decides how often the model is called in a step",
    )


@rule("CK612", "steps-missing-or-repeated", Severity.ERROR, "load")
def steps_missing_or_repeated(case: Case) -> Iterator[Evidence]:
    """The resumed run does the work of a step again, or leaves one out.

    Why: samples and schedule shift by a step at every resume.
    Example: the step number is written before it is counted up, so that step k is done twice.
    Fix: save the number of completed steps, and go on with the next one.
    Limits: seen where inputs repeat and a saved counter is off; otherwise it is CK604.
    """
    counters = [one for one in case.loaded("extra") if not of_other_step(case, one)
                and one.left and one.right and isinstance(one.left.value, int)
                and isinstance(one.right.value, int) and not isinstance(one.left.value, bool)]  # fmt: skip
    seen = repeated_step(case)
    if case.trajectory is None or case.goes_on_exactly:
        return
    if counters and seen is not None:
        one = counters[0]
        off = one.right.value - one.left.value if one.left and one.right else 0  # type: ignore[operator]
        if seen - (case.step + 1) == off:
            verb = "again" if off < 0 else "too early"
            yield Evidence(
                f"{one.name} was {shown(one.left)} when saved and is {shown(one.right)} after the load: "
                f"step {case.step + 1} does the work of step {seen} {verb}",
                at_load(case.step, key=one.name),
                {"saved": shown(one.left), "loaded": shown(one.right), "repeats_step": seen},
                "save the number of completed steps and go on with the next one",
            )
    updates = _updates_apart(case)
    if updates is not None:
        yield _updates_evidence(case, updates)
    for run, steps in (("resumed", case.trajectory.left_only), ("uninterrupted", case.trajectory.right_only)):
        if not steps or case.raised is not None:
            continue
        gone = [str(step) for step in steps]
        again = f"; step {case.step + 1} does the work of step {seen} again" if seen and run == "uninterrupted" else ""
        yield Evidence(
            f"the {run} run never did step {names(gone)}{again}",
            Place(step=steps[0]) if case.commands else at_load(case.step),
            {"missing": kept(gone), "repeats_step": seen},
            STOPS if case.commands and steps[0] > max(case.trajectory.steps, default=case.step) else STARTS_AND_STOPS,
        )


def _updates_apart(case: Case) -> Difference | None:
    """The number of updates of an optimizer, where that is the first to differ, with no more than what it brings along.

    A step that is made more often has further inputs and updates, one that is left out has none. Where loss, gradients
    and loss scale are equal up to the update, no overflow tells the two runs apart.
    """
    first = case.first
    if first is None or case.trajectory is None or case.loaded("scaler"):
        return None
    apart = updates_apart(case)
    one_sided = all(one.left is None or one.right is None for one in case.trajectory.at_first_stage())
    brought = (one_sided and first.stage in ("hyperparameters", "inputs", "loss")) or calls_apart(case)
    return apart[0] if apart and (first.stage == "scaler" or brought or left_unread(case)) else None


def _updates_evidence(case: Case, first: Difference) -> Evidence:
    """An optimizer that steps more or less often in one run: another window, or another optimizer than declared."""
    later = (
        [one for one in case.trajectory.differences if one.item == first.item] if case.trajectory is not None else []
    )
    idle = all(one.right is not None and one.right.value == 0 for one in later)
    fix = "look for a counter of steps or micro-batches that decides who updates, and that the checkpoint does not hold"
    if idle and case.trajectory is not None and len(later) == len(case.trajectory.steps):
        fix = "if your load builds a new optimizer, assign it to run.optimizer, so that it is watched"
    return Evidence(
        f"optimizer {first.item.optimizer} makes {_made(first.left)} in step {first.step} of the uninterrupted run and "
        f"{_made(first.right)} in the resumed one",
        replace(place_of(first), stage=case.first.stage if case.first is not None else None),
        {"left": shown(first.left), "right": shown(first.right), "never_steps": idle},
        fix,
    )


def _made(side: Sample | None) -> str:
    """So many updates."""
    value = shown(side)
    return count_of(value, "update") if isinstance(value, int) else "an unknown number of updates"


RULES = (
    gradient_diverged,
    update_diverged,
    saving_perturbs_training,
    unexplained_divergence,
    steps_missing_or_repeated,
)
