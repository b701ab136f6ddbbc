"""Experiment trackers put offline, so that a test run uploads nothing: one visible table.

Not here: TensorBoard, Aim, Trackio and MLflow write to the local disk unless the user's own variables name a server,
and those stay. The Hugging Face hub has no switch that stops uploads alone, as `HF_HUB_OFFLINE` stops downloads too:
a command that asks to push is refused instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckptcheck.errors import UsageError

_FALSE: Final = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Tracker:
    """A tracker's switch; `source` is where its makers document it."""

    name: str
    variable: str
    value: str
    source: str


TRACKERS: Final = (
    Tracker("Weights & Biases", "WANDB_MODE", "offline", "docs.wandb.ai/models/support/run_wandb_offline"),
    Tracker("Comet", "COMET_START_ONLINE", "0", "huggingface.co/docs/transformers: CometCallback.setup"),
    Tracker("Neptune", "NEPTUNE_MODE", "offline", "docs.neptune.ai/environment_variables"),
    Tracker("ClearML", "CLEARML_OFFLINE_MODE", "1", "clear.ml/docs: guides/set_offline"),
    Tracker("SwanLab", "SWANLAB_MODE", "offline", "docs.swanlab.cn/en/api/cli-swanlab-offline.html"),
    Tracker("DVC Studio", "DVC_STUDIO_OFFLINE", "true", "dvc.org/doc/user-guide/env"),
)  # fmt: skip


def offline(present: Mapping[str, str]) -> dict[str, str]:
    """What to set beside the `present` variables; those that are set there already stay as they are."""
    return {one.variable: one.value for one in TRACKERS if one.variable not in present}


def check_pushes_nothing(words: tuple[str, ...], option: str) -> None:
    """UsageError where a command asks to push to the Hugging Face hub."""
    for place, word in enumerate(words):
        name, equals, value = word.lstrip("-+").replace("-", "_").partition("=")
        following = words[place + 1] if place + 1 < len(words) else ""
        told = value if equals else following
        if name.rpartition(".")[2] == "push_to_hub" and told.lower() not in _FALSE:
            raise UsageError(f"{option} has {word}, which would upload test runs: leave it out, or allow it: --online")
