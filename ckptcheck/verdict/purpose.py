"""What a checkpoint is judged for: as the user says, or by what is in it."""

from typing import Final

from ckptcheck.errors import UsageError
from ckptcheck.rules.stored.stored import Purpose
from ckptcheck.state.checkpoint import Checkpoint

AUTO: Final = "auto"
PURPOSES: Final = (AUTO, *Purpose)
"""What `--for` takes."""


def check_purpose(asked: str) -> str:
    """The word itself. UsageError for one that is no purpose."""
    if asked not in PURPOSES:
        raise UsageError(f"--for {asked!r} is no purpose: use {', '.join(PURPOSES[:-1])} or {PURPOSES[-1]}")
    return asked


def purpose_of(asked: str, checkpoint: Checkpoint) -> tuple[Purpose, str]:
    """The purpose, and why in one sentence."""
    if asked != AUTO:
        return Purpose(asked), f"--for {asked}"
    if checkpoint.state.optimizers:
        return Purpose.RESUME, "it holds optimizer state"
    return Purpose.RELEASE, "it holds weights only: judged as a release; say --for resume if a training goes on from it"
