"""CK3: weights that a checkpoint does not hold."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place
from ckptcheck.rules.rule import Evidence, Rule, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored.stored import Purpose, Stored


@also(runs.weights_not_loaded)
def weights_absent(stored: Stored) -> Iterator[Evidence]:
    """A checkpoint that must serve by itself holds no weights; a part of one may be looked at alone."""
    checkpoint = stored.checkpoint
    held = checkpoint.state.parameters or checkpoint.state.buffers or checkpoint.models
    if stored.asked and not held and not checkpoint.raw.defects:
        goes_on = stored.purpose is Purpose.RESUME
        yield Evidence(
            "there are no weights in it: "
            f"{'a training that resumes starts with' if goes_on else 'who loads it gets'} what the constructor makes",
            Place(),
            {"parameters": 0},
            "save model.state_dict() with the rest, or name the whole checkpoint" if goes_on
            else "name the file that holds the weights",
        )  # fmt: skip


RULES: Final[tuple[Rule[Stored], ...]] = (weights_absent,)
