"""CK6, as far as one checkpoint tells: steps that are counted otherwise, and gradients that wait for their update."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, also
from ckptcheck.rules.runs.fidelity import accumulated_gradients_lost
from ckptcheck.rules.runs.trajectory import steps_missing_or_repeated
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Entry

WITHIN: Final = frozenset({"micro_step", "micro_steps", "microstep", "accum_step", "accumulation_step"})
"""Counters of micro-batches."""
WINDOWS: Final = frozenset(
    {
        "gradient_accumulation_steps", "grad_accum_steps", "accumulation_steps", "accum_steps", "grad_accum",
        "accumulate_grad_batches",
    }
)  # fmt: skip
"""How many micro-batches make an update."""
_TRAINER_FOLDER: Final = re.compile(r"checkpoint-(\d{1,18})")


@also(accumulated_gradients_lost, severity=Severity.WARNING)
def saved_within_a_window(stored: Stored) -> Iterator[Evidence]:
    """The checkpoint was taken within an accumulation window, and the gradients up to there are not in it."""
    checkpoint = stored.checkpoint
    if stored.purpose is not Purpose.RESUME or _holds_gradients(checkpoint):
        return
    yield from _plain_window(checkpoint)
    if checkpoint.convention == "lightning":
        yield from _lightning_window(checkpoint)


def _holds_gradients(checkpoint: Checkpoint) -> bool:
    sections = checkpoint.state.sections.values()
    beside = any("grad" in path.lower().split(".")[0] and one.spec is not None and one.spec.shape
                 for entries in sections for path, one in entries.items())  # fmt: skip
    return beside or any(one.grad is not None for one in checkpoint.state.parameters.values())


def _plain_window(checkpoint: Checkpoint) -> Iterator[Evidence]:
    found: dict[str, tuple[str, int]] = {}
    for section in ("progress", "extra"):
        for path, entry in checkpoint.state.sections.get(section, {}).items():
            word = re.split(r"[.\[]", path)[-1].lower()
            kind = "within" if word in WITHIN else "window" if word in WINDOWS else ""
            value = finite_number(entry) if kind and (entry.spec is None or entry.spec.numel == 1) else None
            if value is not None and value == int(value):
                found.setdefault(kind, (path, int(value)))
    if len(found) == 2 and found["window"][1] > 1 and found["within"][1] % found["window"][1]:
        (path, within), (_, window) = found["within"], found["window"]
        yield Evidence(
            f"{path} is {within}, and {window} micro-batches make an update: the gradients of {within % window} "
            "are in no part of the file, and the next update misses them",
            Place(key=path),
            {"micro_step": within, "window": window, "lost": within % window},
            "save at the end of an accumulation window, or save the gradients too",
        )


def _lightning_window(checkpoint: Checkpoint) -> Iterator[Evidence]:
    """Batches and updates of the epoch so far, of automatic optimization with one optimizer."""
    entries = checkpoint.state.sections.get("progress", {})
    loop = "loops.fit_loop.epoch_loop."
    batches = _count(entries, f"{loop}batch_progress.current.completed")
    optimizers = f"{loop}automatic_optimization.optim_progress.optimizer."
    updates = _count(entries, f"{optimizers}step.current.completed")
    last = entries.get(f"{loop}batch_progress.is_last_batch")
    if batches is None or updates is None or len(checkpoint.state.optimizers) != 1 or last is None or last.value:
        return
    lost = _surely_waiting(batches, updates)
    if lost:
        yield Evidence(
            f"{batches} batches of the epoch are done and {updates} updates made: the gradients of the last batches "
            "wait for their update and are in no part of the file",
            Place(key=f"{loop}batch_progress.current.completed"),
            {"batches": batches, "updates": updates},
            "save at the end of an accumulation window",
        )


def _surely_waiting(batches: int, updates: int) -> bool:
    """Whether no window size makes these batches end with an update."""
    window = batches // updates if updates else 0
    return window > 1 and batches // window == updates and batches % updates != 0


def _count(entries: Mapping[str, Entry], path: str) -> int | None:
    value = finite_number(entries.get(path))
    return int(value) if value is not None else None


@also(steps_missing_or_repeated, severity=Severity.WARNING)
def steps_are_counted(stored: Stored) -> Iterator[Evidence]:
    """The recorded step is not that of the folder's name, or the optimizer made more updates than there were steps."""
    checkpoint = stored.checkpoint
    step = checkpoint.state.step
    if step is None or stored.purpose is not Purpose.RESUME:
        return
    named = _TRAINER_FOLDER.fullmatch(checkpoint.raw.path.name)
    if checkpoint.convention == "hf-trainer" and named and int(named[1]) != step:
        yield Evidence(
            f"the folder is {named[0]} and it records {checkpoint.recorded_step}: the resume goes on from the latter",
            Place(path=checkpoint.raw.path.name),
            {"recorded": step, "named": int(named[1])},
            "look at which save the files are of; the Trainer names the folder by the step",
        )
    yield from _more_updates(checkpoint, step)


def _more_updates(checkpoint: Checkpoint, step: int) -> Iterator[Evidence]:
    sure = checkpoint.convention in ("hf-trainer", "lightning") or _is_global(checkpoint.recorded_step)
    if len(checkpoint.state.optimizers) != 1 or not sure:
        return  # the counters are not read: each may lie in a file of its own
    counted = {
        name: value
        for name, kept in checkpoint.state.optimizers[0].state.items()
        if (value := finite_number(kept.get("step"))) is not None
    }
    name = max(counted, key=lambda one: counted[one], default="")
    if name and counted[name] > step + 1:
        yield Evidence(
            f"the optimizer made {counted[name]:g} updates of {name}, and the file records {checkpoint.recorded_step}: "
            "a resume does steps again",
            Place(parameter=name, key="step", optimizer=0),
            {"updates": counted[name], "recorded": step},
            "save the number of completed steps with the optimizer",
            None if checkpoint.convention in ("hf-trainer", "lightning") or step == 0 else Severity.INFO,
        )


def _is_global(recorded: str) -> bool:
    """Whether the word for the step is one for all steps of a training, and not one that counts within an epoch."""
    return recorded.partition(" ")[0].rpartition(".")[2].lower() in ("global_step", "global_steps", "num_updates")


RULES: Final = (saved_within_a_window, steps_are_counted)
