"""The findings that come of what a script gave to `load_state_dict`, from its own trace alone."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ckptcheck.finding import Finding, NotJudged, Severity
from ckptcheck.optimizers.guessing import Guess, guess
from ckptcheck.rules.loads.binding import group_membership_mismatch, names_not_aligned
from ckptcheck.rules.loads.dry_run import WHY_NOT, DryRun
from ckptcheck.rules.loads.holding import parameter_in_two_groups, stale_parameter_reference
from ckptcheck.rules.loads.holding import trainable_parameter_in_no_group as in_no_group
from ckptcheck.rules.loads.numbers import load_not_faithful
from ckptcheck.rules.loads.table import LOAD_RULES
from ckptcheck.rules.loads.views import rows_of
from ckptcheck.rules.loads.weights import key_prefix_mismatch, weights_not_loaded, weights_without_a_place
from ckptcheck.rules.rule import Rule, chosen, judged
from ckptcheck.rules.stored.optimizer_state import optimizer_state_absent, optimizer_state_partial
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.trace.file import Trace
from ckptcheck.trace.given_state import ScriptLoads, script_loads
from ckptcheck.verdict.given_load import fruitless, is_resume, load_of
from ckptcheck.verdict.left_out import asked_for, with_left_out
from ckptcheck.verdict.set_by_hand import set_each_step

_LEFT_OUT: Final = (
    names_not_aligned,  # an info of every load by number
    parameter_in_two_groups,  # of the optimizers, whatever was loaded
    weights_without_a_place,  # the script has asked for strict=False
)
_OF_A_RAISE: Final = (group_membership_mismatch, load_not_faithful)
"""What is judged where the script ended in its load, so that nobody knows what it would have loaded next."""
_OF_STATE: Final = frozenset({"CK201", "CK202", "CK203"})
_WORDS: Final = (
    (re.compile(r"\bthe (target|file)'s own load\b"), "the script's load"),
    (re.compile(r"\bthe target\b"), "the script"),
    (re.compile(r"\b[Tt]he file\b"), "the loaded state"),
    (re.compile(r"\bthe checkpoint\b"), "the loaded state"),
    (re.compile(r"\bthe factory\b"), "the script"),
)
"""Rules over a file and a target speak of these; a script that loads has neither."""

Said = tuple[tuple[Finding, ...], tuple[NotJudged, ...]]


def loads_seen(trace: Trace, select: tuple[str, ...] = ("CK",), ignore: tuple[str, ...] = ()) -> Said:
    """What the rules say of the loads with which a script began: what it gave against what it had, before and after.

    Nothing of a script that loaded nothing. A load of weights alone begins a training and resumes none: then only a
    load that found none of its keys is told. Raises TraceError where the trace is damaged.
    """
    seen = script_loads(trace)
    if seen is None:
        return (), ()
    only = asked_for(trace)
    seen = with_left_out(seen, only)
    dry = load_of(seen, set_each_step(trace), only)
    found: list[Finding] = []
    unjudged: list[NotJudged] = []
    for findings, not_judged in _said(seen, dry, select, ignore):
        found += findings
        unjudged += not_judged
    told = [_placed(one, trace) for one in _once(found)]
    reasons = [replace(one, reason=_worded(one.reason)) for one in unjudged]
    return tuple(told), tuple(dict.fromkeys(reasons))


def codes_of_loads_seen() -> set[str]:
    """The codes that are judged of what a script loads."""
    return {one.code for one in LOAD_RULES if one not in _LEFT_OUT}


def _said(
    seen: ScriptLoads, dry: DryRun, select: tuple[str, ...], ignore: tuple[str, ...]
) -> Iterable[tuple[list[Finding], list[NotJudged]]]:
    by_prefix = {one.code for one in (key_prefix_mismatch, weights_not_loaded)}
    fruitless_loads = [one for note in seen.notes if (one := fruitless(note, seen)) is not None]
    for one in fruitless_loads:
        said = judged(chosen([key_prefix_mismatch], select, ignore), one, WHY_NOT)
        yield said if said[0] else judged(chosen([weights_not_loaded], select, ignore), one, WHY_NOT)
    yield [], [*_unseen(seen, select, ignore)]
    if seen.loaded is None or not is_resume(seen):
        if seen.raised:
            yield judged(chosen(_OF_A_RAISE, select, ignore), dry, WHY_NOT)
        elif seen.given.parameters and any(one.groups for one in seen.given.optimizers):
            yield _of_what_was_given(dry, select, ignore)
        return
    rules = [rule for rule in chosen(LOAD_RULES, select, ignore) if rule not in _LEFT_OUT]
    if fruitless_loads or not seen.given.parameters:
        rules = [rule for rule in rules if rule.code not in by_prefix]
    if not _replaced(seen):
        rules = [rule for rule in rules if rule is not stale_parameter_reference]
    findings, not_judged = judged(rules, dry, WHY_NOT)
    yield [found for found in findings if not _is_beside(found)], not_judged
    yield _of_what_was_given(dry, select, ignore)


def _of_what_was_given(
    dry: DryRun, select: tuple[str, ...], ignore: tuple[str, ...]
) -> tuple[list[Finding], list[NotJudged]]:
    """What the optimizers' given state lacks in itself, for the classes that shall take it."""
    classes = tuple(Guess(rows, True) if (rows := rows_of(pair.live)) else guess(pair.live) for pair in dry.pairs)
    stored = Stored(dry.checkpoint, Purpose.RESUME, classes=classes)
    rules: list[Rule[Stored]] = [optimizer_state_absent, optimizer_state_partial]
    findings, not_judged = judged(chosen(rules, select, ignore), stored, {})
    sure = [one for one in findings if one.code != optimizer_state_absent.code or one.severity is Severity.ERROR]
    unsure = [NotJudged(one.code, one.message) for one in findings if one not in sure]
    return [replace(one, where=replace(one.where, path=None)) for one in sure], [*not_judged, *unsure]


def _is_beside(finding: Finding) -> bool:
    """Whether it is of the script's objects and not of the load: a target network is trained by no optimizer."""
    return finding.code == in_no_group.code and finding.severity is not Severity.ERROR


def _replaced(seen: ScriptLoads) -> bool:
    """Whether a load put tensors of its own in the model, so that an optimizer can be left with the old ones."""
    return any(one.assign for one in seen.notes if one.section == "model" and one.name is not None)


def _unseen(seen: ScriptLoads, select: tuple[str, ...], ignore: tuple[str, ...]) -> Iterable[NotJudged]:
    code = "CK601"
    for one in seen.notes:
        if one.unseen and code.startswith(select) and not (ignore and code.startswith(ignore)):
            yield NotJudged(code, f"what load_state_dict of {one.class_name} was given is not known: {one.unseen}")


def _once(findings: list[Finding]) -> Iterable[Finding]:
    """What is said of one parameter's state once: what was given lacks a key, and so does what was loaded of it."""
    told: set[object] = set()
    for one in findings:
        key = one.code, one.where.optimizer, one.where.parameter
        if key not in told or one.code not in _OF_STATE:
            told.add(key)
            yield one


def _placed(finding: Finding, trace: Trace) -> Finding:
    where = replace(finding.where, rank=trace.header.get("rank", 0), stage="load")
    if trace.shift:
        where = replace(where, step=trace.shift)
    return replace(finding, message=_worded(finding.message), fix=_worded(finding.fix), where=where)


def _worded(text: str) -> str:
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    return text
