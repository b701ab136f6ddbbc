"""Two checkpoints of any formats, compared by content and, where findings gate, judged."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ckptcheck.comparison.checkpoint_diff import (
    CONTENT_SECTIONS,
    CheckpointDiff,
    DiffOptions,
)
from ckptcheck.errors import UsageError
from ckptcheck.finding import Finding, Json, NotJudged, Result, Verdict, gates
from ckptcheck.progress import Progress
from ckptcheck.verdict.accepting import asked_and_judged, settle
from ckptcheck.verdict.asking import check_freeze
from ckptcheck.verdict.both_sides import NUMBERS, judge_side, told_once
from ckptcheck.verdict.decisions import NONE, Decisions
from ckptcheck.verdict.difference_parts import optimizer_part, section_part, side_part, tolerance_part
from ckptcheck.verdict.difference_rows import difference_rows, ulp_rows
from ckptcheck.verdict.membership import membership_of

if TYPE_CHECKING:
    from ckptcheck.comparison.contracts import Held
    from ckptcheck.comparison.survey import Survey
    from ckptcheck.rules.pairs.pair import Pair

GATES: Final = ("content", "findings")
FILE_FAMILY: Final = "CK1"
"""Rules of this family need no order of the two checkpoints."""
ROLES: Final = ("param", "buffer", "grad", "state", "hyper", *(one for one in CONTENT_SECTIONS if one != "rng"))
"""What a tolerance can be given for: kinds of tensors and values, and sections; a generator is as it was, or not."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What makes the exit code: any difference of content, or findings by severity.

    `freeze` are contracts by glob over parameter names, `require` codes by prefix that must be judged, and `decided`
    is how much findings weigh and which are accepted: all are for findings.
    """

    by: str = "content"
    select: tuple[str, ...] = ("CK",)
    ignore: tuple[str, ...] = ()
    fail_on: str = "error"
    freeze: Mapping[str, str] = field(default_factory=dict)
    require: tuple[str, ...] = ()
    decided: Decisions = NONE


@dataclass(frozen=True, slots=True)
class Judged:
    """Findings about both sides, and what could not be judged; empty where content gates.

    `why_not` says why the two cannot be judged as an earlier and a later checkpoint of one training; "" where they
    can, or no such rule was asked for. `released` says that the right one was judged as a release; "" where it was not.
    `parts` is what a result tells of acceptances.
    """

    findings: tuple[Finding, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    why_not: str = ""
    released: str = ""
    parts: Mapping[str, Json] = field(default_factory=dict)


def diff_files(left: Path, right: Path, options: DiffOptions, gate: Gate, progress: Progress | None = None) -> Result:
    """Compare the checkpoints at two places.

    Raises CheckpointError and DamagedCheckpointError as `read_raw`, and where a file changes meanwhile; UsageError
    for options that do not fit the checkpoints.
    """
    check_question(options, gate)
    from ckptcheck.comparison.checkpoints import diff_checkpoints
    from ckptcheck.conventions.explaining import explain
    from ckptcheck.readers.reading import read_raw

    sides = [explain(read_raw(path)) for path in (left, right)]
    diff = diff_checkpoints(sides[0], sides[1], options, InMebibytes(progress) if progress is not None else None)
    judged = _settled(diff, _judged(diff, options, gate, progress), gate) if gate.by == "findings" else Judged()
    for side in sides:
        side.raw.check_unchanged()
    return result_of(diff, options, gate, judged)


class InMebibytes:
    """Hands on a progress that is told in bytes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def update(self, run: str, phase: str, step: int | None, steps: int | None) -> None:
        """Tell the same in MiB."""
        scaled = (None if count is None else count >> 20 for count in (step, steps))
        self._progress.update(run, f"{phase}, MiB", *scaled)


def check_question(options: DiffOptions, gate: Gate) -> None:
    """UsageError for a gate or role that there is not, and for what is no tolerance."""
    if gate.by not in GATES:
        raise UsageError(f"--gate {gate.by!r} is unknown: use {' or '.join(GATES)}")
    check_freeze(gate.freeze)
    if gate.freeze and gate.by != "findings":
        raise UsageError("--freeze judges by findings, and --gate content by differences: leave one of them out")
    given = {"--rtol and --atol": (options.rtol, options.atol)}
    given |= {f"--tolerance {role}": amounts for role, amounts in options.tolerances.items()}
    for name, amounts in given.items():
        if not all(math.isfinite(one) and one >= 0 for one in amounts):
            raise UsageError(f"{name}: {amounts} are no tolerances: use numbers from 0 up")
    for role in options.tolerances:
        if role.partition(":")[0] not in ROLES:
            raise UsageError(f"--tolerance {role}: there is no such role: use one of {', '.join(ROLES)}")


def result_of(diff: CheckpointDiff, options: DiffOptions, gate: Gate, judged: Judged) -> Result:
    """The result of a comparison that was made."""
    identical = diff.same_content and something_compared(diff) and not diff.unread
    identical = identical and not any(one.tolerated for one in diff.summaries)
    parts: dict[str, Json] = {
        "left": side_part(diff.left, options.left_section),
        "right": side_part(diff.right, options.right_section),
        "identical_content": identical,
        "identical_content_different_container": identical and diff.left.raw.layout != diff.right.raw.layout,
        "unread": diff.unread,
        "gate": gate.by,
        "unjudged": judged.why_not or None,
        "statistics": options.statistics,
        "tolerance": tolerance_part(options),
        "cast": {"dtype": diff.cast, "equal": diff.cast_equal} if diff.cast else None,
        "optimizers": [optimizer_part(one) for one in diff.optimizers],
        "paired_by": [*diff.paired_by],
        "sections": [section_part(one) for one in diff.summaries],
        "groups": [asdict(one) for one in diff.regrouped],
        "membership": [*_membership(diff)],
        "differences": difference_rows(diff),
        "ulp": ulp_rows(diff),
        "not_compared": [*diff.not_compared],
        "notes": [*diff.notes, *([judged.released] if judged.released else [])],
        **judged.parts,
    }
    return Result(
        command="diff",
        verdict=_verdict(diff, gate, judged),
        compared=diff.compared,
        findings=judged.findings,
        not_judged=judged.not_judged,
        parts=parts,
    )


def _membership(diff: CheckpointDiff) -> Iterator[Json]:
    """Of optimizers whose members both sides name for certain: by places alone, any order agrees with any other."""
    for one in diff.optimizers:
        places = [(diff.left, one.left), (diff.right, one.right)]
        known = [(side, place) for side, place in places if place is not None and place < len(side.namings)]
        if len(known) == len(places) and all(side.namings[place].certain for side, place in known):
            left, right = (side.state.optimizers[place] for side, place in known)
            yield membership_of(one.optimizer, left, right)


def something_compared(diff: CheckpointDiff) -> bool:
    """Whether any tensor or value was on both sides, or any that is on one side only was told."""
    return bool(diff.rows) or any(one.tensors or one.values for one in diff.summaries)


def _verdict(diff: CheckpointDiff, gate: Gate, judged: Judged) -> Verdict:
    if gate.by == "findings":
        if any(gates(finding, gate.fail_on) for finding in judged.findings):
            return Verdict.FAIL
        if gate.require and any(one.code.startswith(gate.require) for one in judged.not_judged):
            return Verdict.FAIL
        if judged.why_not:
            return Verdict.INCONCLUSIVE
    elif not diff.same_content:
        return Verdict.FAIL
    elif diff.unread:  # the rest is the same, and of these nobody knows
        return Verdict.INCONCLUSIVE
    return Verdict.PASS if something_compared(diff) else Verdict.INCONCLUSIVE


def _judged(diff: CheckpointDiff, options: DiffOptions, gate: Gate, progress: Progress | None) -> Judged:
    from ckptcheck.rules.pairs.pair import WHY_NOT
    from ckptcheck.rules.pairs.table import PAIR_RULES
    from ckptcheck.rules.rule import chosen, judged

    held = _held(diff, options, gate.freeze)  # before all is read: a contract on nothing is said at once
    left, right = (
        judge_side(name, side, gate.select, gate.ignore, progress)
        for name, side in (("left", diff.left), ("right", diff.right))
    )
    pair = _pair(diff, held, (left.survey, right.survey))
    rules = chosen(PAIR_RULES, gate.select, gate.ignore)
    findings, not_judged = judged(rules, pair, WHY_NOT)
    return Judged(
        (*left.files, *right.files, *findings, *told_once(left.numbers, right.numbers)),
        (*left.not_judged, *right.not_judged, *not_judged, *_never_asked(gate.require)),
        pair.course.why_not if any(not one.code.startswith(FILE_FAMILY) for one in rules) else "",
        pair.released if not pair.course.why_not else "",
    )


def _settled(diff: CheckpointDiff, judged: Judged, gate: Gate) -> Judged:
    """The same, its findings as the project weighs and accepts them."""
    settled = settle(
        judged.findings,
        gate.decided,
        "diff",
        judged=asked_and_judged(gate.select, gate.ignore, judged.not_judged),
        conclusive=something_compared(diff) and not judged.why_not,
    )
    return replace(judged, findings=settled.findings, parts=settled.parts)


def _never_asked(require: Sequence[str]) -> Iterator[NotJudged]:
    """Codes that are demanded and that no rule over two checkpoints has."""
    from ckptcheck.rules import files
    from ckptcheck.rules.pairs.table import PAIR_RULES

    asked = {*NUMBERS, *(one.code for one in files.RULES), *(one.code for one in PAIR_RULES)}
    reason = "no rule over two checkpoints has such a code: ask it of one, with check"
    yield from (NotJudged(one, reason) for one in require if not any(code.startswith(one) for code in asked))


def pair_of(diff: CheckpointDiff, options: DiffOptions, freeze: Mapping[str, str]) -> "Pair":
    """What the rules judge, without what the tensors hold. UsageError for a contract's pattern that matches nothing."""
    return _pair(diff, _held(diff, options, freeze), (None, None))


def _held(diff: CheckpointDiff, options: DiffOptions, freeze: Mapping[str, str]) -> "Held | None":
    from ckptcheck.comparison.contracts import held_contracts

    if not freeze:
        return None
    held = held_contracts(diff, freeze, options)
    if held.unmatched:
        known = ", ".join(diff.left.state.parameters)
        raise UsageError(
            f"--freeze {held.unmatched[0]}={freeze[held.unmatched[0]]} matches no parameter of the two checkpoints; "
            f"parameters are {known[:200] or 'unknown'}"
        )
    return held


def _pair(diff: CheckpointDiff, held: "Held | None", surveys: "tuple[Survey | None, Survey | None]") -> "Pair":
    from ckptcheck.rules.pairs.pair import Pair

    released = _released(diff)
    if held is None:
        return Pair(diff, surveys=surveys, released=released)
    return Pair(diff, held.broken, held.not_held, held.contracts, surveys=surveys, released=released)


def _released(diff: CheckpointDiff) -> str:
    """Why the right one is a release of what the left one trains; "" where it is none."""
    from ckptcheck.rules.stored.stored import Purpose
    from ckptcheck.verdict.purpose import AUTO, purpose_of

    if not diff.left.state.optimizers or diff.right.state.optimizers or not diff.right.state.parameters:
        return ""
    purpose, reason = purpose_of(AUTO, diff.right)
    why = reason.partition(";")[0]
    return f"the right checkpoint is judged as a release: {why}" if purpose is Purpose.RELEASE else ""
