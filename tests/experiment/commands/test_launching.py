"""Runs of commands as processes: how they end, and that nothing of them stays. None of them needs torch."""

import contextlib
import os
import shlex
import sys
from dataclasses import replace
from functools import partial

import pytest

from ckptcheck.errors import RunFailedError
from ckptcheck.experiment.commands import launching, processes
from ckptcheck.experiment.commands.copies import LeftBehindWarning, remove
from ckptcheck.experiment.commands.launching import Launch, run_all, with_traces
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.experiment.commands.telling import check_recorded, check_trained
from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.items import STEP, Item, Sample
from ckptcheck.trace.script.orders import Orders

PYTHON = shlex.quote(sys.executable)
LIMIT_S = 60.0


@pytest.fixture
def launch(tmp_path):
    """What starts python on some code."""

    def make(code, name="reference", timeout_s=LIMIT_S, words=None, **environment):
        scratch = tmp_path / name
        scratch.mkdir()
        return Launch(
            orders=Orders(traces=scratch / "traces", run=name, control=scratch / "control"),
            words=words or (sys.executable, "-S", "-c", code),
            folder=tmp_path,
            environment={**os.environ, **environment},
            scratch=scratch,
            timeout_s=timeout_s,
        )

    return make


def run(*launches, at_once=2):
    return run_all([partial(lambda one: one, one) for one in launches], at_once, None)


ENDS = {
    "print('fine')": ("ended", 0, "", ""),
    "import sys; print('last words'); sys.exit(7)": ("failed", 7, "exit code 7", "last words"),
    "raise ValueError('own')": ("failed", 1, "exit code 1", "ValueError: own"),
    "import os; os.kill(os.getpid(), 9)": ("died", 137, "SIGKILL", ""),
    "import os; os.kill(os.getpid(), 15)": ("died", 143, "SIGTERM", ""),
    "import os; os.kill(os.getpid(), 37)": ("died", 165, "killed by SIGRTMIN+3", ""),
    "import os, shutil; shutil.rmtree(os.environ['HERE']); os._exit(3)": ("failed", 3, "exit code 3", ""),
}


def test_a_run_ends_as_it_ended(launch, tmp_path):
    names = [f"run-{place}" for place in range(len(ENDS))]
    runs = run(*(launch(code, name, HERE=str(tmp_path / name)) for name, code in zip(names, ENDS, strict=True)))
    for one, (status, code, error, last) in zip(runs, ENDS.values(), strict=True):
        recorded = one.result()
        assert (recorded.status, recorded.exit_code) == (status, code)
        assert error in recorded.error
        assert bool(error) == bool(recorded.error)
        assert recorded.last_lines.endswith(last)
        assert recorded.traces == ()


def test_a_silent_run_is_given_up_and_one_that_prints_is_not(launch):
    talking = "import time\nfor _ in range(30): print('still here', flush=True); time.sleep(0.1)"
    silent, other = run(
        launch("import time; print('begun', flush=True); time.sleep(600)", "silent", timeout_s=1.5),
        launch(talking, "talking", timeout_s=1.5),
    )
    assert silent.result().status == "hung"
    assert "made no step and printed nothing for 1.5 s" in silent.result().error
    assert silent.result().last_lines == "begun"
    assert other.result().status == "ended"


def test_a_run_that_only_prints_is_given_up_later_and_fills_no_disk(launch, monkeypatch):
    monkeypatch.setattr(launching, "TALK_TIMES", 2)
    monkeypatch.setattr(launching, "MAX_LOG_BYTES", 1 << 16)
    one = launch("import time\nwhile True: print('again ' * 300, flush=True); time.sleep(0.002)", timeout_s=0.5)
    recorded = run(one)[0].result()
    assert recorded.status == "hung"
    assert recorded.error == "it made no step for 1 s, though it printed; --timeout gives it longer"
    assert set(recorded.last_lines.split()) == {"again"}
    assert (one.scratch / "log").stat().st_size < 1 << 19, "about 1800 bytes every 2 ms, and a look every 20 ms"


def test_runs_wait_for_their_turn(launch, tmp_path):
    code = "import os, time; os.mkdir('one'); time.sleep(0.2); os.rmdir('one')"
    for one in run(*(launch(code, f"run-{place}") for place in range(3)), at_once=1):
        assert one.result().status == "ended", "two at once would have met"


def test_a_run_stands_in_its_folder_with_its_variables_and_no_input(launch, tmp_path):
    code = (
        "import os, sys; print(os.getcwd(), os.environ['COLOUR'], repr(sys.stdin.read()), os.getsid(0) == os.getpid())"
    )
    failing = run(launch(f"{code}; sys.exit(1)", COLOUR="blue"))[0].result()
    assert failing.last_lines == f"{tmp_path.resolve()} blue '' True"


REFUSED = {
    ("no-such-command", "x"): "there is no command 'no-such-command'",
    ("train.py", "x"): "there is no command 'train.py': start it as python train.py",
    ("./plain.txt",): "'./plain.txt' cannot be executed (Permission denied)",
    ("./no-format",): "'./no-format' cannot be executed (Exec format error)",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_command_that_cannot_be_started_says_why(launch, words, tmp_path):
    (tmp_path / "plain.txt").write_text("text")
    (tmp_path / "no-format").write_text("\0")
    (tmp_path / "no-format").chmod(0o755)
    with pytest.raises(RunFailedError) as refused:
        run(launch("", words=words))
    assert str(refused.value).startswith(f"the reference run cannot start: {REFUSED[words]}")


LEAVES_OTHERS = """
import os, subprocess, sys, time
quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'], **quiet)
stubborn = 'import signal, time; signal.signal(15, signal.SIG_IGN); print("deaf", flush=True); time.sleep(600)'
away = subprocess.Popen([sys.executable, '-S', '-c', stubborn], stdout=subprocess.PIPE, start_new_session=True)
away.stdout.readline()
open('pids', 'w').write(f'{child.pid} {away.pid}')
"""


def gone(process: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 0)
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.fixture
def short_grace(monkeypatch):
    monkeypatch.setattr(processes, "GRACE_S", 0.5)


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize(("ending", "timeout_s"), [("", LIMIT_S), ("time.sleep(600)", 2.0)])
def test_nothing_of_a_run_stays_not_even_in_a_session_of_its_own(launch, tmp_path, ending, timeout_s):
    run(launch(LEAVES_OTHERS + ending, timeout_s=timeout_s))
    pids = [int(one) for one in (tmp_path / "pids").read_text().split()]
    assert [gone(one) for one in pids] == [True, True]


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_all_runs_also_when_it_comes_again(launch, tmp_path, times, monkeypatch):
    class Interrupting:
        def update(self, *_: object) -> None:
            if (tmp_path / "pids").exists():
                raise KeyboardInterrupt

    def again(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    if times == 2:
        monkeypatch.setattr(processes, "wait_for_all", again)

    code = f"{LEAVES_OTHERS}\nwhile True: print('.', flush=True); time.sleep(0.05)"
    started = launch(code)
    with pytest.raises(KeyboardInterrupt):
        run_all([lambda: started], 1, Interrupting())
    pids = [int(one) for one in (tmp_path / "pids").read_text().split()]
    assert [gone(one) for one in pids] == [True, True]


TORCH = (
    "import os, pathlib; folder = pathlib.Path(os.environ['HERE'], 'control'); traces = folder.parent / 'traces'; "
    "(folder / 'torch.1').touch()"
)
"""What the recorder of a process that imports torch does."""


def test_what_an_experiment_needs_of_a_run_is_told_where_it_lacks(launch, tmp_path):
    for code, said in {
        "import sys; print('own words'); sys.exit(2)": "the reference run failed: it left with exit code 2",
        "print('Address already in use'); 1/0": "use --jobs 1",
        "print('no torch')": "the reference run imported no torch",
        TORCH: "the reference run trained no step: no optimizer of torch updated anything",
        f"{TORCH}; (folder / 'step.0.1').write_text('3')": "trained 3 steps, and nothing recorded is left (removed",
        f"{TORCH}; (traces / 'rank-0.trace').write_text('no trace')": "was not recorded: ",
        "import os; os.remove(os.environ['HERE'] + '/control/alive')": "removed the temporary folder",
    }.items():
        name = f"run-{len(said)}"
        one = run(launch(code, name, HERE=str(tmp_path / name)))[0]
        with pytest.raises(RunFailedError) as refused:
            check_trained(replace(one.result(), name="reference"), one.meeting)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)


def test_traces_of_one_rank_come_in_the_order_in_which_their_processes_began(tmp_path):
    begun = ("rank-1", "rank-0", "rank-0.pid-101", "rank-0.pid-99")
    for second, name in enumerate(begun):
        header = {"digest": "xxh3_128", "rank": int(name[5]), "started": f"2026-01-01T00:00:0{second}+00:00"}
        writer = TraceWriter(tmp_path / f"{name}.trace", header)
        writer.write(1, STEP, [(Item("scaler", "scale"), Sample(None, bytes(16), value=1.0))])
        writer.close(clean=True)
    run = with_traces(Recorded("reference", ("train",), "ended", 0), tmp_path)
    assert [one.path.stem for one in run.traces] == [*begun[1:], begun[0]]
    for one in run.traces:
        one.close()


def test_a_resumed_run_that_was_not_recorded_says_nothing_of_its_steps(launch, tmp_path):
    for place, (code, said) in enumerate({
        "pass": "imported no torch",
        f"{TORCH}; (folder / 'step.0.1').write_text('3')": "trained 3 steps, and nothing recorded is left",
        f"{TORCH}": "",
        "raise SystemExit(2)": "",
    }.items()):  # fmt: skip
        name = f"run-{place}"
        one = run(launch(code, name, HERE=str(tmp_path / name)))[0]
        with pytest.raises(RunFailedError, match=said) if said else contextlib.nullcontext():
            check_recorded(one.result(), one.meeting)


def test_a_folder_that_cannot_be_removed_is_told_of(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept")  # which is no folder of ours to remove
    with pytest.warns(LeftBehindWarning, match="cannot be removed"):
        remove(tmp_path / "link")
    (tmp_path / "kept" / "deep").mkdir(mode=0)
    remove(tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


WHY_NOT = [
    (FileNotFoundError(2, "No such file"), ["nowhere", "later.py"], 127,
     "there is no command 'nowhere': check its name, or give its path"),
    (FileNotFoundError(2, "No such file"), ["train.py", "more"], 127,
     "there is no command 'train.py': start it as python train.py"),
    (PermissionError(13, "Permission denied"), ["./train", "more"], 126,
     "'./train' cannot be executed (Permission denied): make it executable, or start it with its interpreter"),
    (OSError(8, "Exec format error"), ["./train", "more"], 126,
     "'./train' cannot be executed (Exec format error): start it with its interpreter, such as python or bash"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "words", "code", "said"), WHY_NOT)
def test_why_a_command_cannot_be_started_names_its_first_word(error, words, code, said):
    assert launching.why_not_started(error, words) == (code, said)


def test_a_command_whose_interpreter_is_not_there_is_told_so(tmp_path):
    path = tmp_path / "train"
    path.write_text("#!/nowhere/python")
    code, said = launching.why_not_started(FileNotFoundError(2, "No such file"), [str(path), "nowhere"])
    assert (code, said.rpartition(": ")[2]) == (127, "what its first line names as its interpreter is not there")
