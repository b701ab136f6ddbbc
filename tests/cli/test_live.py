import io
import threading
from contextlib import redirect_stderr

import pytest
from rich.console import Console

from ckptcheck.cli.live import live_lines, shown_progress
from ckptcheck.cli.options import View

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(view: View, error: type[BaseException] | None = None) -> None:
    with shown_progress(view) as progress:
        if progress:
            progress.update("reference", "training", 3, 20)
            progress.update("resumed@10", "loading\x07", None, None)
        if error:
            raise error


def test_nothing_is_shown_where_stderr_is_no_terminal():
    with redirect_stderr(io.StringIO()) as stream:
        work(View())
    assert stream.getvalue() == ""


@pytest.mark.parametrize("view", [View(progress=False), View(quiet=True)])
def test_nothing_is_shown_to_who_does_not_want_it(view):
    with redirect_stderr(Terminal()) as stream:
        work(view)
    assert stream.getvalue() == ""


def test_a_terminal_is_told_run_phase_and_step(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stderr(Terminal()) as stream:
        work(View())
    for word in ("reference", "training 3/20", "resumed@10", r"loading\x07"):
        assert word in stream.getvalue()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_cursor_comes_back_however_the_work_ends(monkeypatch, error):
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stderr(Terminal()) as stream, pytest.raises(error):
        work(View(), error)
    said = stream.getvalue()
    assert HIDE_CURSOR in said
    assert said.rindex(SHOW_CURSOR) > said.rindex(HIDE_CURSOR)


def test_several_threads_may_tell_at_once():
    stream = io.StringIO()
    with live_lines(Console(file=stream, force_terminal=True, width=100)) as lines:
        threads = [threading.Thread(target=lines.update, args=(f"run{n % 2}", "training", n, 20)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "run0" in stream.getvalue()
    assert "run1" in stream.getvalue()
