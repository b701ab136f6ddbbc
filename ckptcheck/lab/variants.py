"""Which hyperparameters an optimizer is probed with: a row for each that decides what a zero gradient does."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.lab.contract import CAPTURABLE, FOR, FOREACH, FUSED
from ckptcheck.lab.subject import Subject

LEARNING_RATE: Final = 0.1
DECAY: Final = 0.1


@dataclass(frozen=True, slots=True)
class Variant:
    """A name, "" for the defaults, and the hyperparameters that it sets."""

    name: str
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)


VARIANTS: Final[tuple[Variant, ...]] = (
    Variant(""),
    Variant("no decay", {"weight_decay": 0.0}),
    Variant("decay", {"weight_decay": DECAY}),
    Variant("momentum", {"momentum": 0.9}),
    Variant("momentum, decay", {"momentum": 0.9, "weight_decay": DECAY}),
    Variant("nesterov", {"momentum": 0.9, "nesterov": True}),
    Variant("dampening", {"momentum": 0.9, "dampening": 0.5}),
    Variant("amsgrad", {"amsgrad": True}),
    Variant("centered", {"centered": True}),
    Variant("decoupled decay", {"weight_decay": DECAY, "decoupled_weight_decay": True}),
    Variant("maximize", {"maximize": True}),
    Variant("differentiable", {"differentiable": True}),
)
"""All of them; an optimizer is probed with those whose arguments it takes and that set anything anew."""


def variants_of(subject: Subject, defaults: Mapping[str, Any]) -> Iterator[Variant]:
    """The variants that a subject has, from the hyperparameters that it has by itself (of its first group).

    What the user gave stands: a variant that would set it otherwise is left out.
    """
    for one in VARIANTS:
        if any(not subject.takes(name) or name in subject.arguments for name in one.hyperparameters):
            continue
        if one.name and all(defaults.get(name) == value for name, value in one.hyperparameters.items()):
            continue
        yield one


IMPLEMENTATIONS: Final[Mapping[str, Mapping[str, bool]]] = {
    FOR: {"foreach": False, "fused": False},
    FOREACH: {"foreach": True},
    FUSED: {"fused": True},
    CAPTURABLE: {"foreach": False, "capturable": True},
}
"""Implementation to the arguments that choose it; "for" stands for itself where an optimizer has no choice."""


def arguments_of(subject: Subject, implementation: str) -> dict[str, bool]:
    """What chooses an implementation, of the arguments that the subject takes."""
    return {name: value for name, value in IMPLEMENTATIONS[implementation].items() if subject.takes(name)}


def implementations_of(subject: Subject) -> Iterator[str]:
    """The implementations that a subject has by its arguments; whether they work is shown by trying."""
    for name, asked in IMPLEMENTATIONS.items():
        if name == FOR or all(subject.takes(one) for one, value in asked.items() if value):
            yield name
