"""Whether a checkpoint is one of which something can be missed."""

from ckptcheck.rules.rule import Unjudged
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.rules.words import names
from ckptcheck.state.raw import Flaw


def why_nothing_is_missed(stored: Stored) -> Unjudged | None:
    """Why a part that is not there may lie elsewhere; None where what lies here is all there is."""
    state, raw = stored.checkpoint.state, stored.checkpoint.raw
    unread = [one.file or str(raw.path) for one in raw.defects if one.flaw is Flaw.UNREADABLE]
    if unread:
        return Unjudged(f"{names(unread)} cannot be read, and nobody knows what is in it")
    if not (state.parameters or state.buffers or stored.asked):
        return Unjudged("it holds no weights: it is a part of a checkpoint")
    return None
