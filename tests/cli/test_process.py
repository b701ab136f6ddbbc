"""The command line as a real process, with pipes and streams as a shell makes them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ckptcheck import __version__

ROOT = Path(__file__).parents[2]
WITH_FAKES = "from ckptcheck.cli.main import door; from tests.cli.fakes import FakeVerbs; "
WITH_FAKES += "from tests.reports.results import HOSTILE, BROKEN; "

KILLED = """
import os, signal, sys
from ckptcheck.cli import main as m
from tests.cli.fakes import FakeVerbs
number, as_it_is = int(sys.argv.pop()), m.door.main
signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
m.door.main = lambda: as_it_is(obj=FakeVerbs(during=lambda: os.kill(os.getpid(), number)))
m.main()
"""


def run(*command: str, code: str = "", **options) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", code] if code else [sys.executable, "-m", "ckptcheck"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | options.pop("env", {})
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([*start, *command], text=True, env=environment, timeout=60, check=False, **streams)


def closed_pipe() -> int:
    """Return the writing end of a pipe whose reader has left."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_version_and_help():
    assert run("--version").stdout == f"ckptcheck {__version__}\n"
    assert "verify" in run("-h").stdout


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_closed_pipe_is_no_error_and_leaves_the_verdict(form):
    done = run(
        "verify", "t", "--format", form, code=WITH_FAKES + "door.main(obj=FakeVerbs(BROKEN))", stdout=closed_pipe()
    )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["verify", "--help"]])
def test_help_into_a_closed_pipe_is_no_error(arguments):
    done = run(*arguments, stdout=closed_pipe())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_stdout_is_exit_2():
    with open("/dev/full", "w") as full:
        done = run("verify", "t", code=WITH_FAKES + "door.main(obj=FakeVerbs(BROKEN))", stdout=full)
        helped = run("verify", "--help", stdout=full)
        unsaid = run("verify", "a b c", stderr=full)
    for one in (done, helped):
        assert one.returncode == 2
        assert one.stderr.startswith("ckptcheck: error: cannot write to standard output")
        assert one.stderr.count("\n") == 1
    assert unsaid.returncode == 2


LEAVES_ONE = """
import subprocess
from ckptcheck.cli.orphans import orphans_ended
with orphans_ended():
    subprocess.run(["sh", "-c", "env -i setsid sh -c 'sleep 600 > /dev/null & echo $!'"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans on")
def test_what_a_run_left_behind_without_its_environment_is_ended():
    done = run(code=LEAVES_ONE)
    assert done.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_a_terminal_without_utf8_gets_ascii():
    done = run("verify", "t", code=WITH_FAKES + "door.main(obj=FakeVerbs(HOSTILE))", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert done.stdout.isascii()
    assert r"\xe9" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGXCPU])
def test_what_ends_a_pipeline_is_an_interrupt(number):
    done = run("verify", "t", str(number.value), code=KILLED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "ckptcheck: interrupted\n")


def test_a_bug_of_ours_shows_its_traceback_and_is_no_failed_check():
    code = "import ckptcheck.cli.main as m; m.COMMANDS = {'verify': 'ckptcheck.no_such_room'}; m.main()"
    done = run("verify", "t", code=code)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "no_such_room" in done.stderr


def test_a_wrong_line_is_told_on_both_streams():
    done = run("verify", "--format", "json")
    assert done.returncode == 2
    assert done.stderr.startswith("ckptcheck: error: Missing argument 'TARGET'")
    assert json.loads(done.stdout)["verdict"] == "error"
