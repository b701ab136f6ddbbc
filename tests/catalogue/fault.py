"""The nouns of the catalogue: a fault that is planted, and what `verify` must say of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ckptcheck.finding import Result, Verdict
from tests.catalogue.spec import Spec
from tests.catalogue.training import Training

AT_LOAD: Final = "load"
CLEAN: Final = "clean"
"""The family of resumes that must pass."""
SEVERAL: Final = "several at once"
"""The family of trainings with more than one fault."""

STAGES: Final = (
    "load", "rng", "hyperparameters", "inputs", "buffers", "loss", "grad",
    "scaler", "state", "param", "schedule", "ema", "data", "extra",
)  # fmt: skip
"""The stages of a step in causal order."""

ORDER: Final = (
    "CK609", "CK401", "CK402", "CK403",
    "CK301", "CK302", "CK303", "CK304", "CK305", "CK307", "CK309", "CK311", "CK405", "CK406", "CK504", "CK505",
    "CK202", "CK203", "CK201", "CK602", "CK306", "CK603", "CK612", "CK604", "CK605", "CK608", "CK208", "CK613",
    "CK601", "CK614", "CK606", "CK607", "CK610",
)  # fmt: skip
"""Which code is the cause of what is found at the same time, the most specific first: the contract's order."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What must be said, worked out by hand or by torch, never by the code under test.

    Attributes:
        causes: the codes of which one must be the cause; more than one only where they are equally right.
        step: the step of the first divergence; None for k, the step of the load.
        stages: the stages of which one must be the first divergence's; None where a run raised.
        parameters: the parameters of which one must be named by the first divergence; empty where none has to be.
        keys: the same for the key: a state key, hyperparameter, buffer, generator or entry of a section.
        beside: codes that must be among the findings too.
        says: words that the cause's message or evidence must hold.
        fails: False for a legal difference that must pass.
        inconclusive: True where training is not deterministic, so that there is no verdict but this.
        together: for each further fault in the same training its codes, of which one must be among the findings.
    """

    causes: tuple[str, ...]
    step: int | None = None
    stages: tuple[str | None, ...] = (AT_LOAD,)
    parameters: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    fails: bool = True
    inconclusive: bool = False
    together: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake with a mechanism of its own.

    Attributes:
        name: a short name, unique; the mechanism, not its effect.
        why: one sentence: what a user did to get it.
        family: the family under which it is counted.
        reports: mechanisms of the public reports that it stands for.
        inject: plants it into a training that is built; called in every run of the experiment.
        expect: what must be said of a spec. It gets a training that has made `spec.at` steps without the fault, to
            look at names, state keys and numbers that torch itself made.
        applies: whether a spec has what the fault needs.
        specs: how the training is changed for it, from a plain one, so that it applies.
        fresh: whether it lives in hash seeds, addresses or unseeded generators, which forks share.
    """

    name: str
    why: str
    family: str
    inject: Callable[[Training], None]
    expect: Callable[[Training], Expected]
    reports: tuple[str, ...] = ()
    applies: Callable[[Spec], bool] = lambda spec: True
    specs: dict[str, object] = field(default_factory=dict)
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """How the verdict on one cell fits what was expected."""

    cell: str
    family: str
    detected: bool
    cause: str
    """"right", "unknown" or "wrong"."""
    step: bool
    tensor: bool
    told: bool
    """Whether all findings that must stand beside and all words that must be said are there."""
    got: str
    resumes: int = 1
    """How many resumed runs were judged."""

    @property
    def right(self) -> bool:
        """Whether everything fits."""
        return self.detected and self.cause == "right" and self.step and self.tensor and self.told

    @property
    def what_is_off(self) -> str:
        """In words, what does not fit; "" where all does."""
        off = {"not found": self.detected, "step": self.step, "tensor": self.tensor, "told": self.told}
        words = [name for name, fits in off.items() if not fits]
        words += [f"cause {self.cause}"] if self.cause != "right" else []
        return f" [{', '.join(words)}]" if words else ""


def where_updates_part(training: Training) -> str:
    """The stage in which one more update shows first: a gradient that is scaled is unscaled for it."""
    return "grad" if training.spec.amp == "fp16" else "scaler"


def combined(parts: Sequence[Expected], spec: Spec) -> Expected:
    """What must be said of several faults at once: the first in time is the cause, and all others are named."""

    def when(one: Expected) -> tuple[int, int, int]:
        code = min(ORDER.index(cause) for cause in one.causes)
        if ORDER[code] == "CK609":
            return spec.at, -1, 0
        step = spec.at if one.step is None else one.step
        return step, min(STAGES.index(stage or "extra") for stage in one.stages), code

    if len(parts) == 1:
        return parts[0]
    first = min(parts, key=when)
    return replace(first, together=tuple(one.causes for one in parts if one is not first))


def score(cell: str, family: str, spec: Spec, expected: Expected, result: Result) -> Score:
    """Hold a result against what was expected."""
    place = result.first_divergence
    code = result.cause.code if result.cause is not None else None
    wanted = spec.at if expected.step is None else expected.step
    got = f"{result.verdict.value} {code} at {place}"
    if not expected.fails:
        return score_of_clean(cell, family, result)
    cause = "right" if code in expected.causes else "unknown" if code in (None, "CK610", "CK611") else "wrong"
    told = [one for one in result.findings if one.code == code]
    text = " ".join(f"{one.message} {dict(one.evidence)}" for one in told)
    beside = {one.code for one in result.findings}
    return Score(
        cell=cell,
        family=family,
        detected=result.verdict is (Verdict.INCONCLUSIVE if expected.inconclusive else Verdict.FAIL),
        cause=cause,
        step=place is not None and place.step == wanted and place.stage in expected.stages,
        tensor=place is not None
        and (not expected.parameters or place.parameter in expected.parameters)
        and (not expected.keys or place.key in expected.keys),
        told={*expected.beside} <= beside
        and all(word in text for word in expected.says)
        and all(beside & {*codes} for codes in expected.together),
        got=got,
    )


def score_of_clean(cell: str, family: str, result: Result) -> Score:
    """A legal training must pass, with no error among its findings and something compared."""
    errors = [one for one in result.findings if one.severity == "error"]
    quiet = result.verdict is Verdict.PASS and not errors and result.compared.bytes > 0
    code = result.cause.code if result.cause is not None else None
    got = f"{result.verdict.value} {code} at {result.first_divergence} {[one.message for one in errors]}"
    runs = result.parts["runs"]
    resumes = sum("@" in one["name"] and not one["name"].endswith("again") for one in runs)  # type: ignore
    return Score(cell, family, quiet, "right" if quiet else "wrong", quiet, quiet, quiet, got, resumes)
