"""Options of a question, checked."""

import math
from collections.abc import Mapping

from ckptcheck.errors import UsageError
from ckptcheck.experiment.target import CONTRACTS
from ckptcheck.verdict.cases import Policy


def check_policy(policy: str, rtol: float, atol: float) -> Policy:
    """The policy by its name and tolerances. UsageError for an unknown name or a negative or infinite tolerance."""
    if policy not in ("exact", "state-exact"):
        raise UsageError(f"--policy {policy!r} is unknown: use exact or state-exact")
    for name, value in (("--rtol", rtol), ("--atol", atol)):
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} {value!r} is no tolerance: use a number from 0 up")
    return Policy(policy == "state-exact", rtol, atol)


def check_freeze(freeze: Mapping[str, str]) -> dict[str, str]:
    """Contracts by glob. UsageError for an unknown contract."""
    for pattern, contract in freeze.items():
        if contract not in CONTRACTS:
            raise UsageError(f"--freeze {pattern}={contract} names no contract: use one of {', '.join(CONTRACTS)}")
    return dict(freeze)
