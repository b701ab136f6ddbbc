"""The nouns of the lab: what one step made of one parameter, and what else a probe found out. Torch is not needed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from ckptcheck.finding import Json

NONE: Final = "none"
ZERO: Final = "zero"
NONZERO: Final = "nonzero"
FOR: Final = "for"
FOREACH: Final = "foreach"
FUSED: Final = "fused"
CAPTURABLE: Final = "capturable"


@dataclass(frozen=True, slots=True)
class Row:
    """One case: what one step of an optimizer made of one parameter and of its state.

    Attributes:
        optimizer: as it was asked for, such as "AdamW" or "lion.py:Lion".
        variant: what sets its hyperparameters apart, such as "momentum"; "" for its defaults.
        implementation: "for", "foreach", "fused" or "capturable"; "for" where there is no choice.
        scenario: the name of the case in the table of scenarios.
        parameter: the parameter that is looked at.
        hyperparameters: of its group, as the step used them.
        history: steps that were made with gradients before.
        grad: "none", "zero" or "nonzero", when the step began.
        entered_step: whether an operation of the step took the parameter or its state.
        param_changed: whether a bit of its value changed.
        state_changed: keys of its state that were added, removed or changed.
        step_advanced: whether its own step counter moved; None where it has none.
        before, after: the first values of the parameter, under "param", and of each entry of its state.
        raised: what the step raised, in one line, else "".
        facts: what else the scenario saw.
        device, dtype: of the parameter, as torch names them.
        versions: of python, torch and whatever else made the step.
    """

    optimizer: str
    variant: str
    implementation: str
    scenario: str
    parameter: str
    hyperparameters: Mapping[str, Json]
    history: int
    grad: str
    entered_step: bool
    param_changed: bool
    state_changed: tuple[str, ...]
    step_advanced: bool | None
    before: Mapping[str, Json] = field(default_factory=dict)
    after: Mapping[str, Json] = field(default_factory=dict)
    raised: str = ""
    facts: Mapping[str, Json] = field(default_factory=dict)
    device: str = "cpu"
    dtype: str = "float32"
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def moved(self) -> bool:
        """Whether anything of the parameter changed, its value or its state."""
        return self.param_changed or bool(self.state_changed)

    @property
    def answer(self) -> tuple[bool, frozenset[str], bool]:
        """What the contract says of the case: value changed, state that changed, raised."""
        return self.param_changed, frozenset(self.state_changed), bool(self.raised)

    @property
    def case(self) -> tuple[str, str, str, str, str, int, str]:
        """What makes it the same case in another probe."""
        return (self.optimizer, self.variant, self.implementation, self.scenario, self.parameter, self.history,
                self.grad)  # fmt: skip

    def to_json(self) -> dict[str, Json]:
        """The row as schema 1 has it."""
        return {**asdict(self), "state_changed": [*self.state_changed]}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Row":
        """The row that `to_json` wrote; what it does not know of is left out."""
        known = {one.name for one in fields(cls)}
        told = {key: value for key, value in values.items() if key in known}
        return cls(**{**told, "state_changed": tuple(told["state_changed"])})


@dataclass(frozen=True, slots=True)
class Agreement:
    """One implementation of an optimizer held against its loop over parameters ("for"), after the same steps.

    Attributes:
        optimizer, variant, implementation: as in a row.
        grad: what the last step had, "none" or "zero".
        steps: how many were made.
        bitwise: whether parameters and all state are the same bits.
        max_ulp, max_abs: the greatest distance of two values of the parameters.
        state_ulp: key to the greatest distance in ULP of entries that differ.
        same_contract: whether the last step changed the same things; None where one of the two raised.
        raised: what it raised, in one line; such an implementation is not there for this optimizer.
        update: the greatest change of a value over all the steps, which a distance is held against.
    """

    optimizer: str
    variant: str
    implementation: str
    grad: str
    steps: int
    bitwise: bool = False
    max_ulp: int | None = None
    max_abs: float | None = None
    state_ulp: Mapping[str, Json] = field(default_factory=dict)
    same_contract: bool | None = None
    raised: str = ""
    update: float | None = None

    def to_json(self) -> dict[str, Json]:
        """As schema 1 has it."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Agreement":
        """What `to_json` wrote."""
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Transition:
    """One of the nine exact transitions: what rational arithmetic expects, and what steps in float64 came to.

    `expected` and `observed` are fractions, such as "99/100"; pairs are "(1, 9/5)". `ulp` is the greatest distance of
    an observed number from the nearest float64 of what is expected.
    """

    name: str
    expected: str
    observed: str
    passed: bool
    implementation: str = FOR
    ulp: int = 0

    def to_json(self) -> dict[str, Json]:
        """As schema 1 has it."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Transition":
        """What `to_json` wrote."""
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Keeping:
    """Whether an optimizer keeps all that its next step needs in `state_dict()`: shown by a reload and a step.

    Attributes:
        optimizer, variant: as in a row.
        exact: whether a new one that loaded its `state_dict()` makes the next step with the same bits; None where that
            could not be tried.
        outside: names of attributes of the instance that change with the steps and are not in `state_dict()`.
        difference: what came out otherwise, in one line; "" where nothing did.
        reason: why it could not be tried.
    """

    optimizer: str
    variant: str
    exact: bool | None
    outside: tuple[str, ...] = ()
    difference: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, Json]:
        """As plain JSON."""
        return {**asdict(self), "outside": [*self.outside]}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Keeping":
        """What `to_json` wrote."""
        return cls(**{**values, "outside": tuple(values["outside"])})


@dataclass(frozen=True, slots=True)
class Way:
    """One way of freezing the parameters that a contract is on, tried over real steps of a target.

    Attributes:
        name: "present" for the target as it is, else a way of `ckptcheck.lab.freezing`.
        pattern, contract: the contract that was asked for.
        steps: real steps that were made.
        keeps: whether the contract held at every one; None where the way cannot be applied.
        broken_at: the first step at which it did not; None where it held.
        parameter: the first one for which it did not, "" where it held.
        broken_by: what broke it, in one line, as shown by an experiment; "" where it held.
        evidence: numbers and switches at that step.
        reason: why the way cannot be applied.
    """

    name: str
    pattern: str
    contract: str
    steps: int
    keeps: bool | None
    broken_at: int | None = None
    parameter: str = ""
    broken_by: str = ""
    evidence: Mapping[str, Json] = field(default_factory=dict)
    reason: str = ""

    def to_json(self) -> dict[str, Json]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Way":
        """What `to_json` wrote."""
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Contracts:
    """All that a probe found out; `baseline` are the rows of an earlier one, None where none was given.

    `left_out` are scenarios that came to no step: optimizer, scenario, reason.
    """

    rows: tuple[Row, ...] = ()
    implementations: tuple[Agreement, ...] = ()
    exact: tuple[Transition, ...] = ()
    keeping: tuple[Keeping, ...] = ()
    freezing: tuple[Way, ...] = ()
    baseline: tuple[Row, ...] | None = None
    left_out: tuple[tuple[str, str, str], ...] = ()

    def to_json(self) -> dict[str, Json]:
        """As plain JSON, without the baseline."""
        parts = ("rows", "implementations", "exact", "keeping", "freezing")
        told: dict[str, Json] = {name: [one.to_json() for one in getattr(self, name)] for name in parts}
        return {**told, "left_out": [[*one] for one in self.left_out]}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Contracts":
        """What `to_json` wrote."""
        return cls(
            tuple(Row.of_json(one) for one in values["rows"]),
            tuple(Agreement.of_json(one) for one in values["implementations"]),
            tuple(Transition.of_json(one) for one in values["exact"]),
            tuple(Keeping.of_json(one) for one in values["keeping"]),
            tuple(Way.of_json(one) for one in values["freezing"]),
            left_out=tuple((one[0], one[1], one[2]) for one in values["left_out"]),
        )


def joined(parts: Sequence[Contracts], *, in_order: bool = False) -> Contracts:
    """Several as one, `in_order` of the optimizers' names."""
    names = ("rows", "implementations", "exact", "keeping", "freezing", "left_out")
    whole = {name: [one for part in parts for one in getattr(part, name)] for name in names}
    if in_order:
        for name in ("rows", "implementations", "keeping"):
            whole[name].sort(key=lambda one: str(one.optimizer))
    return Contracts(**{name: tuple(found) for name, found in whole.items()})
