"""CK208: averaged weights that do not fit the model or the training beside them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, also
from ckptcheck.rules.runs import completeness as runs
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.raw import RawTensor
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Entry, Parameter

UPDATES: Final = frozenset({"updates", "num_updates", "n_averaged", "optimization_step", "n_updates", "ema_step"})
"""What averages call the number of their updates."""
_BEGINS_LATER: Final = frozenset({"n_averaged"})
"""Counters of averages that may begin late in a training (SWA): zero tells little."""
_MIN_SHARE: Final = 0.5
"""Share of the trained parameters that an average must have by name before the others are missed."""


@also(runs.ema_state_inconsistent)
def ema_state_inconsistent(stored: Stored) -> Iterator[Evidence]:
    """The average lacks parameters, has other shapes, is the model itself, or was never updated."""
    state = stored.checkpoint.state
    ema = state.sections.get("ema", {})
    if stored.purpose is not Purpose.RESUME or not ema:
        return
    pairs = _pairs(ema, state.parameters)
    yield from _other_shapes(pairs)
    yield from _lacking(stored, pairs)
    if state.step is None or state.step <= 0:
        return
    same = [name for name, (own, average) in pairs.items() if _same_bytes(own, average)]
    if pairs and len(same) == len(pairs):
        yield Evidence(
            f"the average is no copy: all {count(same, 'tensor')} of it are the model's own, at step {state.step}",
            Place(parameter=same[0], key="ema"),
            {"parameters": kept(same)},
            "average into tensors of its own: deepcopy the model before the first update",
        )
    yield from _never_updated(stored)


def _pairs(ema: Mapping[str, Entry], parameters: Mapping[str, Parameter]) -> dict[str, tuple[Entry, Entry]]:
    """Parameters and their averages, by name; an average may have anything in front of its name."""
    tensors = {path: one for path, one in ema.items() if one.spec is not None}
    by_end = by_ends(tensors)
    return {name: (one.entry, tensors[by_end[name]]) for name, one in parameters.items() if name in by_end}


def by_ends(paths: Iterable[str]) -> dict[str, str]:
    """Each path by itself, and by every end of it behind a dot that can be a parameter's name."""
    found = {path: path for path in paths}
    for path in [*found]:
        for place, character in enumerate(path):
            if character == ".":
                found.setdefault(path[place + 1 :], path)
    return found


def _other_shapes(pairs: Mapping[str, tuple[Entry, Entry]]) -> Iterator[Evidence]:
    unlike = {
        name: (own.spec, average.spec) for name, (own, average) in pairs.items()
        if own.spec and average.spec and own.spec.shape != average.spec.shape
    }  # fmt: skip
    for name, (own, average) in [*unlike.items()][:1]:
        more = f", and {len(unlike) - 1} more" if len(unlike) > 1 else ""
        yield Evidence(
            f"the average of {name} is {average} and the parameter is {own}{more}",
            Place(parameter=name, key="ema"),
            {"parameters": kept(unlike), "differing": len(unlike)},
            "build the average from the model that is trained",
        )


def _lacking(stored: Stored, pairs: Mapping[str, tuple[Entry, Entry]]) -> Iterator[Evidence]:
    parameters = stored.checkpoint.state.parameters
    trained = {name for one in stored.checkpoint.state.optimizers for name in one.state if name in parameters}
    missing = [name for name in parameters if name in trained and name not in pairs]
    if missing and len(pairs) >= _MIN_SHARE * len(trained):
        yield Evidence(
            f"the average lacks {count(missing, 'parameter')} that the optimizer trains: {names(missing)}",
            Place(parameter=missing[0], key="ema"),
            {"parameters": kept(missing), "missing": len(missing)},
            "average every trained parameter",
        )


def _same_bytes(own: Entry, average: Entry) -> bool:
    """Whether two entries are one tensor of the file."""
    if not (isinstance(own.ref, RawTensor) and isinstance(average.ref, RawTensor)):
        return False
    return own.ref.place is not None and own.ref.place == average.ref.place


def _never_updated(stored: Stored) -> Iterator[Evidence]:
    state = stored.checkpoint.state
    for path, entry in _counters(stored):
        value = finite_number(entry)
        if value is not None and value <= 0:
            late = path.rpartition(".")[2] in _BEGINS_LATER
            yield Evidence(
                f"the average's counter {path} is {value:g} at step {state.step}: it was never updated, or its warm-up "
                "starts again",
                Place(key=path),
                {"counter": value, "step": state.step},
                "save and load the EMA's own state, its counter with it",
                Severity.INFO if late else Severity.WARNING,
            )


def _counters(stored: Stored) -> Sequence[tuple[str, Entry]]:
    """Counters of updates in the average, or at the root beside it."""
    sections = stored.checkpoint.state.sections
    inside = [(path, one) for path, one in sections.get("ema", {}).items() if path.rpartition(".")[2] in UPDATES]
    beside = [(path, one) for path, one in sections.get("extra", {}).items() if path == "updates"]
    return [*inside, *beside]
