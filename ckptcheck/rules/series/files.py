"""CK1: checkpoints beside the chosen one that cannot be read, or whose save did not end."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.files import incomplete_save, shard_set_inconsistent, unreadable_file
from ckptcheck.rules.rule import Evidence, Unjudged, also
from ckptcheck.rules.series.series import Member, Series
from ckptcheck.rules.words import kept
from ckptcheck.state.raw import Flaw


def _damaged(series: Series, flaw: Flaw, fix: str) -> Iterator[Evidence]:
    """One finding for each damaged checkpoint that is not the chosen one."""
    for one in series.members:
        found = [defect for defect in one.defects if defect.flaw == flaw]
        if found and not one.chosen:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            newest = _is_newest(one, series)
            yield Evidence(
                f"{one.name}, {_NEWEST if newest else 'another checkpoint of this run'}: {found[0].said}{more}",
                Place(path=one.name),
                {"checkpoint": one.name, "defects": kept(defect.said for defect in found), "count": len(found)},
                fix,
                Severity.ERROR if newest else None,
            )


def _is_newest(one: Member, series: Series) -> bool:
    """Whether a resume that takes the newest takes this one, which was passed over as it is not whole."""
    return one.name == next(iter(series.passed_over), None)


_NEWEST: Final = "the newest checkpoint of this run, which a resume from the newest takes"


@also(unreadable_file, severity=Severity.WARNING)
def unreadable_checkpoint(series: Series) -> Iterator[Evidence | Unjudged]:
    """Another checkpoint of the run cannot be read."""
    yield from _damaged(series, Flaw.UNREADABLE, "fetch it again, or delete it before something resumes from it")
    for one in series.members:
        if one.refused and one.name not in series.passed_over:
            yield Unjudged(f"{one.name}, another checkpoint of this run, was not read: {one.refused}")
    if series.left_out:
        many = f"{series.left_out} older checkpoints of this run were"
        yield Unjudged(f"{many if series.left_out > 1 else '1 older checkpoint of this run was'} not read")


@also(incomplete_save, severity=Severity.WARNING)
def incomplete_checkpoint(series: Series) -> Iterator[Evidence]:
    """The save of another checkpoint of the run did not end."""
    fix = "delete it before something resumes from it"
    yield from _damaged(series, Flaw.INCOMPLETE, fix)
    for one in series.members:
        why = series.passed_over.get(one.name)
        if why and not one.defects:
            newest = _is_newest(one, series)
            yield Evidence(
                f"{one.name}, {_NEWEST if newest else 'another checkpoint of this run'}: {why}",
                Place(path=one.name),
                {"checkpoint": one.name, "defects": [why], "count": 1},
                fix,
                Severity.ERROR if newest else None,
            )


@also(shard_set_inconsistent, severity=Severity.WARNING)
def inconsistent_shards(series: Series) -> Iterator[Evidence]:
    """The shards of another checkpoint of the run do not fit each other."""
    yield from _damaged(series, Flaw.SHARD_SET, "fetch all shards of one save, or delete it")


RULES: Final = (unreadable_checkpoint, incomplete_checkpoint, inconsistent_shards)
