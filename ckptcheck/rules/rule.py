"""What a rule is: a code, a severity, a card, and a generator that yields evidence."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from ckptcheck.finding import Finding, Json, NotJudged, Place, Severity

Subject = TypeVar("Subject")
"""What a rule judges: a case of two runs, a checkpoint's files, one checkpoint, two of them, a dry-run of a load."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that a rule found. `severity` None takes the rule's own."""

    message: str
    where: Place
    numbers: Mapping[str, Json] = field(default_factory=dict)
    fix: str = ""
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A part of its subject that a rule could not judge, and why, in one sentence; the rest it did."""

    reason: str


Check: TypeAlias = Callable[[Subject], Iterator[Evidence | Unjudged]]


@dataclass(frozen=True, slots=True)
class Rule(Generic[Subject]):
    """A rule over one kind of subject. `needs` names the fields of its subject that it reads and that may be None.

    `card` says what, why it matters, an example, how to fix it, known limits. A code has one card, however many kinds
    of subject it is judged over: that of the rule that was `born` with the code.
    """

    code: str
    name: str
    severity: Severity
    needs: tuple[str, ...]
    check: Check[Subject]
    card: str
    born: bool = True

    def judge(self, subject: Subject) -> Iterator[Finding | NotJudged]:
        """Judge a subject that has what the rule needs."""
        for one in self.check(subject):
            if isinstance(one, Unjudged):
                yield NotJudged(self.code, one.reason)
                continue
            yield Finding(
                code=self.code,
                name=self.name,
                severity=one.severity or self.severity,
                message=one.message,
                where=one.where,
                evidence=one.numbers,
                fix=one.fix,
            )

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """What a rule finds in a subject that has what it needs."""
        yield from (one for one in self.judge(subject) if isinstance(one, Finding))


def rule(code: str, name: str, severity: Severity, *needs: str) -> Callable[[Check[Subject]], Rule[Subject]]:
    """Make a generator over a subject a rule, its docstring the card."""
    return lambda check: Rule(code, name, severity, needs, check, check.__doc__ or "")


def also(first: Rule[Any], *needs: str, severity: Severity | None = None) -> Callable[[Check[Subject]], Rule[Subject]]:
    """Make a generator over another kind of subject the same rule: with its code, its name and its card."""
    return lambda check: Rule(first.code, first.name, severity or first.severity, needs, check, first.card, born=False)


def chosen(
    rules: Iterable[Rule[Subject]], select: Iterable[str] = ("CK",), ignore: Iterable[str] = ()
) -> list[Rule[Subject]]:
    """The rules whose codes begin with a selected prefix and with no ignored one."""
    selected, ignored = tuple(select), tuple(ignore)
    return [one for one in rules if one.code.startswith(selected) and not (ignored and one.code.startswith(ignored))]


def judged(
    rules: Iterable[Rule[Subject]], subject: Subject, why_not: Mapping[str, str]
) -> tuple[list[Finding], list[NotJudged]]:
    """What rules say of a subject. `why_not` gives the reason where a field that a rule needs is None."""
    found: list[Finding | NotJudged] = []
    for one in rules:
        lacking = [need for need in one.needs if getattr(subject, need) is None]
        found += [NotJudged(one.code, why_not[lacking[0]])] if lacking else one.judge(subject)
    return split(found)


def split(said: Sequence[Finding | NotJudged]) -> tuple[list[Finding], list[NotJudged]]:
    """Findings, and what could not be judged, each once."""
    findings = [one for one in said if isinstance(one, Finding)]
    return findings, list(dict.fromkeys(one for one in said if isinstance(one, NotJudged)))
