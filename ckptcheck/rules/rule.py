"""What a rule is: a code, a severity, a card, and a generator that yields evidence."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from ckptcheck.finding import Finding, Json, Place, Severity

Subject = TypeVar("Subject")
"""What a rule judges: a case of two runs, a checkpoint's files, a comparison of two checkpoints."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that a rule found. `severity` None takes the rule's own."""

    message: str
    where: Place
    numbers: Mapping[str, Json] = field(default_factory=dict)
    fix: str = ""
    severity: Severity | None = None


Check: TypeAlias = Callable[[Subject], Iterator[Evidence]]


@dataclass(frozen=True, slots=True)
class Rule(Generic[Subject]):
    """A rule with its card (the docstring of its check). `needs` names the fields of its subject that it reads."""

    code: str
    name: str
    severity: Severity
    needs: tuple[str, ...]
    check: Check[Subject]

    @property
    def card(self) -> str:
        """What, why it matters, an example, how to fix it, known limits."""
        return self.check.__doc__ or ""

    def findings(self, subject: Subject) -> Iterator[Finding]:
        """Judge a subject that has what the rule needs."""
        for one in self.check(subject):
            yield Finding(
                code=self.code,
                name=self.name,
                severity=one.severity or self.severity,
                message=one.message,
                where=one.where,
                evidence=one.numbers,
                fix=one.fix,
            )


def rule(code: str, name: str, severity: Severity, *needs: str) -> Callable[[Check[Subject]], Rule[Subject]]:
    """Make a generator over a subject a rule."""
    return lambda check: Rule(code, name, severity, needs, check)


def chosen(
    rules: Iterable[Rule[Subject]], select: Iterable[str] = ("CK",), ignore: Iterable[str] = ()
) -> list[Rule[Subject]]:
    """The rules whose codes begin with a selected prefix and with no ignored one."""
    selected, ignored = tuple(select), tuple(ignore)
    return [one for one in rules if one.code.startswith(selected) and not (ignored and one.code.startswith(ignored))]
