"""What is known of the writers of checkpoints: what each leaves out by design, and what its loader makes of a gap."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckptcheck.finding import Severity
from ckptcheck.state.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Known:
    """What a writer makes a finding of, in place of the rule's own severity; None where it is none at all.

    `said` is one sentence more of the message.
    """

    severity: Severity | None
    said: str = ""


_BY_DESIGN: Final = Known(None)


def _never(name: str) -> Known:
    return Known(Severity.WARNING, f"{name} saves none of its own accord")


_TRAINER: Final = Known(
    Severity.ERROR, "Trainer loads optimizer.pt and scheduler.pt only where both are there, so it loads neither"
)

_FAIRSEQ: Final = Known(
    Severity.ERROR,
    "without last_optimizer_state fairseq loads no schedule state and no num_updates either, and says nothing: both "
    "begin anew, while the place in the data is restored",
)
_FAIRSEQ_SCHEDULE: Final = Known(
    Severity.ERROR,
    "fairseq takes lr_scheduler_state from the last entry of optimizer_history with the optimizer, and raises KeyError",
)

WRITERS: Final[Mapping[str, Mapping[str, Known]]] = {
    "hf-trainer": {"CK201": _TRAINER, "CK204": _TRAINER, "CK207": _BY_DESIGN},
    "lightning": {"CK205": _never("Lightning"), "CK207": _BY_DESIGN},
    "fabric": {"CK205": _never("Fabric")},
    "deepspeed": {"CK205": _never("DeepSpeed")},
    "nanogpt": {"CK204": _BY_DESIGN, "CK205": _never("nanoGPT")},
    "timm": {"CK204": _BY_DESIGN, "CK205": _never("timm")},
    "ultralytics": {"CK204": _BY_DESIGN, "CK205": _never("ultralytics"), "CK207": _BY_DESIGN},
    "open-clip": {"CK204": _BY_DESIGN, "CK205": _never("open_clip")},
    "torchtune": {"CK204": _BY_DESIGN, "CK205": _never("torchtune")},
    "fairseq": {"CK201": _FAIRSEQ, "CK204": _FAIRSEQ_SCHEDULE, "CK205": _never("fairseq")},
    "detectron2": {"CK205": _never("detectron2")},
    "mmengine": {"CK205": _never("mmengine")},
    "stable-baselines3": {"CK204": _BY_DESIGN, "CK205": _never("stable-baselines3"), "CK207": _BY_DESIGN},
}
"""Convention to code to what is known.

nanoGPT, timm, ultralytics, open_clip and torchtune compute the learning rate from the step or the epoch. Trainer and
Lightning skip the batches that their counters say were seen; ultralytics saves between epochs; reinforcement learning
has no data set.
"""

LEAVES_FROZEN_OUT: Final = frozenset({"hf-trainer", "deepspeed"})
"""Writers whose param groups list trainable parameters only."""


NEVER_TRAINED: Final[Mapping[str, re.Pattern[str]]] = {"ultralytics": re.compile(r"(?:^|\.)dfl\.conv\.weight$")}
"""Convention to parameters that it lists in its groups and freezes always."""

_EPOCH: Final = re.compile(r"epoch (?P<epoch>\d+)(?P<from_0>, from 0)?")


def epochs_made(checkpoint: Checkpoint) -> str:
    """What says that an epoch of steps was made, in words, where the writer records epochs and no step; "" for none.

    timm counts completed epochs from 0 in version 2 of its files, else it and open_clip save how many there were.
    """
    found = _EPOCH.fullmatch(checkpoint.recorded_step) if checkpoint.convention in ("timm", "open-clip") else None
    made = int(found["epoch"]) + (found["from_0"] is not None) if found else 0
    return f"{made} epoch{'' if made == 1 else 's'} ({checkpoint.recorded_step})" if made else ""


def known(convention: str, code: str) -> Known | None:
    """What is known of a code for this writer, None for nothing."""
    return WRITERS.get(convention, {}).get(code)
