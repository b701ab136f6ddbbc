"""What the README says is what the tool does. `python -m tests.test_readme` writes its generated blocks anew."""

import ast
import inspect
import os
import re
import runpy
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ckptcheck import finding
from ckptcheck.rules.card import card_of
from ckptcheck.rules.table import BY_CODE

SOURCES = {
    "target": ("my_run.py", 'optimizer.load_state_dict(state["optimizer"])'),
    "script": ("train.py", 'torch.set_rng_state(state["rng"])'),
}
"""The README's own programs: the file that each is written to, and the line without which it fails."""
SCRIPT = 'verify --run "python train.py {dir}" --resume "python train.py {dir} {ckpt}"'
RESULTS = {
    "result: script": ("script", SCRIPT, 0),
    "result: script without generators": ("script", SCRIPT, 1),
    "result: pass": ("target", "verify my_run.py", 0),
    "result: fail": ("target", "verify my_run.py", 1),
    "result: target": ("target", "check ckpt --target my_run.py", 1),
}
"""Program, command line and exit code of what is shown of it; those that fail are without that line."""
PREPARED = {"result: target": "save my_run.py --steps 10 -o ckpt"}
"""What is run before."""
CHECKPOINTS = "fixtures/checkpoints/04_hf_trainer"
SHOWN = {
    "shown: inspect": (0, f"inspect {CHECKPOINTS}/checkpoint-2"),
    "shown: check": (0, f"check {CHECKPOINTS}"),
    "shown: probe": (1, "probe fixtures/optimizers.py:NoneAsZero"),
    "shown: diff": (1, f"diff {CHECKPOINTS}/checkpoint-2 {CHECKPOINTS}/checkpoint-4 --top 1"),
}
"""Exit code and command line of what is shown of kept checkpoints."""
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
"""`python` in a command is the one that runs the tests."""
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def between(marker: str) -> str:
    """Return what stands after `<!-- marker -->` and before the next `<!-- end -->`."""
    found = re.search(rf"^<!-- {marker} -->\n(.*?)^<!-- end -->$", README, re.MULTILINE | re.DOTALL)
    assert found, f"README.md has no section marked {marker!r}"
    return found[1]


def block(marker: str) -> str:
    """Return the one code block of a marked section."""
    found = re.fullmatch(r"```\w+\n(.*?)```\n", between(marker), re.DOTALL)
    assert found
    return found[1]


def rules() -> str:
    """Return the table of all rules: code, name, severity, first sentence of the card."""
    rows = (f"| {rule.code} | {rule.name} | {rule.severity} | {card_of(rule).what} |" for rule in BY_CODE.values())
    return "\n".join(["| code | name | severity | what it finds |", "|---|---|---|---|", *rows, ""])


def result(marker: str, place: Path) -> str:
    """Return what the tool says of one of the README's programs, with or without its mistake."""
    source, command, code = RESULTS[marker]
    name, needed = SOURCES[source]
    lines = block(source).splitlines(keepends=True)
    kept = [line for line in lines if code == 0 or needed not in line]
    (place / name).write_text("".join(kept), encoding="utf-8")
    if marker in PREPARED:
        console(PREPARED[marker], place, 0)
    return console(command, place, code)


def shown(marker: str) -> str:
    """Return what the tool says of a kept checkpoint."""
    code, command = SHOWN[marker]
    return console(command, ROOT, code)


def console(command: str, place: Path, code: int) -> str:
    """Return a command and what it prints, as the README shows it; it must exit with `code`."""
    done = subprocess.run(
        [sys.executable, "-m", "ckptcheck", *shlex.split(command)],
        cwd=place,
        env=os.environ | {"COLUMNS": "100", "PYTHONIOENCODING": "utf-8", "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return f"```console\n$ ckptcheck {command}\n{done.stdout}```\n"


def without_numbers(text: str) -> list[str]:
    """Return the words, with times, versions and magnitudes left out: these belong to a machine."""
    kept = re.sub(r"^Environment.*(\n .*)*", "", text, flags=re.MULTILINE)
    kept = re.sub(r"^Drift.*(\n .*)*|\(\d+(, \d+)*\)", "", kept, flags=re.MULTILINE)
    kept = re.sub(r",\s+(max\s+ULP\s+\d+|\d+\s+sign\s+flips?)", "", kept)
    return re.sub(r"\d+\.\d+(e[-+]\d+)?", "#", kept).split()


def written(text: str, marker: str, content: str) -> str:
    """Return the README with the content of a marked section replaced."""
    return re.sub(
        rf"(^<!-- {marker} -->\n).*?(^<!-- end -->$)",
        lambda found: found[1] + content + found[2],
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


@pytest.mark.parametrize("marker", ["demo command", "test command"])
def test_the_set_up_commands_are_one_line_with_pinned_versions(marker):
    assert block(marker).count("\n") == 1
    assert "-c tests/constraints.txt" in block(marker)


def test_the_pipeline_takes_its_test_command_from_the_readme():
    assert "README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_exit_codes_are_those_of_the_constants():
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", between("exit codes"), re.MULTILINE)}
    assert told == {value for name, value in vars(finding).items() if name.startswith("EXIT_") and name != "EXIT_CODES"}


def test_the_rules_are_those_of_the_table():
    assert between("rules") == rules(), "renew: python -m tests.test_readme"


@pytest.mark.parametrize("source", SOURCES)
def test_a_program_has_the_line_that_the_readme_leaves_out(source):
    _, needed = SOURCES[source]
    assert block(source).count(needed) == 1
    assert f"`{needed}`" in README


def test_the_script_of_the_readme_has_nothing_of_ours():
    assert "ckptcheck" not in block("script")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the tool says of the README's programs, by marker, as it comes: most of the time is that of starting."""
    with ThreadPoolExecutor(2) as pool:
        yield {one: pool.submit(result, one, tmp_path_factory.mktemp("readme")) for one in RESULTS}


@pytest.mark.parametrize("marker", RESULTS)
def test_the_results_of_the_readme_are_what_the_tool_says(marker, results):
    said = without_numbers(results[marker].result())
    assert said == without_numbers(between(marker)), "renew: python -m tests.test_readme"


@pytest.mark.parametrize("marker", SHOWN)
def test_what_the_readme_shows_of_checkpoints_is_what_the_tool_says(marker):
    assert shown(marker) == between(marker), "renew: python -m tests.test_readme"


def test_the_target_of_the_readme_trains(tmp_path):
    import torch

    import ckptcheck

    file = tmp_path / "my_run.py"
    file.write_text(block("target"), encoding="utf-8")
    run = runpy.run_path(str(file))["build"](ckptcheck.Context(torch.device("cpu"), 0, tmp_path))
    first = run.step(1)
    run.save(tmp_path / "checkpoint")
    run.load(tmp_path / "checkpoint")
    assert torch.isfinite(first)
    assert torch.isfinite(run.step(2))


def test_the_assertions_of_the_readme_are_calls_that_there_are():
    import ckptcheck

    calls = [one for one in ast.walk(ast.parse(block("asserts"))) if isinstance(one, ast.Call)]
    assert calls
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        taken = inspect.signature(getattr(ckptcheck, call.func.attr))
        taken.bind(*call.args, **{str(one.arg): one.value for one in call.keywords})


def test_the_job_of_the_readme_runs_commands_that_there_are():
    yaml = pytest.importorskip("yaml")
    from click.testing import CliRunner

    from ckptcheck.cli.main import door

    (job,) = yaml.safe_load(block("gitlab")).values()
    words = [shlex.split(line)[1:] for line in job["script"] if line.startswith("ckptcheck ")]
    assert words
    for one in words:
        assert CliRunner().invoke(door, [*one, "--help"]).exit_code == 0
        assert f"--report junit={job['artifacts']['reports']['junit']}" in " ".join(one)
        assert all(f"html={path}" in one for path in job["artifacts"]["paths"])
    assert job["allow_failure"]["exit_codes"] == finding.EXIT_INCONCLUSIVE


def before_dashes(words: str) -> list[str]:
    """Return the words of a command line up to what it starts itself."""
    return shlex.split(words.partition(" -- ")[0])


def test_every_line_with_the_command_is_understood():
    from click.testing import CliRunner

    from ckptcheck.cli.main import COMMANDS, door

    lines = re.findall(r"^ckptcheck (\w+)((?:\\\n|[^#\n])*)", README, re.MULTILINE)
    assert {command for command, _ in lines} <= set(COMMANDS)
    for command, rest in lines:
        outcome = CliRunner().invoke(door, [command, *before_dashes(rest), "--help"])
        assert outcome.exit_code == 0, outcome.output


if __name__ == "__main__":
    anew = written(README, "rules", rules())
    for name in SHOWN:
        anew = written(anew, name, shown(name))
    for name in RESULTS:
        with TemporaryDirectory() as folder:
            anew = written(anew, name, result(name, Path(folder)))
    (ROOT / "README.md").write_text(anew, encoding="utf-8", newline="\n")
