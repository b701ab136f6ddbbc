"""What a user may ask for, checked before anything heavy is imported or started."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ckptcheck.config import CONTRACTS
from ckptcheck.errors import UsageError


@dataclass(frozen=True, slots=True)
class Policy:
    """What counts as equal. With `rtol` and `atol` zero, bytes do.

    An element passes when |right - left| <= atol + rtol * |left|; only tensors and numbers that training computes
    are given a tolerance, never generators, inputs, hyperparameters or schedules.
    """

    state_exact: bool = False
    rtol: float = 0.0
    atol: float = 0.0

    @property
    def name(self) -> str:
        """The policy as `--policy` names it."""
        return "state-exact" if self.state_exact else "exact"

    @property
    def tolerant(self) -> bool:
        """Whether a tolerance was asked for."""
        return self.rtol > 0 or self.atol > 0


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


def check_points(steps: int, resume_at: Iterable[int]) -> tuple[int, ...]:
    """The resume points ascending, half of the steps where none is given. UsageError for points outside 1..N-1."""
    if steps < 2:
        raise UsageError(f"--steps {steps} leaves no step to resume into: use at least 2")
    points = tuple(sorted(set(resume_at))) or (steps // 2,)
    outside = [point for point in points if not 1 <= point < steps]
    if outside:
        raise UsageError(
            f"--resume-at {outside[0]} is outside 1..{steps - 1}: with --steps {steps} resume after one of these"
        )
    return points
