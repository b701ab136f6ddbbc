"""The names in a store's folder, and the history of its format."""

import re
import secrets
from typing import Final

FORMAT: Final = "ckptcheck-training-state"
VERSION: Final = 1
"""History. 1: the first; one manifest, a payload a role, values in the tagged encoding."""

MANIFEST: Final = "training_state.json"

MODEL: Final = "model"
OPTIMIZER: Final = "optimizer"
GRADIENTS: Final = "gradients"
SECTIONS: Final = "sections"
ROLES: Final = (MODEL, OPTIMIZER, GRADIENTS, SECTIONS)
"""What a payload holds: parameters and buffers, optimizer state, gradients, the tensors of everything else."""

_PAYLOAD = re.compile(rf"({'|'.join(ROLES)})-[0-9a-f]{{32}}\.safetensors")
_TEMPORARY = re.compile(rf"{re.escape(MANIFEST)}\.[0-9a-f]{{32}}\.tmp")


def new_payload_name(role: str) -> str:
    """A payload name that no save has used before; drawn from the system, not from a seeded generator."""
    return f"{role}-{secrets.token_hex(16)}.safetensors"


def new_temporary_name() -> str:
    """A name for a manifest that is being written."""
    return f"{MANIFEST}.{secrets.token_hex(16)}.tmp"


def is_payload_name(name: str) -> bool:
    """Whether this is a plain file name of the form that `new_payload_name` makes."""
    return _PAYLOAD.fullmatch(name) is not None


def is_ours(name: str) -> bool:
    """Whether a save made a file of this name, so that a later save may delete it."""
    return is_payload_name(name) or _TEMPORARY.fullmatch(name) is not None
