"""What of a resume experiment a page draws: stages, gradient presence and group membership, beside the divergence."""

from collections.abc import Mapping, Sequence

from ckptcheck.finding import Json
from ckptcheck.verdict.membership import membership
from ckptcheck.verdict.presence import presence
from ckptcheck.verdict.stage_strip import Sight, stage_strip


def pictures(sights: Sequence[Sight], numeric_floor: bool = False) -> Mapping[str, Json]:
    """The parts `stages`, `gradients` and `membership` of the resumed runs of an experiment."""
    loads = [(one.run, one.case.load) for one in sights if one.case.load is not None]
    return {
        "stages": [stage_strip(one, numeric_floor) for one in sights],
        "gradients": [part for one in sights if (part := presence(one)) is not None],
        "membership": [part for run, load in loads for part in membership(load.left, load.right, run)],
    }
