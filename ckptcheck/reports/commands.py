"""What a result of verify on commands says of them: which were run, from which checkpoint, what was put offline."""

from collections.abc import Mapping, Sequence
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.sheet import Sheet

_NOTES: Final = 3
"""Sentences on what was not seen that are shown unless all are wanted."""


def commands(sheet: Sheet, result: Result, full: bool) -> None:
    """Say the commands and where the resumed run went on; of several ranks what they share, unless all is wanted."""
    parts = result.parts
    if "reference" in parts:
        sheet.row("Reference", words.scalar(parts["reference"]))
    if "alignment" not in parts:
        return
    rows = entries_of(result, "alignment")
    if "run" not in parts:
        _placed(sheet, rows)
        return
    sheet.row("Run", words.scalar(parts.get("run")))
    sheet.row("Resume", words.scalar(parts.get("resume")))
    checkpoint = parts.get("checkpoint")
    named = f" ({words.scalar(checkpoint)})" if checkpoint else ""
    stopped = f"{_stopped(parts)}{named}"
    seen: list[str] = []
    for row in rows:
        why = words.scalar(row.get("why"))
        if full or why not in seen:
            rank = f"rank {words.scalar(row.get('rank'))}: " if len(rows) > 1 and full else ""
            sheet.row("" if seen else "Resumed", f"{rank}{why}", lead="" if seen else f"{stopped}: ")
            seen.append(why)
    if not rows:
        sheet.row("Resumed", f"{stopped}: it made no step")
    chosen = parts.get("set")
    if full and isinstance(chosen, Mapping) and chosen:
        sheet.row("Set", ", ".join(f"{name}={words.scalar(value)}" for name, value in chosen.items()), style="dim")
    elif not parts.get("online"):
        sheet.row("Offline", "experiment trackers and hubs (-v names the variables, --online leaves them)", style="dim")


def saved_later(sheet: Sheet, result: Result, full: bool) -> None:
    """Say what the runs saved after the resume that was held against each other, and what came of it."""
    rows = [row for row in entries_of(result, "saved_later") if full or not row.get("reason")]
    for place, row in enumerate(rows):
        lead = f"{words.scalar(row.get('path'))}, step {words.scalar(row.get('step'))}: "
        sheet.row("" if place else "Saved later", _saved(row), lead=lead)


def _saved(row: Entry) -> str:
    if row.get("reason"):
        return f"not compared: {words.scalar(row['reason'])}"
    kinds = (("tensors", "tensor"), ("generators", "generator"), ("values", "plain value"))
    counts = [(number, noun) for key, noun in kinds if isinstance(number := row.get(key), int) and number]
    verb = "differs" if sum(number for number, _ in counts) == 1 else "differ"
    said = f"{words.joined([words.counted(*one) for one in counts])} {verb}" if counts else "as in the reference"
    chance = row.get("chance")
    if not isinstance(chance, int) or not chance:
        return said
    return f"{said}, but for {words.counted(chance, 'value')} in which equal runs differ too"


def not_seen(sheet: Sheet, result: Result, full: bool) -> None:
    """Say what the recorder could not see of the scripts."""
    rows = entries_of(result, "notes")
    shown = rows if full else rows[:_NOTES]
    for place, row in enumerate(shown):
        sheet.row("" if place else "Not seen", words.scalar(row.get("note")))
        if full:
            runs, ranks = row.get("runs"), row.get("ranks")
            sheet.row("", f"run {words.scalar(runs)}, rank {words.scalar(ranks)}", style="dim", deeper=True)
    if rows[len(shown) :]:
        sheet.row("", f"and {len(rows) - len(shown)} more (-v shows all)", style="dim")


def _placed(sheet: Sheet, rows: Sequence[Entry]) -> None:
    """Say of traces that were placed on each other where, once for all ranks of which the same is to be said."""
    told = dict.fromkeys(words.scalar(row.get("why")) for row in rows)
    for place, why in enumerate(told):
        sheet.row("" if place else "Placed", why)


def _stopped(parts: Mapping[str, Json]) -> str:
    steps = parts.get("resume_at")
    step = words.scalar(steps[0]) if isinstance(steps, list) and steps else "?"
    signal = parts.get("interrupt")
    return f"stopped by {words.scalar(signal)}" if signal else f"after step {step}"
