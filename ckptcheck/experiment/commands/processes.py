"""All processes of one run, also those that a launcher put into sessions of their own, and their end.

They are told by a variable of their environment, which every child inherits; where the system does not show that, by
their process group alone.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

GRACE_S: Final = 5.0
"""How long processes may take to go away after they were told to."""
_LOOK_S: Final = 0.02


def with_variable(name: str, value: str) -> list[int]:
    """The ids of the live processes whose environment holds the variable with this value, but for our own."""
    wanted = f"{name}={value}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # processes of others, and those that have gone meanwhile
            if wanted in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return [one for one in found if one != os.getpid()]


def end(leader: "subprocess.Popen[Any]", others: Callable[[], list[int]], *, gently: bool) -> None:
    """End a run: its leader, the leader's group, and `others`; return when all have gone.

    `gently` asks them with SIGTERM first, so that a launcher can end what it started.
    """
    if gently and (leader.poll() is None or others()):
        _tell(leader, others(), signal.SIGTERM)
        wait_for_all(leader, others, GRACE_S)
    _tell(leader, others(), signal.SIGKILL)
    leader.wait()
    wait_for_all(leader, others, GRACE_S)


def _tell(leader: "subprocess.Popen[Any]", others: list[int], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the group outlives its leader while a member does
        os.killpg(leader.pid, number)
    for one in others:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(one, number)


def kill(process: int) -> None:
    """Kill one process; one that has gone is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)


def wait_for_all(leader: "subprocess.Popen[Any]", others: Callable[[], list[int]], seconds: float) -> None:
    """Wait until the leader and all others have gone, for so many seconds at most."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and (leader.poll() is None or others()):
        time.sleep(_LOOK_S)
