"""Every byte of a checkpoint, read once: held against its checksums, and surveyed element by element."""

from ckptcheck.comparison.survey import Survey
from ckptcheck.progress import Progress
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTree
from ckptcheck.verdict.members import Verified, verify_members


def read_through(
    raw: RawTree, checkpoint: Checkpoint | None, progress: Progress | None = None
) -> tuple[Verified, Survey | None]:
    """What the checksums say, and what the tensors hold; None where nobody can tell what is a tensor.

    What the survey cannot read is listed in it and raises nothing.
    """
    if checkpoint is None:
        return verify_members(raw, progress), None
    from ckptcheck.comparison.survey_plan import plan_of
    from ckptcheck.comparison.surveying import Surveyor

    surveyor = Surveyor(plan_of(checkpoint.state))
    verified = verify_members(raw, progress, surveyor)
    return verified, surveyor.finish(str(raw.path), progress)
