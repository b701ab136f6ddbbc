"""What a checkpoint has of what a resume needs, and what is not in it: facts, no judgement."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ckptcheck.optimizers.guessing import keeps_one_state
from ckptcheck.state.training_state import Optimizer, TrainingState
from ckptcheck.verdict.contents import Item

_GENERATORS: Final = ("torch", "numpy", "python")
_CALLED: Final = {
    "scheduler": "scheduler state",
    "scaler": "gradient scaler state",
    "ema": "averaged weights (EMA)",
    "data": "position in the data",
    "progress": "step or epoch",
}
_NEEDED: Final = ("scheduler", "data", "progress")
"""Sections that every training can be expected to save; a scaler or an average it need not have."""


def held(state: TrainingState, sections: Mapping[str, Sequence[Item]]) -> list[str]:
    """What is there, in words, in the order of reports."""
    said = []
    if state.parameters or state.buffers:
        said.append(f"{_count(len(state.parameters), 'parameter')}, {_count(len(state.buffers), 'buffer')}")
    for place, optimizer in enumerate(state.optimizers):
        said.append(f"{_state_of(optimizer)} in optimizer {place}")
    said += [words for section, words in _CALLED.items() if sections.get(section)]
    if state.rng:
        said.append(f"generators {', '.join(state.rng)}")
    return said


def _state_of(optimizer: Optimizer) -> str:
    """How many of the groups' members have state, and how much there is beside."""
    members = {member for group in optimizer.groups for member in group.members} or set(optimizer.state)
    kept = {name for name, entries in optimizer.state.items() if entries}
    if len(kept) == 1 < len(members) and keeps_one_state(optimizer):
        return f"one state for {_count(len(members), 'parameter')}"
    stray = f" and of {len(kept - members)} in no group" if kept - members else ""
    return f"state of {len(kept & members)} of {_count(len(members), 'parameter')}{stray}"


def lacking(state: TrainingState, sections: Mapping[str, Sequence[Item]]) -> list[str]:
    """What is not in the file, in words; a scaler is missed only where the weights are float16."""
    said = []
    if not state.parameters:
        said.append("weights")
    if not state.optimizers:
        said.append("optimizer state")
    said += [_CALLED[section] for section in _NEEDED if not sections.get(section)]
    if not sections.get("scaler") and any(_is_half(item) for item in sections.get("model", ())):
        said.append(f"{_CALLED['scaler']} (weights are float16)")
    if not state.rng:
        said.append("generator states")
    elif missing := [one for one in _GENERATORS if not any(_names(one, name) for name in state.rng)]:
        said.append(f"generator state of {', '.join(missing)}")
    return said


def _is_half(item: Item) -> bool:
    return item.spec is not None and item.spec.dtype == "float16"


def _names(generator: str, name: str) -> bool:
    """Whether a generator's name, which may have a rank in it, is of this kind."""
    return re.search(rf"(?<![a-z]){generator}(?![a-z])", name) is not None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
