"""Whether the rules that were demanded could judge."""

from collections.abc import Iterable, Sequence

from ckptcheck.finding import NotJudged
from ckptcheck.rules.stored.stored import Purpose
from ckptcheck.verdict.check_question import CheckQuestion


def not_in_question(question: CheckQuestion, purpose: Purpose | None) -> list[NotJudged]:
    """Demanded rules that this check did not even ask, each with the reason.

    `purpose` is what the checkpoint was judged for, None where it could not be read.
    """
    if not question.require:
        return []
    every = _codes(*Purpose)
    asked = _codes(purpose) if purpose is not None else every
    if question.target is not None:
        asked, every = asked | _load_codes(), every | _load_codes()
    found = [NotJudged(one, f"it is judged as a {purpose}: no rule of that asks it") for one in every - asked]
    found += [
        NotJudged(one, "it was left out by --select or --ignore") for one in asked if not _is_chosen(one, question)
    ]
    unknown = "no rule of this check has such a code" + ("" if question.target else "; some take a --target")
    found += [NotJudged(one, unknown) for one in question.require if not any(code.startswith(one) for code in every)]
    return sorted((one for one in found if one.code.startswith(question.require)), key=lambda one: one.code)


def demanded(not_judged: Iterable[NotJudged], require: Sequence[str]) -> list[NotJudged]:
    """What was demanded and not judged."""
    return [one for one in not_judged if require and one.code.startswith(tuple(require))]


def _codes(*purposes: Purpose) -> set[str]:
    from ckptcheck.rules import files
    from ckptcheck.rules.stored.table import STORED_RULES
    from ckptcheck.verdict.purpose import applying

    stored = {one.code for purpose in purposes for one in applying(STORED_RULES, purpose)}
    return stored | {one.code for one in files.RULES}


def _load_codes() -> set[str]:
    from ckptcheck.rules.loads.table import LOAD_RULES

    return {one.code for one in LOAD_RULES}


def _is_chosen(code: str, question: CheckQuestion) -> bool:
    return code.startswith(question.select) and not (question.ignore and code.startswith(question.ignore))
