"""What a user may ask for, checked before anything heavy is imported or started."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ckptcheck.comparison.tolerance import Tolerance
from ckptcheck.config import CONTRACTS, ROLES
from ckptcheck.errors import UsageError
from ckptcheck.finding import Json
from ckptcheck.state.tensor import ITEMSIZE_BYTES
from ckptcheck.verdict.decisions import NONE, Decisions

AUTO: Final = "auto"
"""In place of a step to resume after: pick such steps."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What counts as equal. Without a tolerance, bytes do.

    An element passes when |right - left| <= atol + rtol * |left|; only tensors and numbers that training computes
    are given a tolerance, never generators, inputs, hyperparameters or schedules. `roles` are as `Tolerance` has them.
    """

    state_exact: bool = False
    rtol: float = 0.0
    atol: float = 0.0
    roles: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The policy as `--policy` names it."""
        return "state-exact" if self.state_exact else "exact"

    @property
    def tolerant(self) -> bool:
        """Whether a tolerance was asked for."""
        return not self.tolerance.is_exact

    @property
    def tolerance(self) -> Tolerance:
        """How far apart what may differ may be."""
        return Tolerance(self.rtol, self.atol, self.roles)

    @property
    def part(self) -> dict[str, Json]:
        """What a result says of it: tolerances by role only where there are any."""
        told: dict[str, Json] = {"name": self.name, "rtol": self.rtol, "atol": self.atol}
        roles: dict[str, Json] = {role: {"rtol": rtol, "atol": atol} for role, (rtol, atol) in self.roles.items()}
        return told | ({"roles": roles} if roles else {})


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of an experiment beside its settings."""

    quick: bool = False
    repeats: int = 1
    policy: Policy = field(default_factory=Policy)
    freeze: Mapping[str, str] = field(default_factory=dict)
    select: tuple[str, ...] = ("CK",)
    ignore: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    """Codes by prefix that must be judged."""
    bisect: bool = False
    """Whether the cause of a divergence is to be proved by further runs."""
    decided: Decisions = NONE
    """How much findings weigh, and which are accepted."""


def check_policy(
    policy: str, rtol: float, atol: float, roles: Mapping[str, tuple[float, float]] = MappingProxyType({})
) -> Policy:
    """The policy by its name and tolerances.

    UsageError for an unknown name, role or dtype, and for a negative or infinite tolerance.
    """
    if policy not in ("exact", "state-exact"):
        raise UsageError(f"--policy {policy!r} is unknown: use exact or state-exact")
    for name, value in (("--rtol", rtol), ("--atol", atol)):
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} {value!r} is no tolerance: use a number from 0 up")
    for told, amounts in roles.items():
        role, colon, dtype = told.partition(":")
        if role not in ROLES:
            raise UsageError(f"tolerance {told}: there is no such role: use one of {', '.join(ROLES)}")
        if colon and dtype not in ITEMSIZE_BYTES:
            raise UsageError(f"tolerance {told}: there is no dtype {dtype!r}: name one as torch does, such as bfloat16")
        if not all(math.isfinite(one) and one >= 0 for one in amounts):
            raise UsageError(f"tolerance {told}: {amounts} are no tolerances: use numbers from 0 up")
    return Policy(policy == "state-exact", rtol, atol, dict(roles))


def check_quick(quick: bool, repeats: int) -> None:
    """UsageError where repeats were asked for, and that none is made."""
    if quick and repeats > 1:
        raise UsageError("--quick and --repeats exclude each other: --quick makes no repeat")


def check_bisect(commands: bool, policy: Policy, devices: tuple[str, str | None]) -> None:
    """UsageError where a bisection was asked for of what it cannot be made on."""
    if commands:
        raise UsageError("--bisect is for a target: it puts back parts of live objects, which a target declares")
    if policy.tolerant:
        raise UsageError(
            "--bisect and tolerances exclude each other: what heals a run is told to the bit; --rtol 0 leaves those of "
            "the settings out"
        )
    if devices[1] is not None and devices[0] != devices[1]:
        raise UsageError("--bisect and --resume-device exclude each other: two devices never agree to the bit")


def check_freeze(freeze: Mapping[str, str]) -> dict[str, str]:
    """Contracts by glob. UsageError for an unknown contract."""
    for pattern, contract in freeze.items():
        if contract not in CONTRACTS:
            raise UsageError(f"--freeze {pattern}={contract} names no contract: use one of {', '.join(CONTRACTS)}")
    return dict(freeze)


def picks(resume_at: Iterable[int | str]) -> bool:
    """Whether points are to be picked. UsageError for a text that is not `AUTO`."""
    told = [one for one in resume_at if isinstance(one, str)]
    for one in told:
        if one != AUTO:
            raise UsageError(f"--resume-at {one!r} is no step: give a number, or {AUTO}")
    return bool(told)


def check_points(steps: int, resume_at: Iterable[int | str]) -> tuple[int, ...]:
    """The resume points given, ascending; half of the steps where there are none, and none to be picked.

    UsageError for points outside 1..N-1.
    """
    if steps < 2:
        raise UsageError(f"--steps {steps} leaves no step to resume into: use at least 2")
    asked = tuple(resume_at)
    points = tuple(sorted({one for one in asked if isinstance(one, int)}))
    if not points and not picks(asked):
        points = (steps // 2,)
    outside = [point for point in points if not 1 <= point < steps]
    if outside:
        raise UsageError(
            f"--resume-at {outside[0]} is outside 1..{steps - 1}: with --steps {steps} resume after one of these"
        )
    return points


@dataclass(frozen=True, slots=True)
class Target:
    """What a user asks of an experiment on a target; fields are as `verbs.verify` takes them."""

    target: str | None = None
    steps: int | None = None
    resume_at: tuple[int | str, ...] = ()
    device: str = "cpu"
    resume_device: str | None = None
    seed: int = 0
    deterministic: bool = False
    timeout_s: float = 600.0
    jobs: int | None = None


FOR_TARGET: Final = ("device", "resume_device", "seed", "deterministic")
"""Fields of `Target` that commands have no use for."""


@dataclass(frozen=True, slots=True)
class Commands:
    """What a user asks of an experiment on two commands; fields are as `verbs.verify` takes them."""

    run: str | None = None
    resume: str | None = None
    steps: int | None = None
    resume_at: tuple[int | str, ...] = ()
    interrupt: str | None = None
    folder: Path | str | None = None
    share: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    online: bool = False
    every: int = 1
    only: tuple[str, ...] = ()
    grads: bool = True
    digest: str | None = None
    timeout_s: float = 600.0
    jobs: int | None = None


FOR_COMMANDS: Final = ("interrupt", "folder", "share", "env", "online", "every", "only", "grads", "digest")
"""Fields of `Commands` that a target has no use for."""


def asks_about_commands(target: Target, commands: Commands, freeze: Mapping[str, str]) -> bool:
    """Whether commands are asked about, and not a target.

    UsageError where both or neither are, for one command without the other, and for options and values that do not go
    with what is asked about.
    """
    given = commands.run is not None or commands.resume is not None
    if target.target is not None and given:
        raise UsageError("a target and --run/--resume exclude each other: name what is to be tested")
    if target.target is None and not given:
        raise UsageError("nothing to verify: name a target, or give two commands with --run and --resume")
    if not given:
        foreign = next((one for one in FOR_COMMANDS if getattr(commands, one) != getattr(Commands(), one)), None)
        if foreign:
            raise UsageError(f"{option_of(foreign)} is for --run and --resume: a target has no use for it")
        return False
    foreign = next((one for one in FOR_TARGET if getattr(target, one) != getattr(Target(), one)), None)
    if foreign:
        raise UsageError(f"{option_of(foreign)} is for a target: the commands of --run and --resume say such things")
    for name, value, other in (("--run", commands.run, "--resume"), ("--resume", commands.resume, "--run")):
        if value is None:
            raise UsageError(f"{other} needs {name}: give both commands")
    if freeze and not commands.grads:
        raise UsageError("--freeze and --no-grads exclude each other: a contract is about gradients too")
    _check_steps(commands)
    return True


def _check_steps(asked: Commands) -> None:
    if len(asked.resume_at) > 1:
        raise UsageError("--resume-at was given several times: commands are resumed after one step")
    if asked.resume_at and asked.interrupt:
        raise UsageError("--resume-at and --interrupt exclude each other: the run is resumed where it was interrupted")
    if asked.every < 1:
        raise UsageError(f"--every {asked.every} records no step: use a number from 1 up")
    if asked.steps is not None and asked.steps < 2:
        raise UsageError(f"--steps {asked.steps} leaves no step to resume into: use at least 2")
    step = asked.resume_at[0] if asked.resume_at and not picks(asked.resume_at) else None
    if isinstance(step, int) and (step < 1 or (asked.steps is not None and step >= asked.steps)):
        least_most = f"1..{asked.steps - 1}" if asked.steps is not None else "1 and up"
        raise UsageError(f"--resume-at {step} is outside {least_most}: resume after one of these steps")


def option_of(name: str) -> str:
    """How the command line spells an option."""
    return "--no-grads" if name == "grads" else f"--{name.replace('_', '-')}"
