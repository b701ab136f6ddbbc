"""What a result says of two checkpoints beside their differences: the sides, the sections, the tolerance."""

from ckptcheck.comparison.checkpoint_diff import DiffOptions, OptimizerPair, SectionSummary
from ckptcheck.comparison.outcomes import COMPUTED
from ckptcheck.finding import Json
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.verdict.inspection import layout_of


def side_part(checkpoint: Checkpoint, section: str) -> Json:
    """Where a checkpoint lies, who wrote it, and which section of it was taken for its model."""
    return {
        "path": str(checkpoint.raw.path),
        "layout": layout_of(checkpoint),
        "bytes": checkpoint.raw.nbytes,
        "step": checkpoint.state.step,
        "section": section or None,
    }


def tolerance_part(options: DiffOptions) -> Json:
    """What was asked for, and of which roles; None for nothing."""
    if not (options.rtol or options.atol or options.tolerances):
        return None
    roles: dict[str, Json] = {
        role: {"rtol": rtol, "atol": atol} for role, (rtol, atol) in sorted(options.tolerances.items())
    }
    applies: list[Json] = [*COMPUTED] if options.rtol or options.atol else []
    return {"rtol": options.rtol, "atol": options.atol, "applies_to": applies, "roles": roles}


def optimizer_part(one: OptimizerPair) -> Json:
    """Its number in rows, where it stands and what it is called on each side; null on a side that lacks it."""
    return {
        "optimizer": one.optimizer,
        "left": one.left,
        "right": one.right,
        "left_label": one.left_label or None,
        "right_label": one.right_label or None,
        "paired_by": one.paired_by or None,
    }


def section_part(one: SectionSummary) -> Json:
    """What a section holds, and how much of it differs."""
    return {
        "section": one.section,
        "tensors": one.tensors,
        "values": one.values,
        "bytes": one.nbytes,
        "differing": one.differing,
        "added": one.added,
        "removed": one.removed,
        "tolerated": one.tolerated,
    }
