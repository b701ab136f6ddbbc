"""CK2: what a resume needs beside weights and optimizer state: schedule, generators, scaler, position in the data."""

import re
from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, Unjudged, also, rule
from ckptcheck.rules.runs import completeness as runs
from ckptcheck.rules.stored.demands import why_nothing_is_missed
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.stored.writers import known
from ckptcheck.rules.words import generators, kept, names
from ckptcheck.state.raw import RawTensor

_GENERATORS: Final = ("torch", "numpy", "python")
_COUNTS_SAMPLES: Final = re.compile(r"(samples|tokens|batch|iters_done|iter_in_epoch|position|sampler)")
_PRECISION_KEYS: Final = frozenset(
    {"fp16", "use_fp16", "precision", "mixed_precision", "amp_dtype", "dtype", "half_precision", "torch_dtype"}
)
_FLAGS: Final = frozenset({"fp16", "use_fp16", "half_precision"})
"""Of these keys, those that are fp16 where they are true."""
_HALF: Final = frozenset({"fp16", "float16", "torch.float16", "16", "16-mixed", "half"})
_SCALE_KEYS: Final = frozenset({"loss_scale", "cur_scale", "loss_scaler", "scale", "grad_scaler"})


def _weighed(stored: Stored, code: str, own: Severity) -> tuple[Severity, str] | None:
    """The severity for this writer and what is said of it, ": ..."; None where it is by design."""
    told = known(stored.checkpoint.convention, code)
    if told is None:
        return own, ""
    return None if told.severity is None else (told.severity, f": {told.said}" if told.said else "")


@rule("CK204", "scheduler-state-absent", Severity.WARNING)
def scheduler_state_absent(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """A learning rate schedule was in use and its state is not in the checkpoint.

    Why: the schedule starts anew: the learning rate jumps back to its first value and warms up again.
    Example: the groups carry `initial_lr`, which a scheduler plants, and there is no `scheduler.state_dict()`.
    Fix: save `scheduler.state_dict()`, build the scheduler anew and then load it.
    Limits: an error for HF Trainer, which then loads no optimizer state either. Silent where nothing shows that there
    was a scheduler, and for writers that compute the rate from the step or the epoch (nanoGPT, timm, ultralytics,
    open_clip, torchtune).
    """
    if stored.purpose is not Purpose.RESUME:
        return
    if why := why_nothing_is_missed(stored):
        yield why
        return
    if "schedule" not in stored.checkpoint.state.sections:
        yield from _no_schedule(stored)


def _no_schedule(stored: Stored) -> Iterator[Evidence]:
    planted = [
        place for place, one in enumerate(stored.checkpoint.state.optimizers)
        if any("initial_lr" in group.hyperparameters for group in one.groups)
    ]  # fmt: skip
    told = known(stored.checkpoint.convention, "CK204")
    weighed = _weighed(stored, "CK204", Severity.WARNING)
    always = told is not None and told.severity is Severity.ERROR
    if weighed is None or not (planted or always):
        return
    why = f"the groups of optimizer {planted[0]} carry initial_lr, which a scheduler plants" if planted else ""
    said = weighed[1].removeprefix(": ")
    yield Evidence(
        f"there is no scheduler state: {said or why}",
        Place(path=str(stored.checkpoint.raw.path), optimizer=planted[0] if planted else None),
        {"optimizers": [*planted]},
        "save scheduler.state_dict() and load it after the scheduler is built",
        weighed[0],
    )


@also(runs.rng_state_absent)
def rng_state_absent(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """The checkpoint has no state of a generator."""
    if stored.purpose is not Purpose.RESUME:
        return
    if why := why_nothing_is_missed(stored):
        yield why
        return
    state, path = stored.checkpoint.state, str(stored.checkpoint.raw.path)
    missing = [one for one in _GENERATORS if not any(_names(name, one) for name in state.rng)]
    if not any(_names(name, "cuda") for name in state.rng) and _on_gpu(stored):
        missing.append("cuda")
    fix = "save the generators' states with the rest, and restore them last of all"
    if len(state.rng) == 0:
        weighed = _weighed(stored, "CK205", Severity.WARNING)
        if weighed is not None:
            yield Evidence(
                f"there is no state of any generator{weighed[1]}", Place(path=path), {"missing": kept(missing)}, fix,
                weighed[0],
            )  # fmt: skip
    elif missing:
        drawn = "torch" in missing or "cuda" in missing
        yield Evidence(
            f"there is no state of {generators(missing)}; {names(state.rng)} {'is' if len(state.rng) == 1 else 'are'} "
            "there",
            Place(path=path, key=missing[0]),
            {"missing": kept(missing), "held": kept(state.rng)},
            fix,
            Severity.WARNING if drawn else Severity.INFO,
        )


def _names(generator: str, kind: str) -> bool:
    """Whether a generator's name, which may have a rank in it, is of this kind."""
    return re.search(rf"(?<![a-z]){kind}(?![a-z])", generator) is not None


def _on_gpu(stored: Stored) -> bool:
    refs = (one.entry.ref for one in stored.checkpoint.state.parameters.values())
    return any(isinstance(ref, RawTensor) and ref.device.startswith("cuda") for ref in refs)


@rule("CK206", "scaler-state-absent", Severity.WARNING)
def scaler_state_absent(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """The training ran in float16 and the gradient scaler's state is not in the checkpoint.

    Why: the scale starts at 65536 again: steps are skipped until it has come down, and the runs differ from there on.
    Example: `fp16: true` in the saved arguments and no `scaler.pt`.
    Fix: save `scaler.state_dict()` and load it.
    Limits: told by float16 weights, or by arguments in the checkpoint that say fp16. A disabled scaler, which saves
    an empty dict, is one. bfloat16 needs none.
    """
    if stored.purpose is not Purpose.RESUME:
        return
    if why := why_nothing_is_missed(stored):
        yield why
        return
    if _has_scaler(stored):
        return
    reason = _half(stored)
    weighed = _weighed(stored, "CK206", Severity.WARNING)
    if reason and weighed is not None:
        yield Evidence(
            f"there is no state of a gradient scaler, though {reason}{weighed[1]}",
            Place(path=str(stored.checkpoint.raw.path)),
            {"reason": reason},
            "save scaler.state_dict() and load it",
            weighed[0],
        )


def _has_scaler(stored: Stored) -> bool:
    sections = stored.checkpoint.state.sections
    extra = (path.rpartition(".")[2] for path in sections.get("extra", {}))
    return bool(sections.get("scaler")) or any(last in _SCALE_KEYS for last in extra)


def _half(stored: Stored) -> str:
    """What says that the training ran in float16; "" where nothing does."""
    state = stored.checkpoint.state
    specs = [one.entry.spec for one in state.parameters.values() if one.entry.spec is not None]
    half = sum(one.numel for one in specs if one.dtype == "float16")
    if half and 2 * half >= sum(one.numel for one in specs):
        return "the weights are float16"
    for path, entry in state.sections.get("extra", {}).items():
        last = path.rpartition(".")[2]
        if last not in _PRECISION_KEYS or _describes(path, stored):
            continue
        said = str(entry.value).strip("'\"").lower()
        if said in _HALF or (last in _FLAGS and entry.value is True):
            return f"{path} says {said if said != 'true' else 'fp16'}"
    return ""


def _describes(path: str, stored: Stored) -> bool:
    """Whether a path belongs to what says how the model is built, as config.json: its dtype is that of the weights."""
    return any(path == one or path.startswith(f"{one}.") for one in stored.checkpoint.descriptions)


@rule("CK207", "data-position-absent", Severity.INFO)
def data_position_absent(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """Nothing in the checkpoint says where in the data the training stood.

    Why: a run that is stopped in the middle of an epoch sees the first batches again and others never.
    Example: `epoch` is saved, and no state of the sampler or loader.
    Fix: save the loader's own state (torchdata's StatefulDataLoader), or the number of batches seen, and skip these.
    Limits: harmless where checkpoints are made between epochs, or batches are drawn at random. Trainers that skip the
    batches their counters say were seen are silent (HF Trainer, Lightning).
    """
    if stored.purpose is not Purpose.RESUME:
        return
    if why := why_nothing_is_missed(stored):
        yield why
        return
    if stored.checkpoint.state.sections.get("data"):
        return
    counters = stored.checkpoint.state.sections.get("progress", {})
    weighed = _weighed(stored, "CK207", Severity.INFO)
    if weighed is None or any(_COUNTS_SAMPLES.search(path.lower()) for path in counters):
        return
    told = f"all that is recorded is {names(counters)}" if counters else "it has no counter and no state of a loader"
    yield Evidence(
        f"nothing says where in the data the training stood; {told}",
        Place(path=str(stored.checkpoint.raw.path)),
        {"counters": kept(counters)},
        "save the data loader's state, unless you stop between epochs only",
        weighed[0],
    )
