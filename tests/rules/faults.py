"""A row of a fault table: one mistake of a user, and what must be said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ckptcheck.finding import Finding, Severity
from tests.rules.trials import RESUME_AT, Factory, Trial, Trials

AT_LOAD = {"step": RESUME_AT, "stage": "load"}


@dataclass(frozen=True)
class Fault:
    """A pair of factories that differ by one mistake, and the cause that it must get.

    `where` holds the fields of the cause's place that matter, `numbers` a part of its evidence, `names` words that
    its message and evidence must have. `beside` are codes that must be among the findings too, and no error may be
    there beside these.
    """

    mistake: str
    code: str
    left: Factory
    right: Factory | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR
    confidence: str = "certain"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code} {self.mistake}"

    def check(self, make: Trials) -> Trial:
        """Make the trial and hold what is said of it against the row."""
        trial = make(self.left, self.right, **self.options)
        assert trial.code == self.code, [f"{one.code} {one.message}" for one in trial.judgement.findings]
        found = trial.finding
        assert (found.code, found.severity) == (self.code, self.severity)
        assert trial.judgement.cause.confidence == self.confidence
        assert trial.judgement.place == found.where
        told = {key: getattr(found.where, key) for key in {**AT_LOAD, **self.where}}
        assert told == {**AT_LOAD, **self.where}
        assert {key: found.evidence.get(key) for key in self.numbers} == dict(self.numbers)
        said = f"{found.message} {dict(found.evidence)}"
        assert [name for name in self.names if name not in said] == []
        assert set(self.beside) <= set(trial.codes)
        others = [one for one in trial.judgement.findings if one.severity == Severity.ERROR and one is not found]
        assert {one.code for one in others} <= {self.code, *self.beside}, [one.message for one in others]
        assert is_legible(trial.judgement.findings)
        return trial


def is_legible(findings: tuple[Finding, ...]) -> bool:
    """Whether every finding says what is wrong and what to do, in one line each."""
    return all(one.message and one.fix and "\n" not in one.message + one.fix and one.name for one in findings)
