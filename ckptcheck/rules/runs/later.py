"""CK208, CK610 and CK603, over what both runs saved after the resume: what only a checkpoint holds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.checkpoint_diff import Row
from ckptcheck.experiment.commands.later import SavedTwice
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.rule import Evidence, Rule, also
from ckptcheck.rules.runs.completeness import ema_state_inconsistent
from ckptcheck.rules.runs.generators import rng_diverged
from ckptcheck.rules.runs.trajectory import unexplained_divergence
from ckptcheck.rules.words import brief, count, differ, generators, kept, names

STAGE: Final = "extra"
"""What a script saves beside the parts of a training that are known."""
_NUMBERS: Final = ("differing", "numel", "max_abs", "rel_l2")


@dataclass(frozen=True, slots=True)
class Later:
    """One checkpoint that both runs saved, and how the two differ beyond what equal runs differ in.

    Attributes:
        saved: which checkpoint.
        rows: tensors that the resumed run holds otherwise, generators left out.
        generators: generators and what looks like their states.
        values: plain values, one-element tensors and renamed entries.
        chance: how many entries differ that differ between equal runs as well.
        reason: why it was not judged; "" where it was.
    """

    saved: SavedTwice
    rows: tuple[Row, ...] = ()
    generators: tuple[Row, ...] = ()
    values: tuple[Row, ...] = ()
    chance: int = 0
    reason: str = ""


@also(ema_state_inconsistent)
def average_saved_otherwise(later: Later) -> Iterator[Evidence]:
    """The average that the script saves after the resume is another: it was not restored, or began anew."""
    rows = [one for one in later.rows if one.section == "ema"]
    if rows:
        yield _evidence(later, rows, "save the EMA's state and load it")


@also(unexplained_divergence)
def saved_otherwise(later: Later) -> Iterator[Evidence]:
    """What the script saves after the resume is otherwise, in tensors that reach no step."""
    rows = [one for one in later.rows if one.section != "ema"]
    if rows:
        yield _evidence(later, rows, f"load {_named(rows[0])} from the checkpoint where the rest is loaded")


@also(unexplained_divergence, severity=Severity.WARNING)
def values_saved_otherwise(later: Later) -> Iterator[Evidence]:
    """Counters, scores, arguments: they may well be others after a resume."""
    if later.values:
        found = [_named(one) for one in later.values]
        yield _mild(later, found, f"{count(found, 'plain value')} that the script saves", names(found))


@also(rng_diverged, severity=Severity.WARNING)
def generators_saved_otherwise(later: Later) -> Iterator[Evidence]:
    """A generator is in another state when it is saved again, and no step drew from it."""
    if later.generators:
        found = [_named(one) for one in later.generators]
        yield _mild(later, found, f"{generators(found)}, as the script saves {'it' if len(found) == 1 else 'them'}", "")


def _evidence(later: Later, rows: Sequence[Row], fix: str) -> Evidence:
    found = [_named(one) for one in rows]
    numbers = _numbers(rows[0])
    how = [f"{label} {brief(numbers[key])}" for key, label in (("max_abs", "max abs"), ("rel_l2", "rel L2"))
           if numbers.get(key) is not None]  # fmt: skip
    saved = later.saved
    return Evidence(
        f"what the script saves at step {saved.step} ({saved.path}) differs in {names(found)} "
        f"({count(found, 'tensor')}{'; the first by ' + ', '.join(how) if how else ''}): "
        "the resumed run did not restore it",
        Place(path=saved.path, key=found[0], step=saved.step, stage=STAGE),
        {"file": saved.path, "saved_at_step": saved.step, "entries": kept(found), "tensors": len(found), **numbers},
        fix,
    )


def _mild(later: Later, found: Sequence[str], what: str, listed: str) -> Evidence:
    saved = later.saved
    return Evidence(
        f"{what} at step {saved.step} ({saved.path}) {differ(found)}{': ' if listed else ''}{listed}; "
        "without effect on the steps that follow",
        Place(path=saved.path, key=found[0], step=saved.step, stage=STAGE),
        {"without_effect": True, "file": saved.path, "saved_at_step": saved.step, "entries": kept(found)},
        "none needed for these steps",
    )


def _numbers(row: Row) -> Mapping[str, Json]:
    if row.difference is None:
        return {"kind": row.kind.value}
    return {key: getattr(row.difference, key) for key in _NUMBERS}


def _named(row: Row) -> str:
    return ".".join(part for part in (row.parameter, row.key) if part)


LATER_RULES: Final[tuple[Rule[Later], ...]] = (
    average_saved_otherwise, saved_otherwise, values_saved_otherwise, generators_saved_otherwise,
)  # fmt: skip
"""Rules over what two runs saved later."""
