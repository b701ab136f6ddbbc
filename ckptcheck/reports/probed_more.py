"""What a probe says beside its table: scenarios, implementations, state kept outside, exact transitions, freezing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.sheet import Sheet

_IN_TABLE: Final = frozenset({"history", "no-history", "lr-zero"})


def scenarios(sheet: Sheet, rows: Sequence[Entry], full: bool) -> None:
    """Say what moved in each further scenario: of one implementation, of the defaults, unless all is wanted."""
    others = [one for one in rows if one.get("scenario") not in _IN_TABLE]
    if not full and others:
        first = others[0].get("variant"), others[0].get("implementation")
        others = [one for one in others if (one.get("variant"), one.get("implementation")) == first]
    told = ""
    for one in others:
        name = _of_scenario(one, full)
        sheet.row("Scenarios" if not told else "", _moved(one), lead=f"{name}: ")
        told = name
    if others:
        sheet.gap()


def _of_scenario(one: Entry, full: bool) -> str:
    grad = f"gradient {words.scalar(one.get('grad'))}"
    named = (words.scalar(one.get(key)) for key in ("optimizer", "variant", "implementation")) if full else ()
    parameter = words.scalar(one.get("parameter"))
    return ", ".join(filter(None, (*named, words.scalar(one.get("scenario")), parameter * (parameter != "p"), grad)))


def _moved(one: Entry) -> str:
    if one.get("raised"):
        return f"raises {words.scalar(one.get('raised'))}"
    keys = one.get("state_changed")
    state = [words.scalar(key) for key in keys] if isinstance(keys, list) else []
    parts = ["value"] * bool(one.get("param_changed")) + state
    said = f"{', '.join(parts)} {'moves' if len(parts) == 1 else 'move'}" if parts else "rests"
    facts = one.get("facts")
    more = (
        [f"{name.replace('_', ' ')} {_said(value)}" for name, value in facts.items()]
        if isinstance(facts, Mapping)
        else []
    )
    return "; ".join([said, *more])


def _said(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        return ", ".join(_said(one) for one in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(one)}" for name, one in value.items())
    return words.scalar(value)


def implementations(sheet: Sheet, result: Result, full: bool) -> None:
    """Say how far each implementation is from the loop over parameters: in one line each, unless all is wanted."""
    rows = entries_of(result, "implementations")
    label = "Against for"
    for name, own in _grouped(rows, "implementation").items():
        there = [one for one in own if not one.get("raised")]
        if not there:
            reason = words.scalar(own[0].get("raised"))
            sheet.row(label, reason if full else "is not there", lead=f"{name}: ")
        else:
            sheet.row(label, _agreement(there), lead=f"{name}: ")
        label = ""
        for one in there if full else ():
            case = ", ".join(filter(None, (words.scalar(one.get(key)) for key in ("optimizer", "variant", "grad"))))
            sheet.row("", _agreement([one]), lead=f"{case}: ", deeper=True)
    if rows:
        sheet.gap()


def _grouped(rows: Iterable[Entry], key: str) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for one in rows:
        found.setdefault(words.scalar(one.get(key)), []).append(one)
    return found


_STATE_ALONE: Final = "in the state alone"


def _agreement(rows: Sequence[Entry]) -> str:
    unlike = [one for one in rows if one.get("bitwise") is not True]
    contracts = [one for one in rows if one.get("same_contract") is False]
    contract = f", another contract in {len(contracts)} of {len(rows)} cases" if contracts else ", the same contract"
    if not unlike:
        return f"the same bits{contract}"
    ulps = [ulp for one in unlike if isinstance(ulp := one.get("max_ulp"), int)]
    sizes = [float(size) for one in unlike if isinstance(size := one.get("max_abs"), int | float)]
    far = [f"{max(ulps)} ULP"] * bool(ulps) + [f"{max(sizes):.1e}"] * bool(sizes)
    if ulps and not max(ulps):  # the parameters agree to the bit
        far = [_STATE_ALONE]
    share = f" in {len(unlike)} of {len(rows)} cases" if len(rows) > 1 else ""
    by = far[0] if far == [_STATE_ALONE] else f"by up to {', '.join(far) or 'some state'}"
    return f"other bits{share}, {by}{contract}"


def keeping(sheet: Sheet, result: Result, full: bool) -> None:
    """Say where a reload of state_dict() does not give the optimizer back; where it does, only if all is wanted."""
    label = "A reload"
    for one in entries_of(result, "keeping"):
        name = ", ".join(filter(None, (words.scalar(one.get("optimizer")), words.scalar(one.get("variant")))))
        if one.get("exact") is True and not full:
            continue
        said = {
            True: "makes the next step with the same bits",
            None: "was not tried: " + words.scalar(one.get("reason")),
        }
        exactly = one.get("exact")
        key = exactly if isinstance(exactly, bool) else None
        sheet.row(label, said.get(key, words.scalar(one.get("difference"))), lead=f"{name}: ")
        label = ""


def exact(sheet: Sheet, result: Result, full: bool) -> None:
    """Say each exact transition: what fractions expect, and what float64 steps came to."""
    rows = entries_of(result, "exact")
    if not rows:
        return
    sheet.gap()
    shown = rows if full else [one for one in rows if one.get("implementation") == "for" or not one.get("passed")]
    head = ("Transition", "Fractions", "float64", "")
    told = (tuple(words.scalar(one.get(key)) for key in ("name", "expected", "observed")) for one in shown)
    sheet.table(head, [[*cells, _held(one)] for cells, one in zip(told, shown, strict=True)])
    sheet.gap()


def _held(one: Entry) -> str:
    told = "holds" if one.get("passed") else "does not hold"
    implementation = words.scalar(one.get("implementation"))
    return told if implementation == "for" else f"{told} ({implementation})"


def freezing(sheet: Sheet, result: Result, full: bool) -> None:
    """Say whether the present way of freezing keeps its contract, what breaks it, and which way would keep it."""
    for (pattern, contract), ways in _contracts(entries_of(result, "freezing")).items():
        present = next((one for one in ways if one.get("name") == "present"), None)
        if present is not None:
            sheet.row("Frozen", _present(present), lead=f"{pattern} = {contract}: ")
        label = "Keeps it"
        for one in ways:
            if one is present or not (full or one.get("keeps")):
                continue
            sheet.row(label, words.scalar(one.get("name")) + _of_way(one))
            label = ""
        sheet.gap()


def _contracts(rows: Iterable[Entry]) -> dict[tuple[str, str], list[Entry]]:
    found: dict[tuple[str, str], list[Entry]] = {}
    for one in rows:
        found.setdefault((words.scalar(one.get("pattern")), words.scalar(one.get("contract"))), []).append(one)
    return found


def _present(one: Entry) -> str:
    if one.get("keeps"):
        return f"kept over {words.scalar(one.get('steps'))} real steps"
    if one.get("keeps") is None:
        return f"not judged: {words.scalar(one.get('reason'))}"
    why = words.scalar(one.get("broken_by"))
    return f"broken at step {words.scalar(one.get('broken_at'))} in {words.scalar(one.get('parameter'))}: {why}"


def _of_way(one: Entry) -> str:
    if one.get("keeps"):
        return ""
    why = words.scalar(one.get("broken_by")) or words.scalar(one.get("reason"))
    return f": would not, {why}" if why else ": would not"
