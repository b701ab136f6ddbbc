"""Progress on stderr: one live line a run, gone when the work ends in whatever way."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from ckptcheck.cli.options import View
from ckptcheck.progress import Progress
from ckptcheck.reports.page import escaped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


@contextmanager
def shown_progress(view: View) -> Iterator[Progress | None]:
    """Show progress while the block runs, where someone can see it and wants to; else yield None."""
    if view.quiet or not view.progress or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True, no_color=True if view.color == "never" else None, highlight=False)
    with live_lines(console) as lines:
        yield lines


@contextmanager
def live_lines(console: "Console") -> Iterator[Progress]:
    """Keep live lines at the bottom of a terminal; what others print to stderr meanwhile appears above them."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[said]}", markup=False),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console, transient=True, redirect_stdout=False) as bars:
        yield LiveLines(bars)


class LiveLines:
    """Progress as lines of a rich display: name of the run, bar, phase and step, time."""

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._lock = Lock()

    def update(self, run: str, phase: str, step: int | None, steps: int | None) -> None:
        """Renew the line of a run; a bar without steps pulses."""
        said = escaped(phase) if step is None else f"{escaped(phase)} {step}/{'?' if steps is None else steps}"
        with self._lock:
            if run not in self._tasks:
                self._tasks[run] = self._bars.add_task(escaped(run), total=steps, said=said)
            self._bars.update(self._tasks[run], completed=step, total=steps, said=said)
