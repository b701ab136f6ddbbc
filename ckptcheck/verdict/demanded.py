"""Whether the rules that were demanded could judge: of a check, of a resume experiment."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ckptcheck.errors import UsageError
from ckptcheck.finding import NotJudged
from ckptcheck.rules.stored.stored import Purpose
from ckptcheck.verdict.check_question import CheckQuestion

ONLY_OF_COMMANDS: Final = frozenset({"CK615"})
"""Rules of an experiment that a target gives no occasion for."""


def not_in_question(question: CheckQuestion, purpose: Purpose | None, *, of_run: bool = False) -> list[NotJudged]:
    """Demanded rules that this check did not even ask, each with the reason.

    `purpose` is what the checkpoint was judged for, None where its files alone were; `of_run` says whether it was
    chosen among the checkpoints of a run. A prefix demands the rules that the question asks, a whole code itself.
    """
    if not question.require:
        return []
    every = codes_of_stored(*Purpose) | codes_of_series()
    asked = codes_of_stored(purpose) if purpose is not None else codes_of_stored()
    other = codes_of_stored(*Purpose) - asked
    asked |= codes_of_series() if of_run else set()
    if question.target is not None:
        asked, every = asked | codes_of_loads(), every | codes_of_loads()
    why = f"it is judged as a {purpose}: no rule of that asks it" if purpose else "the files alone were judged"
    meant = {code for one in question.require for code in _meant(one, every, asked, purpose)}
    found = [
        NotJudged(one, why if one in other else "it is asked of a folder of checkpoints of one run")
        for one in meant - asked
    ]
    left_out = "it was left out by --select or --ignore"
    found += [NotJudged(one, left_out) for one in meant & asked if not _is_chosen(one, question)]
    unknown = "no rule of this check has such a code" + ("" if question.target else "; some take a --target")
    found += [NotJudged(one, unknown) for one in question.require if not any(code.startswith(one) for code in every)]
    return sorted(found, key=lambda one: one.code)


def _meant(prefix: str, every: set[str], asked: set[str], purpose: Purpose | None) -> set[str]:
    """The codes that a demand is for: of a prefix those that are asked, where any are and the content was judged."""
    matched = {code for code in every if code.startswith(prefix)}
    return matched if prefix in every or purpose is None or not matched & asked else matched & asked


def demanded(
    not_judged: Iterable[NotJudged], require: Sequence[str], beside: Collection[NotJudged] = ()
) -> list[NotJudged]:
    """What was demanded and not judged; of what was not judged `beside` the checkpoint, only what has a code in full.

    A run always has checkpoints that nobody looks at any more.
    """
    return [
        one for one in not_judged
        if require and one.code.startswith(tuple(require)) and (one not in beside or one.code in require)
    ]  # fmt: skip


def check_demands(require: Sequence[str], select: Sequence[str], ignore: Sequence[str], *, of_commands: bool) -> None:
    """UsageError for a demand that no experiment can meet, before any run is made.

    A whole code must be one that is judged of a target, or of commands, and must not be left out; of a prefix one code
    at least.
    """
    from ckptcheck.rules.runs.table import RUN_RULES

    codes = {one.code for one in RUN_RULES} - (set() if of_commands else ONLY_OF_COMMANDS)
    for one in require:
        meant = {code for code in codes if code.startswith(one)}
        if not meant:
            is_theirs = one in ONLY_OF_COMMANDS
            why = "it is judged of --run and --resume" if is_theirs else "see the table of rules in the README"
            raise UsageError(f"--require {one}: verify judges no such rule here; {why}")
        chosen = {code for code in meant if code.startswith(tuple(select))}
        if not chosen:
            raise UsageError(f"--require {one}: --select {','.join(select)} leaves it out: take one of them back")
        if ignore and all(code.startswith(tuple(ignore)) for code in chosen):
            raise UsageError(f"--require {one}: --ignore {','.join(ignore)} leaves it out: take one of them back")


def codes_of_stored(*purposes: Purpose) -> set[str]:
    """The codes of a check of one checkpoint for any of these purposes, those of its files always."""
    from ckptcheck.rules import files
    from ckptcheck.rules.stored.table import STORED_RULES
    from ckptcheck.verdict.purpose import applying

    stored = {one.code for purpose in purposes for one in applying(STORED_RULES, purpose)}
    return stored | {one.code for one in files.RULES}


def codes_of_series() -> set[str]:
    """The codes of a check of a folder of checkpoints of one run."""
    from ckptcheck.rules.series.table import SERIES_RULES

    return {one.code for one in SERIES_RULES}


def codes_of_loads() -> set[str]:
    """The codes of a load that is tried."""
    from ckptcheck.rules.loads.table import LOAD_RULES

    return {one.code for one in LOAD_RULES}


def _is_chosen(code: str, question: CheckQuestion) -> bool:
    return code.startswith(question.select) and not (question.ignore and code.startswith(question.ignore))
