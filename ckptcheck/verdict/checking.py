"""One checkpoint, verified and judged: its files, and what a resume or a release makes of it."""

from collections.abc import Sequence
from pathlib import Path

from ckptcheck.comparison.survey import Survey
from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.finding import FAIL_ON, Compared, Finding, Json, NotJudged, Result, Verdict
from ckptcheck.progress import Progress
from ckptcheck.rules.stored.stored import Purpose
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Defect, Flaw, RawTree
from ckptcheck.verdict.check_question import CheckQuestion, Said
from ckptcheck.verdict.files_part import files_part
from ckptcheck.verdict.inspection import globals_part
from ckptcheck.verdict.members import Verified
from ckptcheck.verdict.purpose import AUTO, check_purpose, purpose_of


def check_checkpoint(path: Path, question: CheckQuestion, progress: Progress | None = None) -> Result:
    """Verify every checksum in the checkpoint at `path`, and judge its files and its content.

    A damaged checkpoint is a finding. Raises CheckpointError where `path` is absent or no checkpoint that we read,
    DamagedCheckpointError where a file changes meanwhile, and UsageError and TargetError for a question that cannot
    be asked.
    """
    check_purpose(question.purpose)
    from ckptcheck.readers.reading import read_raw
    from ckptcheck.verdict.reading_through import read_through
    from ckptcheck.verdict.series import judge_series
    from ckptcheck.verdict.trying import try_load

    raw, trouble = None, None
    try:
        raw = read_raw(path, strict=False)
    except DamagedCheckpointError as error:
        trouble = error
    checkpoint, defects = _explained(raw) if raw is not None else (None, ())
    verified, survey = read_through(raw, checkpoint, progress) if raw is not None else (Verified(), None)
    said = [_files(raw, trouble, (*verified.defects, *defects), question)]
    if checkpoint is not None:
        said.append(_content(checkpoint, survey, question))
        if question.target is not None:
            said.append(try_load(checkpoint, question.target, question, progress))
    if raw is not None:
        said.append(judge_series(path, raw, question, progress))
        raw.check_unchanged()
    findings = [finding for one in said for finding in one.findings]
    not_judged = [lacking for one in said for lacking in one.not_judged]
    return Result(
        command="check",
        verdict=_verdict(raw, findings, not_judged, question),
        compared=Compared(bytes=verified.nbytes),
        findings=tuple(findings),
        not_judged=tuple(not_judged),
        parts={
            "path": str(raw.path) if raw is not None else str(path),
            "chosen": _chosen(raw) if raw is not None else None,
            "layout": _layout(raw, checkpoint),
            "files": files_part(raw) if raw is not None else [],
            "globals": globals_part(raw) if raw is not None else [],
            **{name: part for one in said for name, part in one.parts.items()},
        },
    )


def _files(
    raw: RawTree | None, trouble: DamagedCheckpointError | None, defects: Sequence[Defect], question: CheckQuestion
) -> Said:
    from ckptcheck.rules.files import judge_files

    findings, not_judged = judge_files(raw, trouble, defects, question.select, question.ignore)
    return Said([*findings], [*not_judged])


def _content(checkpoint: Checkpoint, survey: Survey | None, question: CheckQuestion) -> Said:
    """What the rules over one checkpoint say."""
    from ckptcheck.optimizers.guessing import guess
    from ckptcheck.rules.rule import chosen, judged
    from ckptcheck.rules.stored.stored import WHY_NOT, Stored
    from ckptcheck.rules.stored.table import STORED_RULES

    purpose, reason = purpose_of(question.purpose, checkpoint)
    stored = Stored(
        checkpoint,
        purpose,
        asked=question.purpose != AUTO,
        classes=tuple(guess(one) for one in checkpoint.state.optimizers),
        survey=survey,
    )
    findings, not_judged = judged(chosen(STORED_RULES, question.select, question.ignore), stored, WHY_NOT)
    return Said(findings, not_judged, {"purpose": _purpose(question.purpose, purpose, reason)})


def _purpose(asked: str, purpose: Purpose, reason: str) -> Json:
    return {"asked": asked, "judged_for": str(purpose), "reason": reason}


def _layout(raw: RawTree | None, checkpoint: Checkpoint | None) -> Json:
    if raw is None:
        return None
    return {"container": raw.layout, "convention": checkpoint.convention if checkpoint is not None else None}


def _chosen(raw: RawTree) -> dict[str, Json] | None:
    """Why this checkpoint of a run, of how many, and which newer ones are not whole; None where it was named."""
    if "chosen" not in raw.facts:
        return None
    return {
        "reason": raw.facts["reason"],
        "of": raw.facts["of"],
        "skipped": [*raw.facts.get("skipped", ())],
    }


def _explained(raw: RawTree) -> tuple[Checkpoint | None, tuple[Defect, ...]]:
    """Who wrote it and what is in it, and where its parts do not fit each other: where it has defects, no news."""
    from ckptcheck.conventions.explaining import explain

    try:
        return explain(raw), ()
    except DamagedCheckpointError as trouble:
        if raw.defects:
            return None, ()
        return None, (Defect(Flaw(trouble.flaw), "", str(trouble).removeprefix(f"{raw.path}: ")),)


def _verdict(
    raw: RawTree | None, findings: Sequence[Finding], not_judged: Sequence[NotJudged], question: CheckQuestion
) -> Verdict:
    """Fail by severity, and where a demanded rule could not judge; a pass needs a rule that looked at it."""
    if any(finding.severity in FAIL_ON[question.fail_on] for finding in findings):
        return Verdict.FAIL
    if question.require and any(one.code.startswith(question.require) for one in not_judged):
        return Verdict.FAIL
    return Verdict.PASS if raw is not None and _some_rule_judged(not_judged, question) else Verdict.INCONCLUSIVE


def _some_rule_judged(not_judged: Sequence[NotJudged], question: CheckQuestion) -> bool:
    from ckptcheck.rules import files
    from ckptcheck.rules.rule import chosen
    from ckptcheck.rules.stored.table import STORED_RULES

    judging = {one.code for one in chosen(files.RULES, question.select, question.ignore)}
    judging |= {one.code for one in chosen(STORED_RULES, question.select, question.ignore)}
    return not judging <= {one.code for one in not_judged}
