"""Rules of one checkpoint by their code, whose cards the rules over a dry-run share."""

from typing import Any, Final

from ckptcheck.finding import Severity
from ckptcheck.rules.rule import Rule
from ckptcheck.rules.stored.table import STORED_RULES

_PENDING: Final = {
    "CK204": ("scheduler-state-absent", Severity.WARNING),
    "CK206": ("scaler-state-absent", Severity.WARNING),
    "CK209": ("orphaned-optimizer-state", Severity.WARNING),
}


def born(code: str) -> Rule[Any]:
    """The rule over one checkpoint with this code."""
    for one in STORED_RULES:
        if one.code == code:
            return one
    name, severity = _PENDING[code]
    return Rule(code, name, severity, (), lambda _: iter(()), "")
