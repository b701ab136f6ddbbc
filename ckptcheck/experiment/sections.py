"""The parts of a training state that can be put back one by one, and which of them an overlay chooses."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

KINDS: Final = (
    "ties", "parameters", "buffers", "module_state", "requires_grad", "groups", "rest", "hyperparameters", "state",
    "schedule", "scaler", "ema", "data", "extra", "gradients", "modes", "flags", "generator",
)  # fmt: skip
"""Every kind of section, in the order in which they are put back: what names others first, generators last."""

OBJECTS: Final = ("schedule", "scaler", "ema", "data", "extra")
"""Kinds that stand for objects with a state_dict of their own."""


WORDS: Final[Mapping[str, str]] = {
    "ties": "the ties between parameters",
    "parameters": "the parameters",
    "buffers": "the buffers",
    "module_state": "the modules' extra state",
    "requires_grad": "what is trained (requires_grad)",
    "groups": "who is in which param group",
    "rest": "the rest of the optimizer's state_dict",
    "hyperparameters": "the hyperparameters",
    "state": "the optimizer state",
    "scaler": "the scaler",
    "schedule": "the schedule",
    "ema": "the average (ema)",
    "data": "the data's position",
    "extra": "extra",
    "gradients": "the gradients",
    "modes": "the train and eval modes",
    "flags": "torch's switches and threads",
    "generator": "the generator of",
}
"""Kind of section in words."""


class Section(NamedTuple):
    """A part of a training state. What is "" is not narrowed down.

    `of` is the optimizer's or object's place, the name of an object in `extra`, or of a generator; `key` a state
    key or hyperparameter; `name` a parameter or buffer.
    """

    kind: str
    of: str = ""
    key: str = ""
    name: str = ""

    def covers(self, other: "Section") -> bool:
        """Whether the other is this section or a part of it."""
        return self.kind == other.kind and all(mine in ("", its) for mine, its in zip(self[1:], other[1:], strict=True))

    @property
    def text(self) -> str:
        """As results name it: `state[0].exp_avg of head.weight`, `generator[torch]`, `schedule[0]`."""
        head = self.kind + (f"[{self.of}]" if self.of else "") + (f".{self.key}" if self.key else "")
        return head + (f" of {self.name}" if self.name else "")

    @property
    def words(self) -> str:
        """As a person says it: `exp_avg in the optimizer state of head.weight`, `the generator of torch`."""
        said = f"{self.key} in {WORDS[self.kind]}" if self.key else WORDS[self.kind]
        if self.of not in ("", "0"):  # the first, which mostly is the only one, needs no number
            said += f" {self.of}"
        return f"{said} of {self.name}" if self.name else said


@dataclass(frozen=True, slots=True)
class Overlay:
    """What is put back over a loaded run: every part of `put` that no section of `but` covers."""

    put: tuple[Section, ...]
    but: tuple[Section, ...] = ()

    def has(self, kind: str, of: str = "", key: str = "", name: str = "") -> bool:
        """Whether this part is put back."""
        part = Section(kind, of, key, name)
        return any(one.covers(part) for one in self.put) and not any(one.covers(part) for one in self.but)

    def touches(self, kind: str, of: str = "") -> bool:
        """Whether any part of this kind and owner may be put back."""
        return any(one.kind == kind and one.of in ("", of) for one in self.put)

    @classmethod
    def of_json(cls, values: Any) -> "Overlay":
        """The overlay that `dataclasses.asdict` and JSON made."""
        return cls(sections_of_json(values["put"]), sections_of_json(values["but"]))


def sections_of_json(rows: Iterable[Iterable[str]]) -> tuple[Section, ...]:
    """Sections that went through JSON."""
    return tuple(Section(*row) for row in rows)
