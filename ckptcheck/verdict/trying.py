"""A dry-run of the load: a checkpoint held against a target, which is built and loaded in a process of its own."""

from ckptcheck.progress import Progress
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.verdict.check_question import CheckQuestion, Said


def try_load(checkpoint: Checkpoint, target: str, question: CheckQuestion, progress: Progress | None = None) -> Said:
    """What a load of this checkpoint into `target` would change, and what it would get wrong.

    Raises TargetError for a target that cannot be found or built.
    """
    return Said()
