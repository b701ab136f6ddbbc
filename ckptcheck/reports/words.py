"""Numbers, places and verdicts in words; plain strings, not yet made safe for a terminal."""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Final

from ckptcheck.finding import Compared, Finding, Json, Place, Result, Severity, Verdict

_GOOD_NEWS: Final = {
    "verify": "the resumed run goes on as if it had never stopped",
    "compare": "the two trajectories agree at every step that both hold",
    "save": "the training state is saved",
    "resume": "the run was resumed and recorded",
}
_BAD_NEWS: Final = {
    "verify": "the resumed run is not the run that was stopped",
    "compare": "the two trajectories differ",
}
_NO_NEWS: Final = "nothing could be compared"
_MISSING: Final = frozenset({"CK201", "CK202", "CK203"})
"""Causes that are about something that is not there: it has no numbers."""
_READABLE_ULP: Final = 1_000_000
"""Beyond it a distance in ULP says only that sign or magnitude differ."""
UPDATES: Final = "number of updates"
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def headline(result: Result) -> str:
    """Return what the verdict is about, in a phrase: the cause in words, where it shows first, its code."""
    if result.verdict is Verdict.ERROR:
        return result.error
    if result.verdict is Verdict.PASS:
        return _GOOD_NEWS.get(result.command, "nothing was found")
    finding = cause_finding(result) or _weightiest(result)
    if finding:
        what = f"{finding.name.replace('-', ' ')} ({finding.code})"
    elif result.cause:
        what = result.cause.code
    elif result.verdict is Verdict.INCONCLUSIVE:
        what = _NO_NEWS
    else:
        what = _BAD_NEWS.get(result.command, "see the findings")
    first = result.first_divergence
    if first is None:
        return what
    if result.cause is not None and result.cause.code == "CK615":
        return f"{what}, at {when(first)}, when the signal came"
    return f"{what}, first at {when(first)}"


def cause_finding(result: Result) -> Finding | None:
    """Return the finding that stands for the cause: at the first divergence if there is one, else any."""
    if result.cause is None:
        return None
    same = [finding for finding in result.findings if finding.code == result.cause.code]
    there = [finding for finding in same if finding.where == result.first_divergence]
    return next(iter(there or same), None)


def is_missing(result: Result) -> bool:
    """Tell whether the cause is that something is not there after the load."""
    return result.cause is not None and result.cause.code in _MISSING


def is_without_effect(finding: Finding) -> bool:
    """Tell whether a finding is about a difference after which everything goes on exactly."""
    return finding.evidence.get("without_effect") is True


def accepted(finding: Finding) -> str:
    """Return why a finding does not gate, until when, and where that is written; empty for one that may."""
    told = finding.accepted
    if told is None:
        return ""
    until = f" until {told.until}" if told.until is not None else ""
    return f"accepted{until}: {told.reason} ({told.source})"


def _weightiest(result: Result) -> Finding | None:
    order = list(Severity)
    return min(result.findings, key=lambda finding: order.index(finding.severity), default=None)


def moment(step: Json, stage: Json) -> str:
    """Return when: "step 10, right after the load" or "step 11, stage param"."""
    parts = []
    if step is not None:
        parts.append(f"step {step}")
    if stage == "load":
        parts.append("right after the load")
    elif stage is not None:
        parts.append(f"stage {stage}")
    return ", ".join(parts)


def when(where: Place) -> str:
    """Return when of a place; of the number of an optimizer's updates that, whatever stage is the first to show it."""
    return f"step {where.step}, {UPDATES}" if counts_updates(where) else moment(where.step, where.stage)


def counts_updates(where: Place) -> bool:
    """Tell whether a place is about how many updates an optimizer makes in a step: it then names nothing else of it."""
    named = (where.parameter, where.key, where.group)
    within_step = where.step is not None and where.stage not in (None, "load")
    return within_step and where.optimizer is not None and named == (None, None, None)


def thing(parameter: Json, key: Json) -> str:
    """Return which tensor or value: "blocks.0.fc.weight / exp_avg"."""
    return " / ".join(str(name) for name in (parameter, key) if name is not None)


def place(where: Place) -> str:
    """Return everything that is known of a place, in one phrase; empty where nothing is."""
    parts = [when(where), thing(where.parameter, where.key), binding(where)]
    if where.path is not None:
        parts.append(where.path)
    return ", ".join(part for part in parts if part)


def binding(where: Place) -> str:
    """Return optimizer, group and rank; the first rank goes without saying."""
    named = (("optimizer", where.optimizer), ("group", where.group), ("rank", where.rank or None))
    return ", ".join(f"{name} {value}" for name, value in named if value is not None)


def magnitude(numbers: Mapping[str, Json], *, full: bool = False) -> str:
    """Return how far two tensors are apart, from the keys of a `magnitudes` entry; empty where it says nothing.

    Unless `full`, leaves out what is no use to a reader: a ULP distance in the millions, its median.
    """
    differing, numel, max_abs = (numbers.get(key) for key in ("differing", "numel", "max_abs"))
    parts = []
    if differing is not None and (numel != 1 or full):
        parts.append(f"{differing} of {numel} differ" if numel is not None else f"{differing} differ")
    if max_abs is not None:
        at = numbers.get("max_abs_at")
        label = "off by" if numel == 1 else "max abs"
        parts.append(f"{label} {scalar(max_abs)}" + (f" at {scalar(at)}" if at and (numel != 1 or full) else ""))
    for key, label in (("rel_l2", "rel L2"), ("max_ulp", "max ULP"), ("median_ulp", "median ULP")):
        value = numbers.get(key)
        readable = not key.endswith("ulp") or (key == "max_ulp" and isinstance(value, int) and value <= _READABLE_ULP)
        if value is not None and (full or readable):
            parts.append(f"{label} {scalar(value)}")
    if isinstance(flips := numbers.get("sign_flips"), int) and flips:
        parts.append(counted(flips, "sign flip"))
    parts += [f"{value} {label}" for key, label in (("nan", "NaN"), ("inf", "inf")) if (value := numbers.get(key))]
    return ", ".join(parts)


def evidence(finding: Finding) -> str:
    """Return the evidence that fits a line: plain values and short lists of them."""
    short = {key: value for key, value in finding.evidence.items() if not _is_long(value)}
    return ", ".join(f"{key.replace('_', ' ')} {scalar(value)}" for key, value in short.items())


def _is_long(value: Json) -> bool:
    return isinstance(value, (list, dict)) and len(str(value)) > 60


def policy(value: Json) -> str:
    """Return by which measure things count as equal; empty where the result does not say."""
    if not isinstance(value, Mapping):
        return ""
    exact = "byte for byte" if value.get("name") == "exact" else "state byte for byte, the rest within measured noise"
    roles = value.get("roles")
    told = [(role, _tolerance(one)) for role, one in roles.items()] if isinstance(roles, Mapping) else []
    said = [f"{role} within {amounts}" for role, amounts in told if amounts]
    if rest := _tolerance(value):
        said.append(f"{'other ' if said else ''}computed values within {rest}")
    elif said:
        said.append("the rest byte for byte")
    return ", ".join(said) or exact


def _tolerance(value: Json) -> str:
    if not isinstance(value, Mapping):
        return ""
    return " and ".join(f"{key} {scalar(value[key])}" for key in ("rtol", "atol") if value.get(key))


def scalar(value: Json) -> str:
    """Return a JSON value in short: 3 digits of a float, an index as (0, 17)."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}"
        case list():
            return f"({', '.join(scalar(item) for item in value)})"
        case dict():
            return ", ".join(f"{key} {scalar(item)}" for key, item in value.items())
        case _:
            return str(value)


def exact(value: Json) -> str:
    """Return a plain value so that two that differ look different: all digits of a float."""
    return repr(value) if isinstance(value, float) else scalar(value)


def number(value: Json, dtype: Json) -> str:
    """Return the number in a tensor of one element: as few digits as tell it from any other of its dtype."""
    if not isinstance(value, float):
        return exact(value)
    short = repr(value)
    if dtype == "float32" and math.isfinite(value):
        nearby = (float(f"{value:.{digits}g}") for digits in range(1, 18))
        short = repr(next((one for one in nearby if _as_float32(one) == value), value))
    return short.removesuffix(".0") if value else short


def _as_float32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:  # fewer digits of the largest number can be more than it
        return math.inf


def spec(dtype: Json, shape: Json) -> str:
    """Return a tensor's dtype and shape: "float32[64, 32]"."""
    sizes = ", ".join(map(str, shape)) if isinstance(shape, list) else "?"
    return f"{dtype}[{sizes}]"


def section(name: Json) -> str:
    """Return the name of a section as a label."""
    return str(name).upper() if name in ("rng", "ema") else str(name).capitalize()


def listed(names: Sequence[Json], most: int | None, more: str = "-v shows all") -> str:
    """Return names with commas between them, `most` at most, and how many more there are."""
    shown = ", ".join(scalar(name) for name in names[:most])
    hidden = len(names) - len(names[:most])
    if not hidden:
        return shown
    return f"{shown}{' ' if shown else ''}and {hidden} more" + (f" ({more})" if more else "")


def joined(items: Sequence[str]) -> str:
    """Return "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def compared(counts: Compared) -> str:
    """Return how much was compared."""
    parts = (
        counted(counts.steps, "step"),
        counted(counts.parameters, "parameter"),
        counted(counts.state_tensors, "state tensor"),
        size(counts.bytes),
    )
    return ", ".join(parts)


def counted(number: int, noun: str, many: str = "") -> str:
    """Return "1 step", "20 steps"."""
    return f"{number} {noun if number == 1 else many or noun + 's'}"


def size(count_bytes: int) -> str:
    """Return a number of bytes in binary units, with one decimal."""
    if count_bytes < 1024:
        return counted(count_bytes, "byte")
    power = min((count_bytes.bit_length() - 1) // 10, len(_UNITS))
    return f"{count_bytes / 1024**power:.1f} {_UNITS[power - 1]}"
