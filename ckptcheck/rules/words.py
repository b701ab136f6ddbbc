"""Words and places that several rules share."""

from collections.abc import Iterable, Sequence

from ckptcheck.comparison.traces import Difference
from ckptcheck.finding import Json, Place
from ckptcheck.state.stages import LOAD
from ckptcheck.state.training_state import Entry
from ckptcheck.trace.items import Sample

SHOWN = 4
"""How many names a message spells out; the evidence has all of them, up to `KEPT`."""
KEPT = 200


def names(values: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    listed = list(dict.fromkeys(values))
    shown = ", ".join(listed[:SHOWN])
    return shown if len(listed) <= SHOWN else f"{shown} and {len(listed) - SHOWN} more"


def modules(values: Iterable[str]) -> str:
    """The first few module names; the model itself has the empty name."""
    return names(value or "the model itself" for value in values)


def kept(values: Iterable[str]) -> list[Json]:
    """Names for the evidence, without repeats and bounded."""
    listed: list[Json] = [*dict.fromkeys(values)]
    return listed[:KEPT]


def count(values: Sequence[object], one: str, many: str | None = None) -> str:
    """A number with its noun: "1 parameter", "3 parameters"."""
    return f"{len(values)} {one if len(values) == 1 else many or one + 's'}"


def count_of(number: int, one: str) -> str:
    """The same for a number: "1 element", "18 elements"."""
    return f"{number} {one if number == 1 else one + 's'}"


def differ(values: Sequence[object]) -> str:
    """The verb for that many: "differs" for one."""
    return "differs" if len(values) == 1 else "differ"


def generators(listed: Sequence[str]) -> str:
    """Generators by name: "the torch generator", "the numpy and python generators"."""
    return f"the {' and '.join(listed)} generator{'' if len(listed) == 1 else 's'}"


def brief(value: Json) -> str:
    """A number for a sentence: seven digits of a float; the evidence has it whole."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def at_load(step: int, **place: object) -> Place:
    """A place right after the load at step k."""
    return Place(step=step, stage=LOAD, **place)  # type: ignore[arg-type]


def place_of(one: Difference) -> Place:
    """Where a difference in a trace is."""
    item = one.item
    is_parameter = item.kind in ("param", "grad", "state")
    return Place(
        parameter=item.name if is_parameter else None,
        key=item.key or (None if is_parameter else item.name) or None,
        optimizer=item.optimizer if item.optimizer >= 0 else None,
        group=item.group if item.group >= 0 else None,
        step=one.step,
        stage=one.stage,
    )


def shown(value: Entry | Sample | None) -> Json:
    """A plain value for evidence: the value itself, or what stands for it."""
    if value is None:
        return None
    if value.value is not None:
        return value.value
    digest = value.digest.value if isinstance(value, Entry) and value.digest is not None else value.digest
    return digest.hex() if isinstance(digest, bytes) else None
