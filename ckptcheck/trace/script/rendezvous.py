"""Where a recorded process and its parent meet: through files in a folder, since a launcher may stand between them.

What the processes write, each file by one process, whole at once:
  torch.PID         empty: this process has imported torch
  step.RANK.PID     the last step done, as text; renewed in place, so that the parent sees progress
  waiting.RANK.PID  {"rank", "world_size", "step"}: waits until the parent has copied the output folder
  stopped.RANK.PID  the same: has done the last step asked for, and waits to be ended
  signal.RANK.PID   the same: waits for a signal
  changes.PID       a line of JSON a step after which something in the output folder had changed: {"step", "paths"}
What the parent writes: `alive`, locked while it lives; `copied` and `signalled`, after which they go on.
"""

import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.rank import rank_and_world

ALIVE: Final = "alive"
COPIED: Final = "copied"
SIGNALLED: Final = "signalled"
LOOK_S: Final = 0.01
"""How often a waiting process looks whether it may go on."""
MAX_PATHS: Final = 2_000
"""Changed paths that are noted of one step."""
MAX_FILES: Final = 100_000
"""Files of an output folder that are looked at."""


class Rendezvous:
    """Tells the parent of steps, and waits where it asked to.

    Raises nothing of its own. What a signal handler of the script raises while it waits is the script's own and passes
    through: call it where nothing catches that.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._control = orders.control
        self._process = os.getpid()
        self._place: tuple[int, int] | None = None
        """Rank and world size, kept: a script may end its process group before it ends itself."""
        self._seen: dict[str, tuple[int, int, int]] | None = None
        if orders.control is not None:
            with suppress(OSError):
                (orders.control / f"torch.{self._process}").touch()
            if orders.output is not None:
                self._seen = listing(orders.output)

    def waits_after(self, step: int) -> bool:
        """Whether `step_done` will wait for this step: what was recorded has to be on disk before."""
        orders = self._orders
        holds = orders.hold and orders.last_step is not None and step >= orders.last_step
        return self._control is not None and (step == orders.pause_after or holds or self.signals_after(step))

    def signals_after(self, step: int) -> bool:
        """Whether a signal will be asked for when the first forward pass after this step begins, in any rank."""
        asked = self._orders.signal_after
        return self._control is not None and asked is not None and asked[1] == step

    def step_done(self, step: int) -> None:
        """Step `step` is done, and the next one is about to update: call it once for each step, ascending."""
        if self._control is None or os.getpid() != self._process:
            return
        orders = self._orders
        if orders.bound and is_orphaned(self._control):
            # Of an experiment that was killed: nobody wants this run, and nobody else can end it.
            os.kill(self._process, signal.SIGKILL)
        self._tell_step(step)
        self._tell_changes(step)
        if step == orders.pause_after:
            self._meet("waiting", step, COPIED)
        if orders.hold and orders.last_step is not None and step >= orders.last_step:
            self._meet("stopped", step, "")

    def window_begins(self, steps_done: int) -> None:
        """A first forward pass begins after so many steps: where a signal asked for is waited for."""
        orders = self._orders
        if self._control is None or orders.signal_after is None or os.getpid() != self._process:
            return
        if steps_done == orders.signal_after[1] and self._rank_and_world()[0] == 0:
            self._tell_changes(steps_done)  # it may be the last that is heard of this process
            self._meet("signal", steps_done, SIGNALLED)

    def _tell_step(self, step: int) -> None:
        assert self._control is not None
        with suppress(OSError):  # a broken channel is no broken training
            # Opened anew each time: a script may close every descriptor, and open a file of its own under the number.
            file = os.open(self._control / self._name("step"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, f"{step:<20d}".encode(), 0)
            finally:
                os.close(file)

    def _tell_changes(self, step: int) -> None:
        output = self._orders.output
        if self._seen is None or output is None or self._control is None or self._rank_and_world()[0] != 0:
            return
        now = listing(output)
        changed = [path for path, facts in now.items() if self._seen.get(path) != facts]
        self._seen = now
        if changed:
            line = json.dumps({"step": step, "paths": changed[:MAX_PATHS]})
            with suppress(OSError), (self._control / f"changes.{self._process}").open("a") as file:
                file.write(line + "\n")

    def _rank_and_world(self) -> tuple[int, int]:
        """Asked for the first time when a step is over: the training runs, and so does its process group."""
        if self._place is None:
            self._place = rank_and_world()
        return self._place

    def _name(self, what: str) -> str:
        return f"{what}.{self._rank_and_world()[0]}.{self._process}"

    def _meet(self, what: str, step: int, until: str) -> None:
        """Tell the parent, and wait until the file `until` is there, or the parent has gone."""
        assert self._control is not None
        rank, world_size = self._rank_and_world()
        path = self._control / self._name(what)
        if path.exists():  # each meeting happens once
            return
        try:
            partial = path.with_name(f".{path.name}")
            partial.write_text(json.dumps({"rank": rank, "world_size": world_size, "step": step}))
            partial.replace(path)
        except OSError:
            return
        while is_alive(self._control) and not (until and (self._control / until).exists()):
            time.sleep(LOOK_S)


def is_alive(control: Path) -> bool:
    """Whether the parent lives: it holds a lock, which the system takes away with the process."""
    return _is_held(control) is True


def is_orphaned(control: Path) -> bool:
    """Whether the parent has surely gone: its lock is there, and free."""
    return _is_held(control) is False


def _is_held(control: Path) -> bool | None:
    """Whether somebody holds the parent's lock; None where it cannot be looked at."""
    try:
        with (control / ALIVE).open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """(inode, size, time of the last change in ns) by path, of every file below a folder; links are not followed."""
    found: dict[str, tuple[int, int, int]] = {}
    pending = [str(folder)]
    while pending and len(found) < MAX_FILES:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                        continue
                    with suppress(OSError):  # what the script removes while we look
                        status = entry.stat(follow_symlinks=False)
                        name = os.path.relpath(entry.path, folder)
                        found[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
        except OSError:
            continue  # as above, of a whole folder
    return found
