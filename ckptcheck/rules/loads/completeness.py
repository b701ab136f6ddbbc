"""CK2: what a checkpoint lacks that the training needs."""

from collections.abc import Iterator, Sequence
from typing import Final

from ckptcheck.conventions.rng import global_generators
from ckptcheck.finding import Severity
from ckptcheck.rules.loads.dry_run import OWN_LOAD, DryRun, Paired
from ckptcheck.rules.loads.views import at, bound, came, file_names, refused, rows_of, state_came
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import completeness as runs
from ckptcheck.rules.stored import orphans, surroundings
from ckptcheck.rules.stored.expected_state import base_keys, keeps_nothing, required
from ckptcheck.rules.stored.missing_state import told_apart
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.training_state import Optimizer


@also(runs.optimizer_state_absent)
def optimizer_state_absent(dry: DryRun) -> Iterator[Evidence | Unjudged]:
    """The target has an optimizer that the file has none for, or the load gave it none of the file's state."""
    for pair in dry.pairs:
        name = f"optimizer {pair.place} ({pair.live.class_name})"
        if pair.file is None and _keeps_state(pair.live) and not state_came(dry, pair.place):
            if not dry.checkpoint.state.parameters:
                yield Unjudged("what the file holds is not recognised, and the load gave no optimizer any state")
                return
            yield Evidence(
                f"the target's {name} has no counterpart in the file: it starts anew",
                at(optimizer=pair.place, parameter=next(iter(pair.live.members), None)),
                {"file_optimizers": len(dry.checkpoint.state.optimizers), "optimizers": len(dry.pairs)},
                "save optimizer.state_dict() of every optimizer",
                Severity.WARNING if dry.for_release else None,
            )
    for pair, one in bound(dry):
        if one.none_loaded:
            yield Evidence(
                f"optimizer {pair.place} ({pair.live.class_name}) has no state after the load; the file holds state of "
                f"{count(one.missing, 'parameter')}",
                at(optimizer=pair.place, parameter=one.missing[0]),
                {"parameters": kept(one.missing), "missing": len(one.missing)},
                "call optimizer.load_state_dict in your load",
            )


def _keeps_state(optimizer: Optimizer) -> bool:
    rows = rows_of(optimizer)
    if not rows or not optimizer.groups:
        return bool(optimizer.groups) and not rows
    return not all(keeps_nothing(rows, group.hyperparameters) for group in optimizer.groups)


@also(runs.optimizer_state_missing_for_parameter)
def optimizer_state_missing_for_parameter(dry: DryRun) -> Iterator[Evidence]:
    """The load dropped the state that the file has for a parameter, or the file lacks it for one that is trained."""
    for pair, one in bound(dry):
        for name in one.missing if not one.none_loaded else ():
            if not _is_trained(dry, name) or pair.file is None:
                continue
            keys = sorted(pair.file.state[name])
            yield Evidence(
                f"{name} has no optimizer state after the load; the file holds its {', '.join(keys)}",
                at(optimizer=pair.place, parameter=name),
                {"keys": kept(keys)},
                "look for what drops this parameter's entry in your load",
            )
    for pair in dry.pairs:
        yield from _lacking(dry, pair)


def _lacking(dry: DryRun, pair: Paired) -> Iterator[Evidence]:
    """State that the file lacks; where it has names of its own, the rule over one checkpoint says so."""
    if (
        pair.file is None
        or not pair.numbered
        or refused(dry, pair)
        or any(row.whole_list for row in rows_of(pair.live))
    ):
        return
    having = dict.fromkeys(name for name, one in pair.file.state.items() if one)
    missing = [name for name in pair.live.members if name not in having and _is_trained(dry, name)]
    for lost in told_apart(missing, having)[0] if having else ():
        yield Evidence(
            f"the file has no optimizer state in the place of {lost.name}, which the target trains; "
            f"{lost.beside} has its",
            at(optimizer=pair.place, parameter=lost.name),
            {"beside": lost.beside},
            "look for what drops this parameter's entry from the saved state; its moments restart from zero",
        )


def _is_trained(dry: DryRun, name: str) -> bool:
    one = dry.now.parameters.get(name)
    return one is None or one.requires_grad is not False


@also(runs.optimizer_state_partial)
def optimizer_state_partial(dry: DryRun) -> Iterator[Evidence]:
    """The state that the target's optimizer gets lacks keys that its class needs."""
    done: set[int] = set()
    for pair in dry.pairs:
        strange = _strange_class(dry, pair)
        if strange is not None:
            done.add(pair.place)
            yield strange
    for pair, one in bound(dry):
        for name, keys in one.partial.items() if pair.place not in done else ():
            yield Evidence(
                f"{name} lacks {', '.join(keys)} after the load; the file has them",
                at(optimizer=pair.place, parameter=name, key=keys[0]),
                {"missing_keys": kept(keys)},
                "load every key of the optimizer's state for this parameter",
            )


def _strange_class(dry: DryRun, pair: Paired) -> Evidence | None:
    """State of another class than the target's optimizer is, whose keys it does not find."""
    rows = rows_of(pair.live)
    if pair.file is None or not rows or not pair.guesses or pair.live.class_name in _bare(pair.guesses):
        return None
    live = dry.loaded_optimizers
    after = live[pair.place] if live is not None and not refused(dry, pair) else pair.file
    state = {name: base_keys(one) for name, one in after.state.items() if one}
    wanted = required(rows, pair.live.groups[0].hyperparameters) if pair.live.groups else frozenset()
    known = {key for row in rows for key in row.keys}
    wrong = [name for name, keys in state.items() if wanted - keys or keys - known]
    if not wrong:
        return None
    name = wrong[0]
    lacking, surplus = sorted(wanted - state[name]), sorted(state[name] - known)
    said = f"lacks {', '.join(lacking)}" if lacking else f"has {', '.join(surplus)}, which it does not read"
    return Evidence(
        f"the file's optimizer state is that of {' or '.join(_bare(pair.guesses))}, the target's optimizer "
        f"{pair.place} is {pair.live.class_name}: the state of {count(wrong, 'parameter')} {said}",
        at(optimizer=pair.place, parameter=name, key=(lacking or surplus)[0]),
        {"file": kept(pair.guesses), "target": pair.live.class_name, "missing_keys": kept(lacking),
         "unread_keys": kept(surplus), "parameters": len(wrong)},
        "resume with the optimizer that the file was saved from",
    )  # fmt: skip


def _bare(classes: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(one.rpartition(".")[2] for one in classes))


_TORCH: Final = "torch"
_SECTIONS: Final = {
    "schedule": ("scheduler", "it begins at its first step again, and sets the learning rate of that step"),
    "scaler": ("gradient scaler", "its scale begins at its first value again"),
    "ema": ("EMA", "the average begins at the weights that the target was built with"),
}


def _absent(dry: DryRun, section: str) -> Iterator[Evidence]:
    """A part of the training for which the file has nothing and which the load left as it was built."""
    if section not in dry.built.sections or section in dry.checkpoint.state.sections or came(dry, section):
        return
    if not dry.checkpoint.state.parameters or (section == "ema" and dry.checkpoint.models.keys() & {"ema"}):
        return
    paths = dry.built.sections[section]
    if section == "scaler" and not any(path.endswith("scale") for path in paths):
        return  # a disabled scaler has nothing to save
    word, then = _SECTIONS[section]
    yield Evidence(
        f"the target has {'an' if word == 'EMA' else 'a'} {word} and the file has no state of one: {then}",
        at(key=next(iter(paths), None) or None),
        {"entries": len(paths), "loaded": dry.loaded is not None},
        f"save the {word}'s state_dict and load it",
    )


@also(runs.rng_state_absent)
def generator_left(dry: DryRun) -> Iterator[Evidence]:
    """The target's own load did not restore torch's generator, of which the file holds the state."""
    if dry.load is None or dry.loaded is None or dry.raised is not None or dry.how != OWN_LOAD:
        return
    built, now = dry.built.rng.get(_TORCH), dry.loaded.rng.get(_TORCH)
    held = [*global_generators(dry.checkpoint.raw.root)]
    saved = [one for one in dry.load.left.rng.values() if any(one.ref is tensor for tensor in held)]
    if built is None or now is None or built.digest != now.digest or len(held) != 1 or len(saved) != 1:
        return
    if saved[0].spec == now.spec and saved[0].digest != now.digest:
        yield Evidence(
            "the load left the torch generator where the factory had put it; the file holds another state of it",
            at(key=_TORCH),
            {"generator": _TORCH},
            "restore the generator at the end of your load",
        )


@also(surroundings.scheduler_state_absent)
def scheduler_state_absent(dry: DryRun) -> Iterator[Evidence]:
    """The target has a schedule that the file has no state of."""
    yield from _absent(dry, "schedule")


@also(surroundings.scaler_state_absent)
def scaler_state_absent(dry: DryRun) -> Iterator[Evidence]:
    """The target has a gradient scaler that the file has no state of."""
    yield from _absent(dry, "scaler")


@also(runs.ema_state_inconsistent)
def ema_state_absent(dry: DryRun) -> Iterator[Evidence]:
    """The target has an average that the file has no state of."""
    yield from _absent(dry, "ema")


@also(orphans.orphaned_optimizer_state, severity=Severity.WARNING)
def orphaned_optimizer_state(dry: DryRun) -> Iterator[Evidence]:
    """The file holds optimizer state of parameters that the target lacks."""
    live = {*dry.now.parameters, *(name for one in dry.now.parameters.values() for name in one.aliases)}
    if not live & file_names(dry):
        return  # the names differ as a whole, which CK310 tells
    for pair in dry.pairs:
        if pair.file is None or not pair.named:
            continue
        lost = [name for name, one in pair.file.state.items() if one and name not in live and not name.startswith("<")]
        if lost:
            yield Evidence(
                f"the file holds optimizer state of {count(lost, 'parameter')} that the target does not have: "
                f"{names(lost)}",
                at(optimizer=pair.place, parameter=lost[0]),
                {"parameters": kept(lost)},
                "resume with the model that was saved, or drop the state of parameters that were removed",
            )


RULES: Final[tuple[Rule[DryRun], ...]] = (
    optimizer_state_absent,
    optimizer_state_missing_for_parameter,
    optimizer_state_partial,
    generator_left,
    scheduler_state_absent,
    scaler_state_absent,
    ema_state_absent,
    orphaned_optimizer_state,
)
