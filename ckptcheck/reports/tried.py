"""What a dry-run of the load says: how it went, what was held against the training, what was not loaded."""

from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry
from ckptcheck.reports.sheet import Sheet

_SHOWN: Final = 6
"""Names of parameters that were not loaded, unless all are wanted."""
_KEPT: Final = 200
"""Names that a result keeps at most."""
_WITHOUT_LOAD: Final = {"CK301": "groups", "CK302": "order", "CK304": "shapes"}
"""What the rules about optimizers hold against the training where nothing was loaded."""
_AFTER_LOAD: Final = {"CK202": "optimizer state", "CK306": "hyperparameters"}


def fits(result: Result, but: str) -> str:
    """Say that the checkpoint fits the training, and no more than was held against it; "" without a target.

    `but` counts what stands against it.
    """
    told = result.parts.get("target")
    if not isinstance(told, Mapping):
        return ""
    if told.get("raised"):
        return "the load raised"
    held = words.joined([*_held(told)])
    if not held:
        return "nothing was held against the training"
    without = "" if told.get("loaded") else " as far as is seen without a load"
    said = f"fits the training{without}{f' but for {but}' if but else ''}: {held} held against it"
    return "; ".join([said, *_open(told)])


def target(sheet: Sheet, result: Result, full: bool) -> None:
    """Say into which training the load was tried, how that went, and which optimizer went into which."""
    told = result.parts.get("target")
    if not isinstance(told, Mapping):
        return
    sheet.row("Target", f"{words.scalar(told.get('target'))}: {_went(told, result)}")
    missing = told.get("parameters_not_loaded")
    is_told = any(one.code == "CK309" for one in result.findings)
    if told.get("loaded") and isinstance(missing, list) and missing and (full or not is_told):
        of = f"{_lacking(told, missing)} not in the file: "
        sheet.row("", words.listed(missing, None if full else _SHOWN), lead=of, lead_style="yellow")
    for one in _pairs(told):
        sheet.row("", _paired(one))
    left_out = told.get("left_out")
    if isinstance(left_out, list) and left_out:
        sheet.row("", "; ".join(words.scalar(one) for one in left_out), lead="not tried: ")


def _went(told: Entry, result: Result) -> str:
    """How the load went, in a few words; what it raised is not said again where a finding says it."""
    if raised := words.scalar(told.get("raised") or ""):
        codes = [one.code for one in result.findings if raised in one.message]
        return f"{words.scalar(told.get('how') or 'the load')} raised {f'({codes[0]})' if codes else raised}"
    if not told.get("loaded"):
        return f"not loaded: {words.scalar(told.get('not_loaded') or 'nobody knows how')}"
    return f"loaded by {words.scalar(told.get('how'))}, in a process of its own"


def _held(told: Entry) -> Iterator[str]:
    """What was held against the training, in words."""
    loaded, judged = bool(told.get("loaded")), _judged(told)
    if loaded and "CK309" in judged and not _left_out(told, "model"):
        yield "weights"
    if not any(one.get("file") is not None for one in _pairs(told)) or _left_out(told, "optimizer"):
        return
    yield from (word for code, word in _AFTER_LOAD.items() if loaded and code in judged)
    yield from (word for code, word in _WITHOUT_LOAD.items() if code in judged)


def _open(told: Entry) -> Iterator[str]:
    """What was not held against it though the file has it."""
    lacking, judged = told.get("parameters_not_loaded"), _judged(told)
    if told.get("loaded") and isinstance(lacking, list) and lacking:
        yield f"{_lacking(told, lacking)} not in the file"
    missing = [word for code, word in _WITHOUT_LOAD.items() if code not in judged]
    pairs = [one for one in _pairs(told) if one.get("file") is not None]
    if bare := [words.scalar(one.get("optimizer")) for one in _pairs(told) if one.get("file") is None]:
        yield f"the file has nothing for {f'optimizer {words.joined(bare)}' if pairs else 'the optimizer'}"
    if pairs and missing:
        why = "" if all(one.get("named") for one in pairs) else ", as the file has no names"
        yield f"{words.joined(missing)} not judged{why}"


def _lacking(told: Entry, names: list[Json]) -> str:
    """Return "2 of 8 parameters are"; a long list of names is bounded, and its length then says "at least"."""
    least = "at least " if len(names) >= _KEPT else ""
    return (
        f"{least}{len(names)} of {words.scalar(told.get('parameters'))} parameters {'is' if len(names) == 1 else 'are'}"
    )


def _judged(told: Entry) -> list[str]:
    codes = told.get("judged")
    return [words.scalar(one) for one in codes] if isinstance(codes, list) else []


def _left_out(told: Entry, head: str) -> bool:
    rows = told.get("left_out")
    return isinstance(rows, list) and any(words.scalar(one).startswith(head) for one in rows)


def _pairs(told: Entry) -> list[Entry]:
    rows = told.get("pairs")
    return [one for one in rows if isinstance(one, Mapping)] if isinstance(rows, list) else []


def _paired(one: Entry) -> str:
    """Which optimizer of the file was held against one of the training, and by what their parameters were matched."""
    name = f"optimizer {words.scalar(one.get('optimizer'))}"
    name += f" ({words.scalar(one.get('class'))})" if one.get("class") else ""
    if one.get("file") is None:
        return f"{name}: the file has none for it"
    by = "name" if one.get("named") else "position"
    return f"{name} held against optimizer {words.scalar(one.get('file'))} of the file, parameters matched by {by}"
