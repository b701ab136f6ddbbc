"""Files that are no training checkpoints, and the sentence that says what they are instead."""

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.reader import Head


def refusal_of(head: Head) -> CheckpointError:
    """The error for a file that no reader claims."""
    return CheckpointError(f"{head.source}: is no checkpoint of a kind that is known here")
