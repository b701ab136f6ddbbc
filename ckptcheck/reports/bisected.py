"""What a bisection has proved, in two or three lines."""

from collections.abc import Mapping
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.sheet import Sheet

_SHOWN: Final = 12
"""Further runs of which each is shown with all details."""


def bisected(sheet: Sheet, result: Result, full: bool) -> None:
    """Say what heals the run, and from which resume point on it breaks; where all is wanted, every trial too."""
    part = result.parts.get("bisection")
    if not isinstance(part, Mapping):
        return
    reason, proved = words.scalar(part.get("reason")), part.get("proved") is True
    label = "Proved" if proved else "In part" if part.get("remains") is not None else "Not proved"
    for place, said in enumerate(reason.split("; something else") if label == "In part" else [reason]):
        sheet.row(
            "" if place else label, said if not place else f"something else{said}", style="bold" if proved else ""
        )
    if said := _points(part):
        sheet.row("", said)
    trials = part.get("trials")
    if full and isinstance(trials, list):
        for trial in trials[:_SHOWN]:
            if isinstance(trial, Mapping):
                sheet.row("", _trial(trial), style="dim", deeper=True)
        if len(trials) > _SHOWN:
            sheet.row("", f"and {len(trials) - _SHOWN} more", style="dim", deeper=True)


def _points(part: Mapping[str, Json]) -> str:
    runs = part.get("runs")
    made = f" ({words.scalar(runs)} runs made to find this out)" if runs else ""
    if why := part.get("points_reason"):
        return f"the smallest resume point is not known: {words.scalar(why)}{made}"
    fails, passes = part.get("smallest_resume_at"), part.get("passes_at")
    if fails is None:
        return ""
    below = f", not at {words.scalar(passes)}" if passes is not None else ", the first there is"
    return f"breaks from resume point {words.scalar(fails)} on{below}{made}"


def _trial(trial: Mapping[str, Json]) -> str:
    put, but = (", ".join(map(words.scalar, side)) if isinstance(side := trial.get(key), list) else ""
                for key in ("overlaid", "left_out"))  # fmt: skip
    without = f" without {but}" if but else ""
    if trial.get("healed"):
        return f"{put}{without}: healed"
    place, raised = trial.get("first_divergence"), trial.get("raised")
    where = f"diverges in step {place.get('step')}, {place.get('stage')}" if isinstance(place, Mapping) else ""
    return f"{put}{without}: " + "; ".join(one for one in (where, words.scalar(raised) if raised else "") if one)
