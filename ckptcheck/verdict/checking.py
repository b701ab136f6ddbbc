"""One checkpoint, verified and judged: its files, and what a resume or a release makes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from ckptcheck.comparison.survey import Survey
from ckptcheck.errors import DamagedCheckpointError, UsageError
from ckptcheck.finding import Compared, Finding, Json, NotJudged, Result, Verdict, gates
from ckptcheck.progress import Progress
from ckptcheck.rules.stored.stored import WHY_NOT, Purpose, Stored
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Defect, Flaw, RawTree
from ckptcheck.verdict.accepting import Settled, asked_and_judged, settle
from ckptcheck.verdict.asking import check_freeze
from ckptcheck.verdict.check_question import CheckQuestion, Said
from ckptcheck.verdict.demanded import demanded, not_in_question
from ckptcheck.verdict.files_part import files_part
from ckptcheck.verdict.inspection import globals_part
from ckptcheck.verdict.members import Verified
from ckptcheck.verdict.merging import WEIGHTS, told_once
from ckptcheck.verdict.optimizers import optimizers_part
from ckptcheck.verdict.purpose import AUTO, applying, check_purpose, purpose_of


def check_checkpoint(path: Path, question: CheckQuestion, progress: Progress | None = None) -> Result:
    """Verify every checksum in the checkpoint at `path`, and judge its files and its content.

    A damaged checkpoint is a finding. Raises CheckpointError where `path` is absent or no checkpoint that we read,
    DamagedCheckpointError where a file changes meanwhile, and UsageError and TargetError for a question that cannot
    be asked.
    """
    check_purpose(question.purpose)
    check_freeze(question.freeze)
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
    tried = Said()
    if checkpoint is not None and question.target is not None:
        tried, checkpoint = try_load(checkpoint, question.target, question, progress)
    verified, survey = read_through(raw, checkpoint, progress) if raw is not None else (Verified(), None)
    said = [_files(raw, trouble, (*verified.defects, *defects), question), tried]
    purpose = None
    if checkpoint is not None:
        purpose, reason = purpose_of(question.purpose, checkpoint)
        content = _content(checkpoint, purpose, survey, question)
        tried.findings[:] = told_once(content.findings, tried.findings)
        told: Json = {"asked": question.purpose, "judged_for": str(purpose) if purpose else None, "reason": reason}
        said.append(replace(content, findings=[], parts={**content.parts, "purpose": told}))
    of_run = judge_series(path, raw, question, progress) if raw is not None else Said()
    said.append(of_run)
    if raw is not None:
        raw.check_unchanged()
    said.append(Said(not_judged=not_in_question(question, purpose, of_run="series" in of_run.parts)))
    not_judged = [*dict.fromkeys(lacking for one in said for lacking in one.not_judged)]
    missed = demanded(not_judged, question.require, of_run.not_judged)
    looked = (purpose is not None or verified.nbytes > 0) and any(one.judged for one in said)
    settled = _settled(said, not_judged, question, looked=looked)
    findings = sorted(settled.findings, key=lambda one: WEIGHTS[one.severity])
    return Result(
        command="check",
        verdict=_verdict(findings, question, missed=bool(missed), looked=looked),
        compared=_compared(checkpoint, verified, survey),
        findings=tuple(findings),
        not_judged=tuple(not_judged),
        parts={
            "path": str(raw.path) if raw is not None else str(path),
            **_of_files(raw, checkpoint, verified),
            **{name: part for one in said for name, part in one.parts.items()},
            "asked": {"select": [*question.select], "ignore": [*question.ignore]},
            "required": [one.code for one in missed],
            **settled.parts,
        },
    )


def _settled(
    said: Sequence[Said], not_judged: Sequence[NotJudged], question: CheckQuestion, *, looked: bool
) -> Settled:
    """All findings, as the project weighs and accepts them."""
    return settle(
        (finding for one in said for finding in one.findings),
        question.decided,
        "check",
        judged=asked_and_judged(question.select, question.ignore, not_judged),
        conclusive=looked,
    )


def _of_files(raw: RawTree | None, checkpoint: Checkpoint | None, verified: Verified) -> dict[str, Json]:
    """What the result says of the files; what it says of the content is empty where nobody could read it."""
    return {
        "chosen": _chosen(raw) if raw is not None else None,
        "layout": _layout(raw, checkpoint),
        "files": files_part(raw) if raw is not None else [],
        "globals": globals_part(raw) if raw is not None else [],
        "verified_bytes": verified.nbytes,
        "purpose": None,
        "optimizers": [],
        "memory": None,
    }


def _files(
    raw: RawTree | None, trouble: DamagedCheckpointError | None, defects: Sequence[Defect], question: CheckQuestion
) -> Said:
    from ckptcheck.rules.files import RULES, judge_files
    from ckptcheck.rules.rule import chosen

    released = question.purpose == Purpose.RELEASE
    found = judge_files(raw, trouble, defects, question.select, question.ignore, released=released)
    codes = frozenset(one.code for one in chosen(RULES, question.select, question.ignore))
    return Said([*found[0]], [*found[1]], codes=codes)


def _content(checkpoint: Checkpoint, purpose: Purpose | None, survey: Survey | None, question: CheckQuestion) -> Said:
    """What the rules over one checkpoint say; nothing where it is good for nothing."""
    from ckptcheck.optimizers.guessing import guess
    from ckptcheck.rules.rule import chosen, judged
    from ckptcheck.rules.stored.table import STORED_RULES
    from ckptcheck.verdict.resume_memory import memory_part

    freeze = _contracts(question, checkpoint)
    if purpose is None:
        return Said()
    classes = tuple(guess(one) for one in checkpoint.state.optimizers)
    stored = Stored(
        checkpoint,
        purpose,
        asked=question.purpose != AUTO,
        classes=classes,
        survey=survey,
        freeze=freeze,
    )
    rules = chosen(applying(STORED_RULES, purpose), question.select, question.ignore)
    if not question.freeze:  # nobody misses a contract that was not given, but who demands it
        rules = [one for one in rules if "freeze" not in one.needs or one.code.startswith(question.require or ("-",))]
    findings, not_judged = judged(rules, stored, WHY_NOT)
    parts = {"optimizers": optimizers_part(checkpoint, {}), "memory": memory_part(checkpoint)}
    return Said(findings, not_judged, parts, frozenset(one.code for one in rules))


def _contracts(question: CheckQuestion, checkpoint: Checkpoint) -> Mapping[str, str] | None:
    """The freeze contracts. UsageError for a pattern that no parameter matches: a contract on nothing always holds."""
    names = [alias for name, one in checkpoint.state.parameters.items() for alias in (name, *one.aliases)]
    idle = [pattern for pattern in question.freeze if not any(fnmatchcase(name, pattern) for name in names)]
    if idle:
        raise UsageError(
            f"--freeze {idle[0]}={question.freeze[idle[0]]} matches no parameter of the checkpoint; "
            f"parameters are {', '.join(names)[:200] or 'unknown'}"
        )
    return question.freeze or None


def _compared(checkpoint: Checkpoint | None, verified: Verified, survey: Survey | None) -> Compared:
    """What the rules looked at; the survey reads the bytes that are verified, and what carries no checksum."""
    nbytes = max(verified.nbytes, survey.nbytes if survey is not None else 0)
    if checkpoint is None:
        return Compared(bytes=nbytes)
    state = checkpoint.state
    kept = (entry for one in state.optimizers for held in one.state.values() for entry in held.values())
    tensors = sum(entry.spec is not None for entry in kept)
    return Compared(parameters=len(state.parameters) or _in_models(checkpoint), state_tensors=tensors, bytes=nbytes)


def _in_models(checkpoint: Checkpoint) -> int:
    """Tensors of the models, where a checkpoint has several and none of them is the one that trains."""
    fronts = tuple(f"{name}." if name else "" for name in checkpoint.models)
    extra = checkpoint.state.sections.get("extra", {})
    return sum(path.startswith(fronts) and one.spec is not None for path, one in extra.items()) if fronts else 0


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


def _verdict(findings: Sequence[Finding], question: CheckQuestion, *, missed: bool, looked: bool) -> Verdict:
    """Fail by severity, and where a demanded rule `missed` something; a pass needs a rule that `looked`."""
    if missed or any(gates(finding, question.fail_on) for finding in findings):
        return Verdict.FAIL
    return Verdict.PASS if looked else Verdict.INCONCLUSIVE
