"""From what a user asks about two commands to the settings of their experiment."""

import re
import signal
from pathlib import Path
from typing import Final

from ckptcheck.errors import UsageError
from ckptcheck.experiment.commands.plan import CommandSettings
from ckptcheck.trace.file import Trace
from ckptcheck.verdict.asking import Commands, picks

UNABLE: Final = frozenset({"SIGSTOP", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGCHLD", "SIGWINCH", "SIGURG"})
"""Signals that do not end a process."""


def settings_of(asked: Commands) -> CommandSettings:
    """The settings of an experiment. UsageError for an interruption that cannot be read."""
    assert asked.run is not None and asked.resume is not None
    interrupt = interruption(asked.interrupt) if asked.interrupt is not None else None
    if interrupt is not None and asked.steps is not None and interrupt[1] >= asked.steps:
        raise UsageError(f"--interrupt {asked.interrupt}: with --steps {asked.steps} no step follows to resume into")
    return CommandSettings(
        run=asked.run,
        resume=asked.resume,
        steps=asked.steps,
        resume_at=next((one for one in asked.resume_at if isinstance(one, int)), None),
        folder=Path(asked.folder) if asked.folder is not None else None,
        shared=asked.share,
        environment=dict(asked.env),
        online=asked.online,
        interrupt=interrupt,
        digest=asked.digest,
        timeout_s=asked.timeout_s,
        jobs=asked.jobs,
        every=asked.every,
        only=asked.only,
        grads=asked.grads,
        prefers=_preferred if picks(asked.resume_at) else None,
    )


def _preferred(reference: Trace) -> list[int]:
    from ckptcheck.verdict.course import course_of
    from ckptcheck.verdict.scouting import preferred_points

    return preferred_points(course_of(reference))


def interruption(text: str) -> tuple[int, int]:
    """(number of the signal, step) from SIGNAL@STEP, such as TERM@7, SIGUSR1@7 or 15@7; UsageError for the rest."""
    found = re.fullmatch(r"(?:SIG)?(\w+)@(\d+)", text.strip(), re.IGNORECASE)
    if found is None or int(found[2]) < 1:
        raise UsageError(f"--interrupt {text!r} is not SIGNAL@STEP, such as TERM@7")
    name, step = found[1].upper(), int(found[2])
    known = {one.name: one for one in signal.Signals}
    number = known.get(f"SIG{name}") or next((one for one in known.values() if str(one.value) == name), None)
    if number is None:
        raise UsageError(f"--interrupt {text!r}: there is no signal {found[1]}; use TERM, INT, USR1, ...")
    if number.name in UNABLE:
        raise UsageError(f"--interrupt {text!r}: {number.name} does not end a process; use TERM, INT, USR1, ...")
    return int(number), step
