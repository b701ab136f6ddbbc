"""What lies in a `Foreign` that stands for an object of torch: its attributes, and numbers that are sizes."""

from typing import Final

from ckptcheck.state.raw import Foreign, Raw

MAX_SIZE: Final = 1 << 62
"""Sizes and offsets beyond it are no sizes."""


def attributes(value: Raw) -> dict[str, Raw]:
    """The attributes of a stubbed object; empty where it has none. Of `(None, {...})`, a slotted state, the dict."""
    state = value.state if isinstance(value, Foreign) else None
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        state = state[1]
    return state if isinstance(state, dict) else {}


def sizes(value: Raw) -> tuple[int, ...] | None:
    """A `torch.Size`, tuple or list of numbers that can be sizes; None for anything else."""
    if isinstance(value, list | tuple) and all(type(one) is int and 0 <= one < MAX_SIZE for one in value):
        return tuple(value)
    return None
