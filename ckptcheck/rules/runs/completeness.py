"""CK2: what is missing for a resume."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.states import EntryDifference
from ckptcheck.finding import Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.origin import left_alone, other_parameters
from ckptcheck.rules.words import KEPT, at_load, count, differ, kept, names, place_of, shown


@rule("CK201", "optimizer-state-absent", Severity.ERROR, "load")
def optimizer_state_absent(case: Case) -> Iterator[Evidence]:
    """No parameter of an optimizer has any state: it was not saved, or not loaded.

    Why: momentum and second moments restart from zero. Adam's first update then has size lr in every element,
    which throws a trained model off; no error is raised.
    Example: `load` restores the model and forgets `optimizer.load_state_dict`.
    Fix: save `optimizer.state_dict()` and load it after the model.
    Limits: an optimizer that keeps no state (SGD without momentum) cannot lose any. In a checkpoint, silent before
    the first step; a warning where nothing says whether a step was made, and where another optimizer has its state: a
    second one may begin later. Of a class that is not known an empty state is not judged.
    """
    for one in case.bound:
        if one.none_loaded and case.other_step is None:
            kind = case.load.left.optimizers[one.optimizer].class_name if case.load else None
            found = f"its state as {case.maker} made it" if one.as_built else "no state"
            yield Evidence(
                f"optimizer {one.optimizer} ({kind or 'unknown class'}) has {found} after the load; "
                f"{count(one.missing, 'parameter')} had {'other' if one.as_built else 'some'} when it was saved",
                at_load(case.step, optimizer=one.optimizer, parameter=one.missing[0]),
                {"parameters": kept(one.missing), "missing": len(one.missing)},
                "save optimizer.state_dict() and call optimizer.load_state_dict on it in your load",
            )


@rule("CK202", "optimizer-state-missing-for-parameter", Severity.ERROR, "load")
def optimizer_state_missing_for_parameter(case: Case) -> Iterator[Evidence]:
    """Some parameters of an optimizer lack their state, others have theirs.

    Why: their moments restart from zero in the middle of training, and `load_state_dict` says nothing.
    Example: a checkpoint filtered by name, or written from a shard.
    Fix: write the state of every parameter that has some.
    Limits: parameters that never had a gradient (frozen, unused) have no state, and one file alone cannot always tell
    them from lost ones. In a checkpoint, an error where another parameter of the same module has state, where its
    counterparts in the other layers have it, and for the only one without state of a writer that lists trainable
    parameters only (HF Trainer, DeepSpeed). A whole module without state, or all parameters of a kind, is an info; a
    lone one a warning. Silent where the file says requires_grad False.
    """
    frozen = _frozen_before(case) | {*other_parameters(case)[0]}
    for one in case.bound:
        if one.none_loaded or case.other_step is not None:
            continue
        for name in (name for name in one.missing if name not in frozen):
            keys = sorted(case.load.left.optimizers[one.optimizer].state[name]) if case.load else []
            found = f"the optimizer state that {case.maker} made" if name in one.as_built else "no optimizer state"
            yield Evidence(
                f"{name} has {found} after the load; it had {', '.join(keys)} when it was saved",
                at_load(case.step, optimizer=one.optimizer, parameter=name),
                {"keys": kept(keys)},
                "look for what drops this parameter's entry from the saved optimizer state",
            )


@rule("CK203", "optimizer-state-partial", Severity.ERROR, "load")
def optimizer_state_partial(case: Case) -> Iterator[Evidence]:
    """A parameter has some keys of its optimizer state and lacks others.

    Why: SGD restarts a missing momentum silently; Adam raises KeyError in its first step.
    Example: `exp_avg_sq` dropped to save space.
    Fix: save all keys of the optimizer's state.
    Limits: keys that only the loaded side has are not judged here. In a checkpoint the class says which keys there
    must be, as far as its groups' hyperparameters tell the class; of another class a key that all other parameters of
    the group have is missed, as a warning.
    """
    for one in case.bound:
        for name, keys in one.partial.items():
            if case.other_step is None:
                yield Evidence(
                    f"{name} lacks {', '.join(keys)} after the load; the other keys are there",
                    at_load(case.step, optimizer=one.optimizer, parameter=name, key=keys[0]),
                    {"missing_keys": kept(keys), "raised": case.raised},
                    "save every key of the optimizer's state for this parameter",
                )


@rule("CK205", "rng-state-absent", Severity.WARNING, "load", "built")
def rng_state_absent(case: Case) -> Iterator[Evidence]:
    """The state of a generator that the training draws from was not saved, or not restored.

    Why: dropout, noise and shuffling then draw other numbers than the run that was stopped.
    Example: a checkpoint without `torch.get_rng_state()`.
    Fix: save and restore the generators, last of all, since building a layer or an iterator draws too.
    Limits: judged from the live generator, which is still where the factory left it; in a checkpoint from what it
    holds, whether anything draws from it or not. There, a lack of the numpy and python generators alone is an info.
    """
    for name in () if case.goes_on_exactly else left_alone(case):
        yield Evidence(
            f"the load left the {name} generator where {case.maker} had put it",
            at_load(case.step, key=name),
            {"generator": name},
            f"save the state of the {name} generator and restore it at the end of your load",
        )


@rule("CK208", "ema-state-inconsistent", Severity.WARNING, "load")
def ema_state_inconsistent(case: Case) -> Iterator[Evidence]:
    """The averaged weights or their counter do not fit what was saved, or the model beside them.

    Why: the average is what is released; it restarts from the raw weights or from an old average.
    Example: the EMA object is not part of the checkpoint.
    Fix: save and load the EMA's own state_dict.
    Limits: an average that is not declared as `Run(ema=...)` is not seen; one that a script keeps in a dict of its own
    only by what is saved after the resume. In a checkpoint it is held against the model by name; an average that was
    not saved at all leaves no trace there.
    """
    differing, first = case.loaded("ema"), case.first
    at_step = first is not None and first.stage == "ema"
    moved = case.trajectory.at_first_stage() if case.trajectory is not None and at_step else ()
    apart = {*(one.name for one in differing), *(one.item.name for one in moved)}
    if case.other_step is None and apart & case.shared.keys():
        yield _shares_memory(case, differing)
    elif differing and case.other_step is None:
        paths = [one.name for one in differing]
        yield Evidence(
            f"{count(differing, 'EMA entry', 'EMA entries')} {differ(differing)} after the load: {names(paths)}",
            at_load(case.step, key=paths[0]),
            {"entries": kept(paths), "saved": shown(differing[0].left), "loaded": shown(differing[0].right)},
            SAVE_THE_AVERAGE if any(_began_anew(case, one) for one in differing) else LOADED_OTHERWISE,
        )
    elif first is not None and at_step:
        yield Evidence(
            f"the EMA differs first, at step {first.step}: {first.item.name}",
            place_of(first),
            {"left": shown(first.left), "right": shown(first.right)},
            "look for a counter or decay of the EMA that its state_dict does not hold",
        )


SAVE_THE_AVERAGE: Final = "save the EMA's state_dict and load it"
LOADED_OTHERWISE: Final = (
    "it is not loaded as it was saved: compare what your load puts into the EMA, and does to it afterwards"
)


def _began_anew(case: Case, one: EntryDifference) -> bool:
    """Whether an entry of the average is missing, as the run was built, or made of the weights that were loaded."""
    if case.load is None or one.right is None or one.right.digest is None:
        return True
    built = case.built.sections.get("ema", {}).get(one.name) if case.built is not None else None
    alike = [built, *(weight.entry for weight in case.load.right.parameters.values())]
    return any(other is not None and other.digest == one.right.digest for other in alike)


def _shares_memory(case: Case, differing: tuple[EntryDifference, ...]) -> Evidence:
    """An average whose tensors are live weights is moved by every update, and no longer averages."""
    paths = [*case.shared]
    pairs = [f"{path} is {name}" for path, name in case.shared.items()]
    others = [one.name for one in differing if one.name not in case.shared]
    beside = (
        f"; {count(others, 'other entry', 'other entries')} {differ(others)} too: {names(others)}" if others else ""
    )
    return Evidence(
        f"{count(paths, 'entry', 'entries')} of the average {'shares' if len(paths) == 1 else 'share'} memory with the "
        f"live weights after the load: {names(pairs)}{beside}",
        at_load(case.step, key=paths[0]),
        {"shared": dict(list(case.shared.items())[:KEPT]), "entries": kept(one.name for one in differing)},
        "give the average tensors of its own: clone what your load puts into it (copy_ in place, no .data = .data)",
    )


def _frozen_before(case: Case) -> set[str]:
    if case.load is None:
        return set()
    return {name for name, one in case.load.left.parameters.items() if one.requires_grad is False}


RULES = (
    optimizer_state_absent,
    optimizer_state_missing_for_parameter,
    optimizer_state_partial,
    rng_state_absent,
    ema_state_inconsistent,
)
