"""A probe: what optimizers make of gradients that are none, zero or not, by real steps in a process of its own."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ckptcheck.errors import OutputError, RunFailedError, UsageError
from ckptcheck.finding import SCHEMA, Compared, Finding, Json, NotJudged, Result, Verdict, gates
from ckptcheck.lab.contract import NONZERO, Contracts, Row, joined
from ckptcheck.lab.job import ProbeJob
from ckptcheck.progress import Progress
from ckptcheck.verdict.accepting import asked_and_judged, settle
from ckptcheck.verdict.asking import check_freeze
from ckptcheck.verdict.decisions import NONE, Decisions

ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class ProbeQuestion:
    """What is asked of a probe.

    `subject` is an optimizer or a target, "all" for every class of torch.optim, "" where only the exact transitions
    are asked for. `arguments` go to the constructor; `steps` are those of a target.
    """

    subject: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False
    baseline: Path | None = None
    freeze: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"
    seed: int = 0
    steps: int = 20
    timeout_s: float = 600.0
    select: tuple[str, ...] = ("CK",)
    ignore: tuple[str, ...] = ()
    fail_on: str = "error"
    decided: Decisions = NONE


def probe_contracts(question: ProbeQuestion, progress: Progress | None = None) -> Result:
    """Make the steps, and judge what came of them.

    Raises TargetError for what is no optimizer and no target or cannot be made, UsageError for what does not go
    together, RunFailedError where the process did not come to its end.
    """
    from ckptcheck.rules.contracts.table import CONTRACT_RULES, WHY_NOT
    from ckptcheck.rules.rule import chosen, judged

    check_freeze(question.freeze)
    if not question.subject and not question.exact:
        raise UsageError("nothing to probe: name an optimizer or a target, or give --all or --exact")
    earlier = rows_of(question.baseline) if question.baseline is not None else None
    found = replace(_made(question, progress), baseline=earlier)
    rules = chosen(CONTRACT_RULES, question.select, question.ignore)
    if question.baseline is None:  # nobody misses a baseline that was not given
        rules = [one for one in rules if "baseline" not in one.needs]
    findings, not_judged = judged(rules, found, WHY_NOT)
    not_judged = [*_beside(question, found), *not_judged]
    judges = asked_and_judged(question.select, question.ignore, not_judged)
    settled = settle(findings, question.decided, "probe", judged=judges)
    return Result(
        command="probe",
        verdict=_verdict(found, settled.findings, question),
        compared=_compared(found),
        findings=settled.findings,
        not_judged=tuple(not_judged),
        environment=dict(found.rows[0].versions) if found.rows else {},
        parts={**_parts(question, found), **settled.parts},
    )


def _made(question: ProbeQuestion, progress: Progress | None) -> Contracts:
    from ckptcheck.experiment.process import Crew

    try:
        folder = Path(tempfile.mkdtemp(prefix="ckptcheck-")).resolve()
    except OSError as error:
        raise OutputError(f"no temporary folder can be made ({error}); set TMPDIR to one with room") from error
    try:
        jobs = [_job(question, folder, share) for share in _shares(question)]
        outcomes = Crew(folder, question.timeout_s, progress, at_once=len(jobs)).run(jobs)
        for outcome in outcomes:
            if outcome.status != "ended":
                said = f"the probe of {question.subject!r} {outcome.status}: {outcome.error}"
                raise RunFailedError(said, outcome.last_lines)
        return joined([Contracts.of_json(json.loads(job.output.read_text())) for job in jobs], in_order=len(jobs) > 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shares(question: ProbeQuestion) -> list[tuple[int, int]]:
    """Two processes share all classes on a CPU; a GPU is one process's."""
    return [(0, 2), (1, 2)] if question.subject == ALL and question.device == "cpu" else [(0, 1)]


def _job(question: ProbeQuestion, folder: Path, share: tuple[int, int]) -> ProbeJob:
    name = f"probe-{share[0]}"
    subjects = (question.subject,) if question.subject else ()
    return ProbeJob(
        name, subjects, folder / f"{name}.json", folder / name, question.arguments, question.device, question.seed,
        question.exact and share[0] == 0, question.freeze, question.steps, share,
    )  # fmt: skip


def _idle(found: Contracts) -> list[str]:
    """Optimizers of which no step with a gradient changes anything, as with a learning rate of 0."""
    stepped = [row for row in found.rows if row.scenario == "history" and row.grad == NONZERO]
    moving = {row.optimizer for row in stepped if row.moved or row.raised}
    return [*dict.fromkeys(row.optimizer for row in stepped if row.optimizer not in moving)]


def _without_history(found: Contracts) -> list[str]:
    """Optimizers of which neither none nor zeros could be tried after a history: the question itself is open."""
    tried = {row.optimizer for row in found.rows if row.scenario in ("history", "frozen-none")}
    return [*dict.fromkeys(row.optimizer for row in found.rows if row.optimizer not in tried)]


def _in_both(found: Contracts) -> int:
    """How many cases the baseline has as well."""
    return len({row.case for row in found.rows} & {row.case for row in found.baseline or ()})


def _beside(question: ProbeQuestion, found: Contracts) -> list[NotJudged]:
    """What was asked and had no subject."""
    told = [NotJudged("CK701", f"{who} changes nothing with a nonzero gradient either: its rests say nothing")
            for who in _idle(found)]  # fmt: skip
    told += [NotJudged("CK701", f"{who} could not be tried after steps") for who in _without_history(found)]
    told += [NotJudged("CK706", f"{who} has no scenario {name}: {why}") for who, name, why in found.left_out]
    if found.freezing:
        told.append(NotJudged("CK404", "a probe does not look at buffers of what is frozen: verify --freeze does"))
    if question.freeze and not found.freezing:
        told.append(NotJudged("CK702", f"a freeze contract is for a target, and {question.subject} is none"))
    if question.subject and not found.rows:
        told.append(NotJudged("CK701", "the target has no optimizer: Run.optimizer is None"))
    if found.baseline is not None and not _in_both(found):
        told.append(NotJudged("CK705", "the baseline has none of the cases of this probe"))
    return told


def rows_of(path: Path) -> tuple[Row, ...]:
    """The rows of an earlier probe that was saved as JSON. UsageError for anything else."""
    wanted = "give the JSON of an earlier probe, as --report json=FILE writes it"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--baseline {path} cannot be read ({error.strerror}): {wanted}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--baseline {path} is no JSON: {wanted}") from error
    if not isinstance(told, dict) or told.get("schema") != SCHEMA or not isinstance(told.get("contract"), list):
        command = told.get("command") if isinstance(told, dict) else None
        what = f"is a result of {command!r}" if isinstance(command, str) else "is no result of schema 1"
        raise UsageError(f"--baseline {path} {what} and holds no contract: {wanted}")
    try:
        return tuple(Row.of_json(one) for one in told["contract"])
    except (TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"--baseline {path}: its contract holds a row that is none ({error}): {wanted}") from error


def _compared(found: Contracts) -> Compared:
    """Steps that were looked at, parameters and entries of state of the rows."""
    entries = {(*row.case[:3], row.parameter, key) for row in found.rows for key in row.after if key != "param"}
    parameters = {(row.optimizer, row.parameter) for row in found.rows}
    steps = len(found.rows) + len(found.implementations) + len(found.exact) + sum(one.steps for one in found.freezing)
    return Compared(steps=steps, parameters=len(parameters), state_tensors=len(entries))


def _verdict(found: Contracts, findings: Sequence[Finding], question: ProbeQuestion) -> Verdict:
    """Fail by severity, by a transition that does not hold and by a contract that is not kept."""
    breaches = [one for one in findings if one.code == "CK702"]
    lived_with = breaches and all(one.accepted is not None for one in breaches)
    broken = any(not one.passed for one in found.exact) or (
        not lived_with and any(one.name == "present" and one.keeps is False for one in found.freezing)
    )
    if broken or any(gates(one, question.fail_on) for one in findings):
        return Verdict.FAIL
    if found.baseline is not None and not _in_both(found):
        return Verdict.INCONCLUSIVE
    if _idle(found) or _without_history(found):
        return Verdict.INCONCLUSIVE
    return Verdict.PASS if found.rows or found.exact or found.freezing else Verdict.INCONCLUSIVE


def _parts(question: ProbeQuestion, found: Contracts) -> dict[str, Json]:
    """What the result says beside the frame; parts that were not asked for are left out."""
    told: dict[str, Json] = {
        "subject": question.subject or None,
        "contract": [one.to_json() for one in found.rows],
        "implementations": [one.to_json() for one in found.implementations],
        "keeping": [one.to_json() for one in found.keeping],
    }
    if found.exact:
        told["exact"] = [one.to_json() for one in found.exact]
    if found.freezing:
        told["freezing"] = [one.to_json() for one in found.freezing]
    return told
