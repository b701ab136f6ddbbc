"""CK1: checkpoints beside the chosen one that cannot be read, or whose save did not end."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.files import incomplete_save, shard_set_inconsistent, unreadable_file
from ckptcheck.rules.rule import Evidence, Unjudged, also
from ckptcheck.rules.series.series import Series
from ckptcheck.rules.words import kept
from ckptcheck.state.raw import Flaw


def _damaged(series: Series, flaw: Flaw, fix: str) -> Iterator[Evidence]:
    """One finding for each damaged checkpoint that is not the chosen one."""
    for one in series.members:
        found = [defect for defect in one.defects if defect.flaw == flaw]
        if found and not one.chosen:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            yield Evidence(
                f"{one.name}, another checkpoint of this run: {found[0].said}{more}",
                Place(path=one.name),
                {"checkpoint": one.name, "defects": kept(defect.said for defect in found), "count": len(found)},
                fix,
            )


@also(unreadable_file, severity=Severity.WARNING)
def unreadable_checkpoint(series: Series) -> Iterator[Evidence | Unjudged]:
    """Another checkpoint of the run cannot be read."""
    yield from _damaged(series, Flaw.UNREADABLE, "fetch it again, or delete it before something resumes from it")
    for one in series.members:
        if one.refused:
            yield Unjudged(f"{one.name}, another checkpoint of this run, was not read: {one.refused}")
    if series.left_out:
        yield Unjudged(f"{series.left_out} older checkpoints of this run were not read")


@also(incomplete_save, severity=Severity.WARNING)
def incomplete_checkpoint(series: Series) -> Iterator[Evidence]:
    """The save of another checkpoint of the run did not end."""
    yield from _damaged(series, Flaw.INCOMPLETE, "delete it before something resumes from it")


@also(shard_set_inconsistent, severity=Severity.WARNING)
def inconsistent_shards(series: Series) -> Iterator[Evidence]:
    """The shards of another checkpoint of the run do not fit each other."""
    yield from _damaged(series, Flaw.SHARD_SET, "fetch all shards of one save, or delete it")


RULES: Final = (unreadable_checkpoint, incomplete_checkpoint, inconsistent_shards)
