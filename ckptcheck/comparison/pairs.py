"""What of two checkpoints belongs together: the nouns, and what needs no more than equal paths."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ckptcheck.comparison.checkpoint_diff import Regrouped, section_of
from ckptcheck.state.training_state import Entry, TrainingState


@dataclass(frozen=True, slots=True)
class Pair:
    """One tensor or value and its partner; None on a side that lacks it.

    `section`, `parameter`, `key`, `optimizer` and `group` are those of a `Row`. `role` is what tolerances go by:
    "param", "buffer", "grad", "state", "hyper", else the section.
    """

    section: str
    parameter: str | None
    key: str | None
    left: Entry | None
    right: Entry | None
    role: str
    optimizer: int | None = None
    group: int | None = None

    @property
    def place(self) -> str:
        """As users write it in patterns: "model/fc.weight", "optimizer/fc.weight/exp_avg", "optimizer/group 0/lr"."""
        owner = self.parameter
        if owner is None and self.role == "hyper":
            owner = f"group {self.group}"
        return "/".join(part for part in (self.section, owner, self.key) if part is not None)


@dataclass(slots=True)
class Pairing:
    """Collects pairs and what is to be said about them; `regrouped` and `paired_by` as of a `CheckpointDiff`.

    `left_group_of` maps (optimizer, right group) to the left group that answers to it.
    """

    pairs: list[Pair] = field(default_factory=list)
    regrouped: list[Regrouped] = field(default_factory=list)
    left_group_of: dict[tuple[int, int], int] = field(default_factory=dict)
    paired_by: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def by_key(left: Mapping[str, Entry], right: Mapping[str, Entry]) -> Iterator[tuple[str, Entry | None, Entry | None]]:
    """Each key with both sides' entries, in the left's order, then what only the right has."""
    for key, entry in left.items():
        yield key, entry, right.get(key)
    for key, entry in right.items():
        if key not in left:
            yield key, None, entry


def pair_surroundings(left: TrainingState, right: TrainingState, pairing: Pairing) -> None:
    """Pair gradients, generators and the sections by path, and modes and flags where both sides say them."""
    for name, parameter in left.parameters.items():
        partner = right.parameters.get(name)
        if parameter.grad is not None and partner is not None and partner.grad is not None:
            pairing.pairs.append(Pair("other", name, "grad", parameter.grad, partner.grad, "grad"))
    for generator, one, other in by_key(left.rng, right.rng):
        pairing.pairs.append(Pair("rng", None, generator, one, other, "rng"))
    for section in dict.fromkeys((*left.sections, *right.sections)):
        for path, one, other in by_key(left.sections.get(section, {}), right.sections.get(section, {})):
            told = section_of(section, path)
            pairing.pairs.append(Pair(told, None, path, one, other, told))
    _add_step(left.step, right.step, pairing)
    for kind, ours, theirs in (("training", left.modes, right.modes), ("flag", left.flags, right.flags)):
        for name in ours:
            if name in theirs:
                pair = Entry(None, None, value=ours[name]), Entry(None, None, value=theirs[name])
                pairing.pairs.append(Pair("other", None, f"{kind} {name}", *pair, "other"))


def _add_step(left: int | None, right: int | None, pairing: Pairing) -> None:
    """The step that both conventions found, unless a counter of the files says the same already."""
    if left is None or right is None or any(pair.section == "progress" for pair in pairing.pairs):
        return
    pair = Entry(None, None, value=left), Entry(None, None, value=right)
    pairing.pairs.append(Pair("progress", None, "step", *pair, "progress"))
