"""What gets no verdict: one clear line, exit 2, nothing left behind; and the run that cannot be judged."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from ckptcheck.cli.main import door
from ckptcheck.errors import RunFailedError, TargetError, UsageError
from ckptcheck.finding import Result, Verdict
from tests.experiment.fault_table import TROUBLES, Trouble


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.mistake)
def test_trouble_is_one_line_and_its_exit_code(trouble: Trouble, forked: None, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    limit = ["--timeout", "5"] if "hangs" in trouble.mistake else []
    done = CliRunner().invoke(door, ["verify", trouble.target, "--steps", "8", "--format", "json", *limit])
    assert done.exit_code == trouble.exit_code
    result = json.loads(done.stdout)
    assert result["verdict"] == ("inconclusive" if trouble.exit_code == 3 else "error")
    assert (result["cause"] or {}).get("code") == trouble.cause
    said = done.stderr + json.dumps(result)
    for word in trouble.says:
        assert word in said
    if trouble.exit_code == 2:
        assert done.stderr.rstrip().splitlines()[-1].startswith("ckptcheck: error: ")
    assert "ckptcheck/experiment" not in done.stderr  # no frame of ours
    assert list(tmp_path.glob("ckptcheck-*")) == []


def test_a_run_that_hangs_is_ended_with_all_that_it_started(target: Callable[[str], str], check: Callable) -> None:
    path = target("""
import subprocess, time, pathlib
def build(ctx):
    model = nn.Linear(1, 1)
    def step(s):
        child = subprocess.Popen(["sleep", "1000"])
        pathlib.Path(__file__).with_name("child").write_text(str(child.pid))
        time.sleep(1000)
    return ckptcheck.Run(model=model, step=step)
""")
    with pytest.raises(RunFailedError, match=r"hung in step 1: no progress for 2 s"):
        check(path, steps=4, timeout_s=2)
    child = int(Path(path).with_name("child").read_text())
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(("steps", "points"), [(20, [0]), (20, [20]), (20, [-1, 5]), (1, []), (0, [])])
def test_a_resume_point_outside_the_steps_is_refused(steps: int, points: list[int], check: Callable) -> None:
    with pytest.raises(UsageError, match=r"resume-at|--steps"):
        check("fixtures/store_mlp.py", steps=steps, resume_at=points)


def test_what_is_asked_of_a_run_is_checked(target: Callable[..., str], check: Callable) -> None:
    head = "def build(ctx):\n    model = nn.Linear(1, 1)\n    return ckptcheck.Run(model=model, step=print"
    for more, said in {
        ", save=lambda path: None)": "no Run.load",
        ", freeze={'*': 'solid'})": "no-grad, no-update, hold",
        ", data=[1])": "without state_dict",
        ", optimizer=model)": "no param_groups",
        ", extra={'a': object()})": "extra\\['a'\\]",
    }.items():
        with pytest.raises(TargetError, match=said):
            check(target(head + more, name=f"run_{len(more)}"), steps=2)
    with pytest.raises(TargetError, match=r"not a torch\.nn\.Module"):
        check(target("def build(ctx):\n    return ckptcheck.Run(model=3, step=print)\n", name="model"), steps=2)


def test_the_last_lines_of_a_run_that_raises_are_the_users_own(target: Callable[[str], str], check: Callable) -> None:
    path = target("""
def build(ctx):
    def step(s):
        print("loading shard", s)
        return {}["no such key"]
    return ckptcheck.Run(model=nn.Linear(1, 1), step=step)
""")
    with pytest.raises(RunFailedError) as caught:
        check(path, steps=4)
    assert str(caught.value) in (
        "the reference run raised in step 1: KeyError: 'no such key'",
        "the repeat run raised in step 1: KeyError: 'no such key'",
    )
    assert "loading shard 1" in caught.value.last_lines
    assert 'return {}["no such key"]' in caught.value.last_lines
    assert "worker.py" not in caught.value.last_lines


def test_a_resumed_run_that_raises_where_the_reference_did_not_fails(
    target: Callable[[str], str], check: Callable
) -> None:
    path = target("""
def build(ctx):
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    state = {"loaded": False}
    def step(s):
        if state["loaded"] and s == 7:
            raise RuntimeError("shard 7 is gone")
        with torch.no_grad():
            model.weight += 1
    def load(path):
        model.load_state_dict(torch.load(path))
        state["loaded"] = True
    return ckptcheck.Run(model=model, step=step, save=lambda path: torch.save(model.state_dict(), path), load=load)
""")
    result: Result = check(path, steps=8, resume_at=[5])
    assert (result.verdict, result.exit_code) == (Verdict.FAIL, 1)
    assert result.cause is not None
    assert (result.cause.code, result.cause.confidence) == ("CK610", "unknown")
    assert "RuntimeError: shard 7 is gone (in step 7)" in result.findings[0].message


def test_a_load_that_raises_fails_and_says_so(target: Callable[[str], str], check: Callable) -> None:
    path = target("""
def build(ctx):
    model = nn.Linear(2, 1)
    def load(path):
        raise ValueError("unexpected key")
    return ckptcheck.Run(model=model, step=lambda s: None, save=lambda path: path.write_text("x"), load=load)
""")
    result = check(path, steps=4, seed=0)
    assert result.verdict is Verdict.FAIL
    assert "ValueError: unexpected key (while loading the checkpoint)" in result.findings[0].message


FORKS = """
import os, sys
def build(ctx):
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    def step(s):
        child = os.fork()
        if child == 0:
            sys.exit(3)
        os.waitpid(child, 0)
        with torch.no_grad():
            model.weight += 1
    return ckptcheck.Run(model=model, step=step)
"""


def test_a_child_that_leaves_through_our_code_touches_nothing(target: Callable[[str], str], check: Callable) -> None:
    assert check(target(FORKS), steps=4).verdict is Verdict.PASS


def test_an_exception_without_a_message_is_told_by_its_class(target: Callable[[str], str], check: Callable) -> None:
    path = target("""
class Odd(BaseException):
    def __str__(self): raise ValueError("no words")
def build(ctx):
    raise Odd
""")
    with pytest.raises(
        RunFailedError, match=r"in the target's factory: Odd: \(its message cannot be made: ValueError\)"
    ):
        check(path, steps=4)


def test_a_contract_on_no_parameter_is_refused(check: Callable) -> None:
    with pytest.raises(TargetError, match=r"'nope\*' matches no parameter; parameters are layers\.0"):
        check("fixtures/warmup_linear.py", steps=4, freeze={"nope*": "hold"})


RAISES_LATER = """
def build(ctx):
    torch.manual_seed(0)
    model, resumed = nn.Linear(2, 1), []
    def step(s):
        if resumed and s == 5:
            raise SystemExit(3)
        with torch.no_grad():
            model.weight += 1
    def save(path):
        torch.save(model.state_dict(), path)
    def load(path):
        resumed.append(model.load_state_dict(torch.load(path)))
    return ckptcheck.Run(model=model, step=step, save=save, load=load)
"""


def test_a_run_that_raises_is_placed_in_its_step(target: Callable[[str], str], check: Callable) -> None:
    result = check(target(RAISES_LATER), steps=6, resume_at=[3])
    assert (result.verdict, result.cause.code, result.first_divergence.step) == (Verdict.FAIL, "CK610", 5)
