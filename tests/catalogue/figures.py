"""The figures of a run of the catalogue, by family."""

from collections.abc import Iterable, Sequence
from typing import Final

from tests.catalogue.fault import CLEAN, Score

HEAD: Final = ("family", "cells", "found", "cause right", "unknown", "wrong", "step", "tensor", "told")


def table_of(scores: Sequence[Score]) -> str:
    """One line a family, then all faults together, then the clean resumes and their false alarms."""
    planted = [one for one in scores if one.family != CLEAN]
    families = sorted({one.family for one in planted})
    rows = [_row(family, [one for one in planted if one.family == family]) for family in families]
    rows += [_row("all", planted)] if planted else []
    lines = ["  ".join(f"{cell:>11}" if place else f"{cell:24}" for place, cell in enumerate(row))
             for row in (HEAD, *rows)] if rows else []  # fmt: skip
    clean = [one for one in scores if one.family == CLEAN]
    if clean:
        resumes = sum(one.resumes for one in clean)
        alarms = sum(not one.detected for one in clean)
        lines.append(f"clean: {resumes} resumes in {len(clean)} trainings, {alarms} with a false alarm")
    return "\n".join(lines)


def _row(name: str, scores: Sequence[Score]) -> tuple[str, ...]:
    return (
        name,
        str(len(scores)),
        _share(one.detected for one in scores),
        *(_share(one.cause == kind for one in scores) for kind in ("right", "unknown", "wrong")),
        _share(one.step for one in scores),
        _share(one.tensor for one in scores),
        _share(one.told for one in scores),
    )


def _share(flags: Iterable[bool]) -> str:
    listed = list(flags)
    return f"{100 * sum(listed) / len(listed):.1f} %"
