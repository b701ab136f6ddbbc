"""What a rule is: a code, a severity, a card, and a generator that yields evidence."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ckptcheck.finding import Finding, Json, Place, Severity
from ckptcheck.rules.case import Case


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that a rule found. `severity` None takes the rule's own."""

    message: str
    where: Place
    numbers: Mapping[str, Json] = field(default_factory=dict)
    fix: str = ""
    severity: Severity | None = None


Check: TypeAlias = Callable[[Case], Iterator[Evidence]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with its card (the docstring of its check). `needs` names the fields of a case that it reads."""

    code: str
    name: str
    severity: Severity
    needs: tuple[str, ...]
    check: Check

    @property
    def card(self) -> str:
        """What, why it matters, an example, how to fix it, known limits."""
        return self.check.__doc__ or ""

    def findings(self, case: Case) -> Iterator[Finding]:
        """Judge a case that has what the rule needs."""
        for one in self.check(case):
            yield Finding(
                code=self.code,
                name=self.name,
                severity=one.severity or self.severity,
                message=one.message,
                where=one.where,
                evidence=one.numbers,
                fix=one.fix,
            )


def rule(code: str, name: str, severity: Severity, *needs: str) -> Callable[[Check], Rule]:
    """Make a generator over a case a rule."""
    return lambda check: Rule(code, name, severity, needs, check)
