"""A second resume in a row: which run its steps are held against, and how that is told."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ckptcheck.experiment.plan import REFERENCE, Resumed
from ckptcheck.finding import Finding, Json
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import Judgement

DIVERGED: Final = "the run it was resumed from had already diverged"


def held_against(run: Resumed, cases: Mapping[str, Case]) -> str:
    """The name of the run that a resumed one should reproduce, given the cases of the runs before it, by name.

    That is the reference. Where the run that it was resumed from had left its course before it saved, nothing that was
    saved there leads back to it: then it is that run, as it went on itself.
    """
    source = cases.get(run.source)
    return run.source if source is not None and _has_diverged(source, run.step) else REFERENCE


def _has_diverged(case: Case, saved_after: int) -> bool:
    """Whether a run differs by the end of a step; the generators are sampled when the next one begins."""
    first = case.first
    if first is None:
        return False
    return first.step <= saved_after or (first.step == saved_after + 1 and first.stage == "rng")


def told_of(judgement: Judgement, case: Case, against: str) -> Judgement:
    """The judgement, with the runs in each of its findings, where the steps were not held against the reference."""
    if against == REFERENCE:
        return judgement
    return replace(judgement, findings=tuple(_told(one, case.run, against) for one in judgement.findings))


def _told(one: Finding, run: str, against: str) -> Finding:
    if one.evidence.get("without_effect"):
        return one
    said = one.message.replace("the uninterrupted run", against).replace("the uninterrupted one", against)
    message = f"{said} ({run}, held against {against}: {DIVERGED})"
    return replace(one, message=message, evidence={**one.evidence, "run": run, "against": against})


def in_a_row_part(resumed: Sequence[Resumed], against: Mapping[str, str]) -> list[Json]:
    """One row for each run that was resumed from a resumed one: what it was held against, and why; "" for no reason."""
    return [
        {"run": one.name, "source": one.source, "against": against[one.name],
         "why": "" if against[one.name] == REFERENCE else DIVERGED}
        for one in resumed if one.source != REFERENCE
    ]  # fmt: skip
