"""Numbers, places and verdicts in words; plain strings, not yet made safe for a terminal."""

from collections.abc import Mapping
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
    else:
        what = _BAD_NEWS.get(result.command, "see the findings")
    first = result.first_divergence
    return f"{what}, first at {moment(first.step, first.stage)}" if first else what


def cause_finding(result: Result) -> Finding | None:
    """Return the finding that stands for the cause: at the first divergence if there is one, else any."""
    if result.cause is None:
        return None
    same = [finding for finding in result.findings if finding.code == result.cause.code]
    there = [finding for finding in same if finding.where == result.first_divergence]
    return next(iter(there or same), None)


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


def thing(parameter: Json, key: Json) -> str:
    """Return which tensor or value: "blocks.0.fc.weight / exp_avg"."""
    return " / ".join(str(name) for name in (parameter, key) if name is not None)


def place(where: Place) -> str:
    """Return everything that is known of a place, in one phrase; empty where nothing is."""
    parts = [moment(where.step, where.stage), thing(where.parameter, where.key), binding(where)]
    if where.path is not None:
        parts.append(where.path)
    return ", ".join(part for part in parts if part)


def binding(where: Place) -> str:
    """Return optimizer, group and rank; the first rank goes without saying."""
    named = (("optimizer", where.optimizer), ("group", where.group), ("rank", where.rank or None))
    return ", ".join(f"{name} {value}" for name, value in named if value is not None)


def magnitude(numbers: Mapping[str, Json]) -> str:
    """Return how far two tensors are apart, from the keys of a `magnitudes` entry; empty where it says nothing."""
    parts = []
    if (differing := numbers.get("differing")) is not None:
        total = numbers.get("numel")
        parts.append(f"{differing} of {total} unequal" if total is not None else f"{differing} unequal")
    if (max_abs := numbers.get("max_abs")) is not None:
        at = numbers.get("max_abs_at")
        parts.append(f"max abs {scalar(max_abs)}" + (f" at {scalar(at)}" if at is not None else ""))
    for key, label in (("rel_l2", "relative L2"), ("max_ulp", "max ULP"), ("median_ulp", "median ULP")):
        if (value := numbers.get(key)) is not None:
            parts.append(f"{label} {scalar(value)}")
    for key, label in (("sign_flips", "sign flips"), ("nan", "NaN"), ("inf", "inf")):
        if value := numbers.get(key):
            parts.append(f"{scalar(value)} {label}")
    return ", ".join(parts)


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


def compared(counts: Compared) -> str:
    """Return how much was compared."""
    if counts == Compared():
        return "nothing"
    parts = (
        counted(counts.steps, "step"),
        counted(counts.parameters, "parameter"),
        counted(counts.state_tensors, "state tensor"),
        size(counts.bytes),
    )
    return ", ".join(parts)


def counted(number: int, noun: str) -> str:
    """Return "1 step", "20 steps"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def size(count_bytes: int) -> str:
    """Return a number of bytes in binary units, with one decimal."""
    if count_bytes < 1024:
        return counted(count_bytes, "byte")
    power = min((count_bytes.bit_length() - 1) // 10, len(_UNITS))
    return f"{count_bytes / 1024**power:.1f} {_UNITS[power - 1]}"
