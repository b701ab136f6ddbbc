"""The report of one checkpoint: what is wrong with it, what it was judged for, whose state it holds, its memory."""

from collections.abc import Mapping
from typing import Final

from ckptcheck.finding import Json, Result, Severity, Verdict
from ckptcheck.reports import files, words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.findings import other_findings
from ckptcheck.reports.margin import not_judged
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet

_FIT: Final = {"resume": "nothing is missing for a resume", "release": "nothing stands against a release"}
_NAMED: Final = {
    "param_names": "names from param_names",
    "keys": "keyed by name",
    "slices": "names from its slices",
    "user": "names as given",
    "none": "names not known",
}
"""Where the names come from, in words; any other source is told as it is."""
_MIN_SHARE: Final = 0.01
"""Share of the peak from which on a duplicate is told."""


def headline(result: Result) -> str:
    """What stands against the checkpoint, or that nothing does, for its purpose and in its files."""
    if result.verdict is Verdict.PASS:
        return "; ".join(filter(None, (_fit(result), _files(result))))
    required = result.parts.get("required")
    failing = any(finding.severity is not Severity.INFO for finding in result.findings)
    if result.verdict is Verdict.FAIL and required and isinstance(required, list) and not failing:
        return f"demanded and not judged: {words.listed(required, 6, more='')}"
    return words.headline(result) if result.findings else "no rule could judge the checkpoint"


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Write what stands below the headline."""
    full = page.detail is Detail.ALL
    other_findings(sheet, result, full)
    demanded(sheet, result)
    sheet.gap()
    files.checked(sheet, result)
    files.layout(sheet, result)
    purpose(sheet, result)
    optimizers(sheet, result, full)
    memory(sheet, result)
    target(sheet, result)
    series(sheet, result)
    files.verified(sheet, result, full)
    not_judged(sheet, result, full)


def demanded(sheet: Sheet, result: Result) -> None:
    """Say which rules were demanded and could not judge; why stands with what was not judged."""
    required = result.parts.get("required")
    if isinstance(required, list) and required:
        sheet.row("Demanded", f"{words.listed(required, None)} could not be judged: see below", style="red")


def purpose(sheet: Sheet, result: Result) -> None:
    """Say what the checkpoint was judged for, and why that."""
    told = result.parts.get("purpose")
    if isinstance(told, Mapping):
        sheet.row("Judged for", f"{words.scalar(told.get('judged_for'))}: {words.scalar(told.get('reason'))}")


def target(sheet: Sheet, result: Result) -> None:
    """Say into which target the load was tried, and how that went."""
    told = result.parts.get("target")
    if not isinstance(told, Mapping):
        return
    name, raised = words.scalar(told.get("target")), told.get("raised")
    how = f" by {words.scalar(told.get('how'))}" if told.get("how") else ""
    went = f"loaded{how}" if told.get("loaded") else words.scalar(told.get("not_loaded") or "not loaded")
    sheet.row("Target", f"{name}: {f'the load raised {words.scalar(raised)}' if raised else went}")


def series(sheet: Sheet, result: Result) -> None:
    """Say which checkpoints of the run were held against each other."""
    rows = entries_of(result, "series")
    steps = [one.get("step") for one in rows]
    known = [step for step in steps if isinstance(step, int)]
    if rows:
        reach = f", steps {min(known)} to {max(known)}" if known else ""
        sheet.row("Series", f"{words.counted(len(rows), 'checkpoint')} of the run held against each other{reach}")


def optimizers(sheet: Sheet, result: Result, full: bool) -> None:
    """Say of each optimizer what it can be, how many of its parameters have state, and where their names come from."""
    rows = entries_of(result, "optimizers")
    label = "Optimizer" if len(rows) == 1 else "Optimizers"
    for place, one in enumerate(rows):
        lead = f"{place}: " if len(rows) > 1 else ""
        sheet.row(label, _optimizer(one), lead=lead)
        naming = one.get("naming")
        if full and isinstance(naming, Mapping):
            sheet.row("", words.scalar(naming.get("reason")), style="dim", deeper=True)
        label = ""


def memory(sheet: Sheet, result: Result) -> None:
    """Say what a load takes beyond a fresh run, and of what that is made."""
    told = result.parts.get("memory")
    if not isinstance(told, Mapping) or not told.get("peak_bytes"):
        return
    peak, extra = _size(told, "peak_bytes"), _size(told, "extra_bytes")
    more = f"{extra} more than" if told.get("extra_bytes") else "no more than"
    sheet.row("Memory", f"a load takes {peak} at its peak, {more} a fresh run after its first step")
    said = [f"{_size(one, 'bytes')} {words.scalar(one.get('what'))}" for one in _weighty(told)]
    devices = told.get("devices")
    gpus = {key: size for key, size in devices.items() if key != "cpu"} if isinstance(devices, Mapping) else {}
    placed = [f"{words.size(size)} onto {key}" for key, size in gpus.items() if isinstance(size, int)]
    said += [f"{' and '.join(placed)}, unless map_location says otherwise"] if placed else []
    if said:
        sheet.row("", "; ".join(said))


def _fit(result: Result) -> str:
    """How the checkpoint stands for its purpose."""
    told = result.parts.get("purpose")
    judged_for = words.scalar(told.get("judged_for")) if isinstance(told, Mapping) else ""
    if not judged_for:
        return ""
    errors, warnings = (_count(result, severity) for severity in (Severity.ERROR, Severity.WARNING))
    counts = [words.counted(one, noun) for one, noun in ((errors, "error"), (warnings, "warning")) if one]
    if counts:
        return f"{' and '.join(counts)}, which {'does' if errors + warnings == 1 else 'do'} not fail the check"
    return _FIT.get(judged_for, "")


def _files(result: Result) -> str:
    """That nothing is wrong with the files, and no more than was held against checksums."""
    return files.whole(result) if not any(one.code.startswith("CK1") for one in result.findings) else ""


def _count(result: Result, severity: Severity) -> int:
    return sum(one.severity is severity for one in result.findings)


def _optimizer(one: Entry) -> str:
    classes = one.get("classes")
    named = " or ".join(words.scalar(name) for name in classes) if isinstance(classes, list) else ""
    held = f"state of {words.scalar(one.get('with_state'))} of {_parameters(one)}"
    return ", ".join([named or "class not known", held, _naming(one.get("naming"))])


def _parameters(one: Entry) -> str:
    count = one.get("parameters")
    return words.counted(count, "parameter") if isinstance(count, int) else "its parameters"


def _naming(told: Json) -> str:
    if not isinstance(told, Mapping):
        return "names not known"
    source = words.scalar(told.get("source"))
    said = _NAMED.get(source, f"names by {source.replace('-', ' ')}")
    return said if told.get("certain") or source == "none" else f"{said}, not certain"


def _size(told: Mapping[str, Json], key: str) -> str:
    value = told.get(key)
    return words.size(value) if isinstance(value, int) else "?"


def _weighty(told: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """What the file holds beside one copy, where it is worth a word."""
    rows, peak = told.get("duplicates"), told.get("peak_bytes")
    if not isinstance(rows, list) or not isinstance(peak, int):
        return []
    kept = (one for one in rows if isinstance(one, Mapping))
    return [one for one in kept if isinstance(size := one.get("bytes"), int) and size >= _MIN_SHARE * peak]
