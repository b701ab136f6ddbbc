"""How far a training had come, in the file's own words."""

from collections.abc import Mapping
from typing import Any, Final

from ckptcheck.state.raw import Raw, RawTensor

STEP_KEYS: Final = (
    "global_step", "global_steps", "step", "iteration", "iter", "iter_num", "num_updates", "step_count",
    "current_step", "global_iter", "n_iter", "steps_run", "train_step",
)  # fmt: skip
"""Names of a counter of completed steps, the plainest first."""
OTHER_KEYS: Final = (
    "epoch", "current_epoch", "epoch_num", "epochs_run", "start_epoch", "global_samples", "samples_seen",
    "tokens_seen", "ntokens_seen", "skipped_steps", "num_timesteps", "total_batch_idx", "batch_idx",
    "consumed_samples", "consumed_train_samples", "train_step_count",
)  # fmt: skip
"""Names of other counters. Not "epochs" or "steps": these may be how many there shall be."""
PROGRESS_KEYS: Final = frozenset({*STEP_KEYS, *OTHER_KEYS})

_MAX_BYTES: Final = 8
_MOST: Final = 1 << 63


def is_counter(key: Any, value: Raw) -> bool:
    """Whether this is a counter of progress: a known name, and one number."""
    if not isinstance(key, str) or key.rpartition(".")[2].lower() not in PROGRESS_KEYS:
        return False
    if isinstance(value, RawTensor):
        return value.spec.numel == 1
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_of(value: Raw) -> int | None:
    """A counter as an integer; the few bytes of a one-element integer tensor are read.

    None for anything else, and for a number that 64 bits cannot hold.
    """
    if isinstance(value, RawTensor):
        spec = value.spec
        if spec.numel != 1 or spec.nbytes > _MAX_BYTES or not spec.dtype.startswith(("int", "uint")):
            return None
        return int.from_bytes(value.fetch(), "little", signed=spec.dtype.startswith("int"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    is_whole = isinstance(value, int) or value.is_integer()
    return int(value) if is_whole and abs(value) < _MOST else None


def step_of(progress: Mapping[str, Raw]) -> tuple[int | None, str]:
    """Completed steps, and in words where that stands; None and "" where no counter counts steps."""
    by_name = {path.rpartition(".")[2].lower(): path for path in reversed(list(progress))}
    for key in STEP_KEYS:
        if key in by_name and (step := number_of(progress[by_name[key]])) is not None:
            return step, f"{by_name[key]} {step}"
    return None, ""
