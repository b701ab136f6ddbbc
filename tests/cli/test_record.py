"""`ckptcheck record` as a process: the script's own output, signals and exit code, and one line of ours on stderr."""

import json
import os
import pty
import runpy
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ckptcheck.experiment.commands.handing import HANDED_ON
from ckptcheck.trace.file import open_traces
from ckptcheck.trace.script.orders import VARIABLE
from tests.reports.validity import breaches_of

SCRIPT = Path(__file__).resolve().parents[2] / "fixtures" / "scripts" / "train.py"
RECORD = (sys.executable, "-m", "ckptcheck", "record")
LIMIT_S = 60.0
LISTENING = """
import os, signal, sys, time
heard = []
signal.signal({name}, lambda number, frame: heard.append(number))
print("ready", flush=True)
until = time.monotonic() + 20
while not heard and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.5)
print("heard", heard, flush=True)
sys.exit(9)
"""
"""A script that tells how often it was told."""


def record(
    output: Path, *words: str, options: tuple[str, ...] = (), **more: object
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RECORD, "-o", str(output), *options, "--", *words],
        capture_output=True, text=True, check=False, timeout=LIMIT_S, **more,
    )  # fmt: skip


def bare(code: str) -> tuple[str, ...]:
    """Python without torch in reach, which starts at once."""
    return sys.executable, "-S", "-c", code


NOTHING = {
    # the command: its exit code, what it prints, what our line says
    bare("print('out'); raise SystemExit(5)"): (5, "out\n", "nothing was recorded: python"),
    bare("import sys; print(sys.stdin.read())"): (0, "input\n", "imported no torch"),
    bare("import os; os.kill(os.getpid(), 9)"): (137, "", "imported no torch"),
    ("no-such-command", "x"): (127, "", "there is no command 'no-such-command'"),
    ("./plain.txt",): (126, "", "'./plain.txt' cannot be executed (Permission denied)"),
}


@pytest.mark.parametrize("words", NOTHING)
def test_a_command_that_trains_nothing_keeps_its_exit_code_and_is_told_of(words, tmp_path):
    (tmp_path / "plain.txt").write_text("text")
    exit_code, printed, said = NOTHING[words]
    done = record(tmp_path / "trace", *words, cwd=tmp_path, input="input")
    assert (done.returncode, done.stdout) == (exit_code, printed)
    assert done.stderr.startswith("ckptcheck: error: ")
    assert said in done.stderr.replace(Path(sys.executable).name, "python")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "trace").exists(), "nothing is left where nothing was recorded"


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_started(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "rank-0.trace").write_text("an earlier one")
    (tmp_path / "file").write_text("")
    refused = {
        tmp_path / "full": "exists already and is never written over",
        tmp_path / "file": "exists already and is never written over",
        tmp_path / "file" / "trace": "cannot be written",
    }
    for output, said in refused.items():
        done = record(output, *bare("open('started', 'w')"), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "started").exists()
    assert (tmp_path / "full" / "rank-0.trace").read_text() == "an earlier one"


def test_nothing_of_our_own_end_takes_the_place_of_the_exit_code(tmp_path):
    (tmp_path / "reports").mkdir()
    cases = {
        "import shutil; shutil.rmtree('trace')": "imported no torch",
        "import os; os.rmdir('trace'); open('trace', 'w')": "imported no torch",
        "import os; os.mkfifo('trace/rank-0.trace')": "imported no torch",
        "import os; os.rmdir('reports')": "cannot write",
    }
    for code, said in cases.items():
        options = ("--report", "json=reports/x.json") if "reports" in code else ()
        done = record(Path("trace"), *bare(f"{code}; raise SystemExit(6)"), cwd=tmp_path, options=options)
        assert done.returncode == 6
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        shutil.rmtree(tmp_path / "trace", ignore_errors=True)
        (tmp_path / "trace").unlink(missing_ok=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_what_cannot_be_said_leaves_the_exit_code(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    with open("/dev/full", "w") as full:
        for stderr in (full, writing):
            words = [*RECORD, "-o", str(tmp_path / "trace"), "--", *bare("raise SystemExit(5)")]
            assert subprocess.run(words, stderr=stderr, check=False, timeout=LIMIT_S).returncode == 5
    os.close(writing)


def test_our_line_begins_a_line_where_that_can_be_known(tmp_path):
    for mode, text in (("w", "\nhalf a line"), ("a", "half a line"), ("a", "a whole line\n")):
        with (tmp_path / "log").open(mode) as log:
            words = [*RECORD, "-o", str(tmp_path / "trace"), "--", *bare(f"import sys; sys.stderr.write({text!r})")]
            subprocess.run(words, stderr=log, check=True, timeout=LIMIT_S)
    lines = [line.split(": error")[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert lines == ["", "half a line", "ckptcheck", "half a line", "ckptcheck", "a whole line", "ckptcheck"]


def test_two_recordings_do_not_share_a_folder(tmp_path):
    inner = [*RECORD, "-o", str(tmp_path / "trace"), "--", *bare("pass")]
    code = f"import subprocess; raise SystemExit(subprocess.run({inner}, env={{}}).returncode)"
    done = record(tmp_path / "trace", *bare(code))
    assert done.returncode == 2
    assert "another recording writes into" in done.stderr


def test_a_recording_inside_a_recording_hands_the_command_through(tmp_path):
    inner = (*RECORD, "-o", str(tmp_path / "inner"), "--", *bare("print('out'); raise SystemExit(6)"))
    done = record(tmp_path / "outer", *inner)
    assert (done.returncode, done.stdout) == (6, "out\n")
    assert "another ckptcheck around this one records already" in done.stderr
    assert not (tmp_path / "inner").exists()
    left_over = record(tmp_path / "trace", *bare("pass"), env={**os.environ, VARIABLE: "gone"})
    assert "imported no torch" in left_over.stderr, "the variable alone is no recording"


IGNORES_CHILDREN = """
import signal, sys
from ckptcheck.experiment.commands.handing import run_in_foreground
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ask = "import signal; raise SystemExit(7 if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN else 1)"
code = run_in_foreground([sys.executable, "-S", "-c", ask], {})
print(code, signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN)
"""


def test_a_caller_that_ignores_its_children_is_no_reason_to_wait_for_ever():
    done = subprocess.run(
        [sys.executable, "-c", IGNORES_CHILDREN], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert done.stdout == "7 True\n"


HEARS_ALL = """
import signal, sys, time
heard = []
for number in map(int, sys.argv[1:]):
    signal.signal(number, lambda number, frame: heard.append(number))
print("ready", flush=True)
until = time.monotonic() + 20
while len(heard) < len(sys.argv) - 1 and time.monotonic() < until:
    time.sleep(0.01)
print(*sorted(heard), flush=True)
"""


def test_every_signal_that_can_be_caught_is_handed_on(tmp_path):
    numbers = sorted(int(one) for one in HANDED_ON if one not in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    assert {signal.SIGALRM, signal.SIGXCPU, signal.SIGCONT, signal.SIGWINCH, signal.SIGPIPE} <= set(numbers)
    with subprocess.Popen(
        [*RECORD, "-q", "-o", str(tmp_path / "trace"), "--", *bare(HEARS_ALL), *map(str, numbers)],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in numbers:
            process.send_signal(number)
        assert process.stdout.read().split() == list(map(str, numbers))


def test_a_script_is_recorded_and_prints_what_it_prints_without_us(tmp_path, monkeypatch, capsys):
    shutil.copy(SCRIPT, tmp_path)
    words = ("train.py", "--steps", "4", "--save-every", "2", "--on-term", "die")
    report = tmp_path / "result.json"
    options = ("--report", f"json={report}", "--no-grads")
    done = record(tmp_path / "trace", sys.executable, *words, cwd=tmp_path, options=options)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*words, "--out", "other"])
    with torch.random.fork_rng():
        runpy.run_path("train.py", run_name="__main__")
    assert (done.returncode, done.stdout) == (0, capsys.readouterr().out)
    assert done.stderr == f"ckptcheck: recorded 4 steps of 1 process in {tmp_path / 'trace'}\n"
    saved = [(tmp_path / folder / "last.pt").read_bytes() for folder in ("out", "other")]
    assert saved[0] == saved[1], "bitwise"
    (trace,) = open_traces(tmp_path / "trace")
    assert trace.steps == [1, 2, 3, 4]
    assert {item.kind for item, _ in trace.tensors()}.isdisjoint({"grad"})
    trace.close()
    told = json.loads(report.read_text())
    assert breaches_of(told) == []
    assert (told["schema"], told["command"], told["verdict"]) == (1, "record", "pass")
    assert told["recorded"]["exit_code"] == 0
    assert [one["steps"] for one in told["recorded"]["processes"]] == [4]


def test_a_script_that_is_killed_leaves_its_whole_steps_and_quiet_says_nothing(tmp_path):
    code = f"import os, sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); sys.argv = ['train.py']; import torch, train\n"
    code += "step = torch.optim.AdamW.step; count = []\n"
    code += "def killing(*a, **k): count.append(1); len(count) == 5 and os.kill(os.getpid(), 9); return step(*a, **k)\n"
    code += "torch.optim.AdamW.step = killing; train.main()"
    done = record(tmp_path / "trace", sys.executable, "-c", code, cwd=tmp_path, options=("-q", "--every", "1"))
    assert (done.returncode, done.stdout, done.stderr) == (137, "", "")
    (trace,) = open_traces(tmp_path / "trace")
    assert trace.steps in ([1, 2, 3, 4], [1, 2, 3])  # the fourth may be on its way to the disk
    assert not trace.ended
    trace.close()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"])
def test_a_signal_to_us_reaches_the_script_once(name, tmp_path):
    words = bare(LISTENING.format(name=f"signal.{name}"))
    with subprocess.Popen(
        [*RECORD, "-q", "-o", str(tmp_path / "trace"), "--", *words],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        rest = process.stdout.read()
        assert process.wait(LIMIT_S) == 9
    assert rest == f"heard [{int(getattr(signal, name))}]\n"


def test_a_shell_that_continues_its_job_is_told_from_others_that_continue_us():
    code = "import os; from ckptcheck.experiment.commands.handing import _is_from_our_shell as told\n"
    code += "print(told(os.getppid()), told(os.getpid()))"
    for job, said in (({"process_group": 0}, "True False\n"), ({}, "False False\n"),
                      ({"start_new_session": True}, "False False\n")):  # fmt: skip
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=LIMIT_S, **job)
        assert done.stdout == said


def test_ctrl_c_in_a_terminal_reaches_the_script_once(tmp_path):
    words = bare("print(open('/dev/tty').name, end=' ')\n" + LISTENING.format(name="signal.SIGINT"))
    child, terminal = pty.fork()
    if child == 0:
        os.execv(RECORD[0], [*RECORD, "-o", str(tmp_path / "trace"), "--", *words])
    seen = read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    seen += read_until(terminal, b"no torch")
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 9
    assert b"/dev/tty ready" in seen
    assert b"heard [2]\r\n" in seen
    assert b"interrupted" not in seen


def read_until(terminal: int, wanted: bytes) -> bytes:
    seen = b""
    until = time.monotonic() + LIMIT_S
    while wanted not in seen and time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 4096)
            except OSError:  # the other side has closed it
                break
    return seen
