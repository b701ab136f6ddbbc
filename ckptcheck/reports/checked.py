"""The report of one checkpoint: what is wrong with it, what it was judged for, whose state it holds, its memory."""

from collections.abc import Mapping
from typing import Final

from ckptcheck.finding import Json, Result, Severity, Verdict
from ckptcheck.reports import files, run_table, tried, words
from ckptcheck.reports.accepted import acceptances
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.findings import FEW, other_findings
from ckptcheck.reports.margin import not_judged
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet

_FIT: Final = {"resume": "nothing is missing for a resume", "release": "nothing stands against a release"}
_NAMED: Final = {
    "param_names": "names from param_names",
    "keys": "keyed by name",
    "slices": "names from its slices",
    "user": "names as given",
    "model-order": "names by the model's order",
    "grouping": "names by a known grouping rule",
    "target": "names by the target",
    "none": "names not known",
}
"""Where the names come from, in words; any other source is told as it is."""
_CODES: Final = 4
"""Codes beside the weightiest one that the headline names."""
_MIN_SHARE: Final = 0.01
"""Share of the peak from which on a duplicate is told."""


def headline(result: Result) -> str:
    """What stands against the checkpoint, or that nothing does; of a run, whether it is the newest that was judged."""
    return "; ".join(filter(None, (_stands(result), _passed_over(result))))


def _passed_over(result: Result) -> str:
    """That the newest checkpoint of a run is not whole, and which one was judged in its stead."""
    told = result.parts.get("chosen")
    skipped = told.get("skipped") if isinstance(told, Mapping) else None
    if not isinstance(skipped, list) or not skipped:
        return ""
    newest = words.scalar(skipped[0]).partition(": ")[0]
    judged = words.scalar(result.parts.get("path")).rpartition("/")[2]
    return f"the newest, {newest}, is not whole: {judged} was judged"


def _stands(result: Result) -> str:
    if result.verdict is Verdict.PASS:
        return "; ".join(filter(None, (*_fit(result), _files(result))))
    required = result.parts.get("required")
    failing = any(finding.severity is not Severity.INFO for finding in result.findings)
    if result.verdict is Verdict.FAIL and required and isinstance(required, list) and not failing:
        return f"demanded and not judged: {words.listed(required, 6, more='')}"
    if result.verdict is Verdict.INCONCLUSIVE or not result.findings:
        return "no rule could judge the checkpoint"
    return _against(result)


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Write what stands below the headline."""
    full = page.detail is Detail.ALL
    other_findings(sheet, result, full, most=FEW)
    demanded(sheet, result)
    acceptances(sheet, result, full)
    sheet.gap()
    files.checked(sheet, result)
    files.layout(sheet, result)
    purpose(sheet, result)
    optimizers(sheet, result, full)
    memory(sheet, result)
    tried.target(sheet, result, full)
    run_table.series(sheet, result, full)
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
    if not isinstance(told, Mapping):
        return
    judged_for, reason = told.get("judged_for"), words.scalar(told.get("reason"))
    if judged_for is None:
        sheet.row("Judged for", f"nothing: {reason}")
    else:
        asked = told.get("asked") == judged_for
        sheet.row("Judged for", f"{words.scalar(judged_for)}, {'as asked' if asked else f'as {reason}'}")


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


def _against(result: Result) -> str:
    """The weightiest finding, and the codes of others that weigh as much."""
    order = [*Severity]
    most = min((one.severity for one in result.findings), key=order.index)
    first = next(one for one in result.findings if one.severity is most)
    codes = dict.fromkeys(one.code for one in result.findings if one.severity is most and one.code != first.code)
    said = f"{first.name.replace('-', ' ')} ({first.code})"
    return f"{said}, also {words.listed([*codes], _CODES, more='')}" if codes else said


def _fit(result: Result) -> list[str]:
    """How the checkpoint stands for its purpose, and how it fits the training that it was held against."""
    told = result.parts.get("purpose")
    judged_for = words.scalar(told.get("judged_for")) if isinstance(told, Mapping) else ""
    if judged_for not in _FIT:
        return []
    errors, warnings = (_count(result, severity) for severity in (Severity.ERROR, Severity.WARNING))
    counts = [words.counted(one, noun) for one, noun in ((errors, "error"), (warnings, "warning")) if one]
    fits = "" if errors else tried.fits(result, " and ".join(counts))
    if fits:
        return [fits]
    if counts:
        return [f"{' and '.join(counts)}, which {'does' if errors + warnings == 1 else 'do'} not fail the check"]
    select, ignore = (_asked(result, key) for key in ("select", "ignore"))
    if select not in ([], ["CK"]):
        return [f"nothing found by the rules asked for ({words.listed([*select], _CODES, more='')})"]
    aside = f", {words.listed([*ignore], _CODES, more='')} left aside" if ignore else ""
    unjudged = any(one.code.startswith("CK2") for one in result.not_judged)
    if judged_for == "resume" and not result.compared.parameters:
        return [f"a part of a checkpoint: there are no weights in it; nothing is wrong with what is there{aside}"]
    return [_FIT[judged_for] + (", as far as could be judged" if unjudged else "") + aside]


def _asked(result: Result, key: str) -> list[Json]:
    """Which codes the rules were chosen or left out by."""
    told = result.parts.get("asked")
    codes = told.get(key) if isinstance(told, Mapping) else None
    return codes if isinstance(codes, list) else []


def _files(result: Result) -> str:
    """That nothing is wrong with the files, and no more than was held against checksums."""
    told = any(one.code.startswith("CK1") and one.severity is not Severity.INFO for one in result.findings)
    return "" if told else files.whole(result)


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
