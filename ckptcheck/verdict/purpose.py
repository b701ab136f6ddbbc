"""What a checkpoint is judged for: as the user says, or by what is in it."""

from collections.abc import Iterable
from typing import Final

from ckptcheck.errors import UsageError
from ckptcheck.rules.rule import Rule
from ckptcheck.rules.stored import completeness, release
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.words import names
from ckptcheck.state.checkpoint import Checkpoint

AUTO: Final = "auto"
PURPOSES: Final = (AUTO, *Purpose)
"""What `--for` takes."""
_FOR_TRAINING: Final = {"schedule": "the state of a schedule", "scaler": "the state of a gradient scaler"}
_BESIDE_WEIGHTS: Final = {"data": "a position in the data"}
"""Sections that nobody keeps beside weights which others shall use; alone they are a part of a checkpoint."""
_RULES_OF: Final = {Purpose.RESUME: completeness.RULES, Purpose.RELEASE: release.RULES}


def check_purpose(asked: str) -> str:
    """The word itself. UsageError for one that is no purpose."""
    if asked not in PURPOSES:
        raise UsageError(f"--for {asked!r} is no purpose: use {', '.join(PURPOSES[:-1])} or {PURPOSES[-1]}")
    return asked


def purpose_of(asked: str, checkpoint: Checkpoint) -> tuple[Purpose | None, str]:
    """The purpose, and why in one sentence; None where there is nothing to go on from and nothing to release."""
    if asked != AUTO:
        return Purpose(asked), f"--for {asked}"
    state = checkpoint.state
    if state.optimizers:
        return Purpose.RESUME, "it holds optimizer state"
    if _was_stripped(checkpoint):
        return Purpose.RELEASE, "its optimizer was taken out; say --for resume if a training goes on from it"
    training = [said for section, said in _FOR_TRAINING.items() if section in state.sections]
    held = bool(state.parameters or state.buffers or checkpoint.models)
    if held:
        training += [said for section, said in _BESIDE_WEIGHTS.items() if state.sections.get(section)]
        training += ["the state of generators"] if state.rng else []
    if training:
        return Purpose.RESUME, f"it holds {training[0]}; say --for release if only its weights are wanted"
    if not (held or "ema" in state.sections):
        return None, "it holds neither weights nor optimizer state: its files alone are judged"
    counters = dict.fromkeys(path.partition(".")[0] for path in state.sections.get("progress", {}))
    what = f"weights, counters of its training ({names(counters)}) and no optimizer" if counters else "weights only"
    return Purpose.RELEASE, f"it holds {what}; say --for resume if a training goes on from it"


def applying(rules: Iterable[Rule[Stored]], purpose: Purpose) -> list[Rule[Stored]]:
    """The rules that have something to say of a checkpoint for this purpose."""
    others = {one for other, own in _RULES_OF.items() if other is not purpose for one in own}
    return [one for one in rules if one not in others]


def _was_stripped(checkpoint: Checkpoint) -> bool:
    """Whether the file has None in its optimizer's place, as stripped ones have."""
    from ckptcheck.conventions.labels import OPTIMIZER_KEYS

    root = checkpoint.raw.root
    return isinstance(root, dict) and any(key in root and root[key] is None for key in OPTIMIZER_KEYS)
