"""The parent's side of the rendezvous: hears what the processes of one run say, and lets them go on."""

import fcntl
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ckptcheck.trace.script.rendezvous import ALIVE, COPIED, SIGNALLED

WAIT_FOR_RANKS_S: Final = 60.0
"""How long the other ranks are waited for, after the first one has come."""


class Meeting:
    """One run's control folder. While it is open, processes wait for it; `close` lets all of them go on."""

    def __init__(self, control: Path) -> None:
        self.control = control
        control.mkdir(parents=True)
        self._alive = os.open(control / ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        self._first: dict[str, float] = {}

    def close(self) -> None:
        """Wait for nobody any more."""
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    @property
    def is_whole(self) -> bool:
        """Whether the folder still is where we made it: a run may remove what is not its own."""
        return (self.control / ALIVE).exists()

    @property
    def saw_torch(self) -> bool:
        """Whether any process imported torch where the recorder could see it."""
        return any(self.control.glob("torch.*"))

    @property
    def last_step(self) -> int | None:
        """The last step that any process told of; None before the first."""
        steps = []
        for path in self.control.glob("step.*"):
            with suppress(OSError, ValueError):
                steps.append(int(path.read_text()))
        return max(steps, default=None)

    def changes(self) -> dict[int, tuple[str, ...]]:
        """What had changed in the output folder after each step, by step; paths relative to it."""
        found: dict[int, dict[str, None]] = {}
        for path in sorted(self.control.glob("changes.*")):
            for line in path.read_text().splitlines():
                with suppress(ValueError):  # a line that a killed process did not finish
                    told = json.loads(line)
                    found.setdefault(told["step"], {}).update(dict.fromkeys(told["paths"]))
        return {step: tuple(paths) for step, paths in sorted(found.items())}

    def last_changes(self) -> dict[str, int]:
        """The step after which each path of the output folder had changed last, by path."""
        return {path: step for step, paths in self.changes().items() for path in paths}

    def all_came(self, what: str) -> bool:
        """Whether all ranks have come to a meeting, or those that are there have waited long enough."""
        told = self._told(what)
        if not told:
            return False
        first = self._first.setdefault(what, time.monotonic())
        world_size = max(one["world_size"] for one in told)
        everyone = len({one["rank"] for one in told}) >= (1 if what == "signal" else world_size)
        return everyone or time.monotonic() - first >= WAIT_FOR_RANKS_S

    def has_let_go(self, until: str) -> bool:
        """Whether those who came were already let go."""
        return (self.control / until).exists()

    def let_go(self, until: str) -> None:
        """Let those who wait go on."""
        (self.control / until).touch()

    def processes(self, what: str) -> list[int]:
        """The ids of the processes that have come."""
        return [int(path.name.rpartition(".")[2]) for path in self.control.glob(f"{what}.*")]

    def _told(self, what: str) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.control.glob(f"{what}.*")]


class Steered:
    """What the parent does when processes wait: each thing once."""

    def __init__(self, meeting: Meeting, copy: Callable[[], None], send: Callable[[], None]) -> None:
        self._meeting = meeting
        self._acts = (("waiting", COPIED, copy), ("signal", SIGNALLED, send))

    def attend(self) -> bool:
        """Do what is waited for; returns whether all ranks wait to be ended."""
        for what, until, act in self._acts:
            if self._meeting.all_came(what) and not self._meeting.has_let_go(until):
                try:
                    act()
                finally:
                    self._meeting.let_go(until)
        return self._meeting.all_came("stopped")
