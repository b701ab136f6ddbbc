"""What a result of verify on commands holds beside its findings."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from ckptcheck.experiment.commands.finding import Found
from ckptcheck.experiment.commands.plan import CommandSettings
from ckptcheck.experiment.commands.recorded import Recorded, not_seen
from ckptcheck.experiment.process import signal_name
from ckptcheck.finding import Json
from ckptcheck.state.stages import STAGE_ORDER
from ckptcheck.trace.file import Trace
from ckptcheck.verdict.course import course_of
from ckptcheck.verdict.crossed import YES, Experimented, situations, told
from ckptcheck.verdict.scouting import reasons_for
from ckptcheck.verdict.scripts.placing import Placed, last_step

UNSEEN: Final = frozenset({
    "the end of an epoch", "a resume in the middle of an accumulation window", "a second resume in a row",
    "a second save", "a step without an update", "a resume with modules in evaluation mode",
})  # fmt: skip
"""Situations that a recorded script does not show, or that commands never meet: nothing is claimed about them."""


def settings_part(settings: CommandSettings) -> dict[str, Json]:
    """What was asked for."""
    return {
        "run": settings.run,
        "resume": settings.resume,
        "steps": settings.steps,
        "interrupt": f"{signal_name(settings.interrupt[0])} after step {settings.interrupt[1]}"
        if settings.interrupt is not None
        else None,
        "folder": str(settings.folder) if settings.folder is not None else None,
        "shared": list(settings.shared),
        "online": settings.online,
        "every": settings.every,
        "only": list(settings.only),
        "grads": settings.grads,
    }


def name_of(found: Found | None, source: Recorded) -> str:
    """The path of a checkpoint below the output folder that it lies in, or below the copy of that; "" for none."""
    if found is None or source.output is None:
        return ""
    parts = found.path.parts[len(source.output.parent.parts) + 1 :]
    return "/".join(parts) or "the output folder"


def time_of(rows: Sequence[Json]) -> tuple[float, int]:
    """When the first of a run's rows is, in step and stage; after everything where there is none."""
    first = next((row for row in rows if isinstance(row, dict)), None)
    if first is None or not isinstance(first["step"], int):
        return inf, 0
    return first["step"], STAGE_ORDER[str(first["stage"])]


def placing_part(placed: Sequence[tuple[int, Placed | None]]) -> list[Json]:
    """Where each rank of the resumed run that made a step goes on, and how that is known."""
    rows: list[Json] = []
    for rank, one in placed:
        if one is not None and one.trace.steps:
            alignment = one.alignment
            rows.append({
                "rank": rank, "step": one.step, "by": alignment.by, "matched": alignment.matched,
                "of": alignment.of, "why": alignment.why,
            })  # fmt: skip
    return rows


def run_rows(runs: Iterable[Recorded]) -> list[Json]:
    """One row a run: how it ended, where its time went in seconds, how many steps its longest process made."""
    return [
        {
            "name": one.name,
            "status": one.status,
            "exit_code": one.exit_code,
            "seconds": round(one.total_s, 3),
            "recording_s": round(max((_cost(trace) for trace in one.traces), default=0.0), 3),
            "steps": max((last_step(trace) for trace in one.traces), default=0),
            "processes": len(one.traces),
            "notes": list(one.notes),
        }
        for one in runs
    ]


def notes_part(runs: Iterable[Recorded]) -> list[Json]:
    """What the processes say of their recording: a row for each sentence, with the runs and ranks that say it."""
    found: dict[str, tuple[dict[str, None], dict[int, None]]] = {}
    for run in runs:
        for trace in run.traces:
            for sentence in not_seen(trace):
                names, ranks = found.setdefault(sentence, ({}, {}))
                names[run.name] = None
                ranks[int(trace.header.get("rank", 0))] = None
    return [{"note": one, "runs": [*names], "ranks": [*sorted(ranks)]} for one, (names, ranks) in found.items()]


def _cost(trace: Trace) -> float:
    cost = trace.header.get("recording_s", 0.0)
    return float(cost) if isinstance(cost, int | float) else 0.0


def crossed_part(reference: Trace, step: int) -> dict[str, Json]:
    """The situations that the compared steps covered and those that they did not, as far as a recording shows them."""
    done = Experimented(course_of(reference), (step,), chained=False)
    found = [one for one in situations(done) if one.covered == YES or one.name not in UNSEEN]
    return told(found, [(step, reasons_for(done.course, step))])


def facts(header: Mapping[str, Any]) -> dict[str, Json]:
    """The environment of a recorded process."""
    names = ("python", "torch", "platform", "device", "device_name", "cuda", "flags", "numpy", "digest", "world_size")
    flags = header.get("flags")
    threads = {"threads": flags["num_threads"]} if isinstance(flags, Mapping) and "num_threads" in flags else {}
    return {name: header[name] for name in names if name in header} | threads
