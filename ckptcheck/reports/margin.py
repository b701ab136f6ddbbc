"""The rows that end a text: what was compared, by which runs, what they crossed, what was not judged, and where."""

from collections.abc import Mapping
from typing import Final

from ckptcheck.finding import Compared, Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import entries_of
from ckptcheck.reports.sheet import Sheet

_WITHOUT_COMPARISON: Final = frozenset({"save", "resume"})
_TOLD_ELSEWHERE: Final = frozenset({
    "trajectory", "divergence", "crossed", "runs", "magnitudes", "notes", "set", "run", "resume", "alignment",
    "saved_later", "bisection", "required", "noise", "acceptances", "stages", "gradients", "membership",
})  # fmt: skip
_OUTPUTS: Final = ("checkpoint", "step", "trace", "seconds")
"""What is shown of a command that compares nothing unless all is wanted."""
_LABELS: Final = {"step": "After step"}
_LEFT_OUT: Final = "trajectory_left_out"
"""How many differences are in no part; nothing to say where there are none."""
_IN_SHORT: Final = ("python", "torch", "device", "device_name", "resume_device")
"""Facts of the environment that are shown unless all are wanted, and the thread count."""

_NAMED: Final = 6
"""Rules not judged for one reason that are named unless all are wanted."""
_TRIAL: Final = "bisect-"
"""Begins the name of a run that a bisection made."""
_AGAIN: Final = "-again"
"""In the name of a run that was made once more to measure a difference; such runs go side by side."""


def compared(sheet: Sheet, result: Result) -> None:
    """Say how much was compared, and how; a command that compares nothing does not claim to."""
    if result.command in _WITHOUT_COMPARISON:
        return
    if result.compared == Compared():
        at_load = result.first_divergence is not None and result.first_divergence.stage == "load"
        sheet.row("Compared", "what was loaded, and no step after it" if at_load else "nothing")
        return
    how = words.policy(result.parts.get("policy"))
    sheet.row("Compared", words.compared(result.compared) + (f"; {how}" if how else ""))


def runs(sheet: Sheet, result: Result, full: bool) -> None:
    """Say which runs were made and how many seconds each took; all that is known of each on a line of its own."""
    entries = entries_of(result, "runs")
    if not full:
        again = [entry for entry in entries if _AGAIN in words.scalar(entry.get("name"))]
        trials = [entry for entry in entries if words.scalar(entry.get("name")).startswith(_TRIAL)]
        others = [entry for entry in entries if entry not in again and entry not in trials]
        told = [_in_short(words.scalar(entry.get("name")), entry) for entry in others]
        told += [_in_short(f"{len(again)} more to measure", again[0])] if again else []
        told += [f"{len(trials)} more to bisect"] if trials else []
        if told:
            sheet.row("Runs", ", ".join(told))
        return
    for place, entry in enumerate(entries):
        rest = (f"{key} {words.scalar(value)}" for key, value in entry.items() if key != "name" and value != [])
        sheet.row("" if place else "Runs", ", ".join(rest), lead=f"{words.scalar(entry.get('name'))}: ")


def _in_short(name: str, run: Mapping[str, Json]) -> str:
    seconds, status = run.get("seconds"), run.get("status", "ended")
    took = f" {seconds:.1f} s" if isinstance(seconds, (int, float)) else ""
    code = run.get("exit_code")
    how = f"exit code {words.scalar(code)}" if status == "failed" and code else words.scalar(status)
    return f"{name}{took}" + ("" if status in ("ended", "stopped") else f" ({how})")


def crossed(sheet: Sheet, result: Result) -> None:
    """Say which situations the compared steps met and which they did not."""
    situations = result.parts.get("crossed")
    if not isinstance(situations, Mapping):
        return
    covered, left = situations.get("covered"), situations.get("not_covered")
    if isinstance(covered, list) and covered:
        sheet.row("Crossed", ", ".join(words.scalar(item) for item in covered))
    label = "Not crossed"
    for option, names in _by_option(situations, left if isinstance(left, list) else []).items():
        sheet.row(label, ", ".join(names) + (f" ({option})" if option else ""))
        label = ""


def _by_option(situations: Mapping[str, Json], left: list[Json]) -> dict[str, list[str]]:
    """The names of what was not crossed by the option that would cross it; "" for none comes last."""
    options = {
        words.scalar(one.get("name")): words.scalar(one.get("to_cover") or "")
        for one in rows_of(situations.get("situations"))
    }
    found: dict[str, list[str]] = {}
    for name in sorted((words.scalar(one) for one in left), key=lambda one: not options.get(one)):
        found.setdefault(options.get(name, ""), []).append(name)
    return found


def points(sheet: Sheet, result: Result) -> None:
    """Say after which steps a run was resumed, and what speaks for each, where there are several."""
    situations = result.parts.get("crossed")
    rows = rows_of(situations.get("points")) if isinstance(situations, Mapping) else []
    label = "Resumed"
    for one in rows if len(rows) > 1 else ():
        reasons = one.get("reasons")
        told = ", ".join(words.scalar(reason) for reason in reasons) if isinstance(reasons, list) else ""
        sheet.row(label, f"after step {words.scalar(one.get('step'))}" + (f": {told}" if told else ""))
        label = ""
    for one in rows_of(situations.get("in_a_row")) if isinstance(situations, Mapping) else ():
        if why := one.get("why"):
            run, against = words.scalar(one.get("run")), words.scalar(one.get("against"))
            sheet.row(label, f"held against {against}: {words.scalar(why)}", lead=f"{run}: ")
            label = ""


def rows_of(value: Json) -> list[Mapping[str, Json]]:
    """The mappings of a list; none of anything else."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def not_judged(sheet: Sheet, result: Result, full: bool) -> None:
    """Say which rules lacked what they need, one line for each reason."""
    codes: dict[str, list[str]] = {}
    for rule in result.not_judged:
        codes.setdefault(rule.reason, []).append(rule.code)
    label = "Not judged"
    for reason, named in codes.items():
        rules = ", ".join(named) if full or len(named) <= _NAMED else f"{len(named)} rules (-v names them)"
        sheet.row(label, reason, lead=f"{rules}: ", lead_style="yellow")
        label = ""


def settings(sheet: Sheet, result: Result, full: bool) -> None:
    """Say what was asked for; a command that compares nothing has its outputs here."""
    if not (full or result.command in _WITHOUT_COMPARISON):
        return
    for key, value in result.parts.items():
        if key in _TOLD_ELSEWHERE or (key == _LEFT_OUT and not value):
            continue
        if full or (key in _OUTPUTS and value is not None):
            sheet.row(_LABELS.get(key, key.replace("_", " ").capitalize()), _listed(value))


def _listed(value: Json) -> str:
    """A value in short; of a list of plain ones each, which is no index."""
    plain = isinstance(value, list) and value and not any(isinstance(one, (list, dict)) for one in value)
    return ", ".join(map(words.scalar, value)) if plain and isinstance(value, list) else words.scalar(value)


def environment(sheet: Sheet, result: Result, full: bool) -> None:
    """Say in which environment the runs were made: the facts that decide, or all of them."""
    facts = result.environment
    sides = {name: _deciding(side) for name in ("left", "right") if isinstance(side := facts.get(name), Mapping)}
    if full:
        sides = {"": dict(facts)}
    elif not sides or sides.get("left") == sides.get("right"):
        sides = {"": next(iter(sides.values()), _deciding(facts))}
    label = "Environment"
    for name, side in sides.items():
        if said := ", ".join(f"{key} {words.scalar(value)}" for key, value in side.items()):
            sheet.row(label, said, style="dim", lead=f"{name}: " if name else "", lead_style="dim")
            label = ""


def _deciding(facts: Mapping[str, Json]) -> dict[str, Json]:
    flags = facts.get("flags")
    threads = flags.get("num_threads") if isinstance(flags, Mapping) else facts.get("threads")
    short = {key: facts[key] for key in _IN_SHORT if key in facts}
    if short.get("resume_device") == short.get("device"):
        short.pop("resume_device", None)
    return {key.replace("_", " "): value for key, value in short.items()} | ({"threads": threads} if threads else {})
