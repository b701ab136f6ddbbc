"""What the README says is what the tool does."""

import re
import runpy
from pathlib import Path

import pytest

from ckptcheck import finding

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


@pytest.mark.parametrize("marker", ["demo command", "test command"])
def test_the_set_up_commands_are_one_line_with_pinned_versions(marker):
    assert block(marker).count("\n") == 1
    assert "-c tests/constraints.txt" in block(marker)


def test_the_pipeline_takes_its_test_command_from_the_readme():
    assert "README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_exit_codes_are_those_of_the_constants():
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", between("exit codes"), re.MULTILINE)}
    assert told == {value for name, value in vars(finding).items() if name.startswith("EXIT_") and name != "EXIT_CODES"}


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


def test_every_line_with_the_command_is_understood():
    from click.testing import CliRunner

    from ckptcheck.cli.main import COMMANDS, door

    lines = re.findall(r"^ckptcheck (\w+)([^#\n]*)", README, re.MULTILINE)
    assert {command for command, _ in lines} <= set(COMMANDS)
    for command, rest in lines:
        outcome = CliRunner().invoke(door, [command, *rest.split(), "--help"])
        assert outcome.exit_code == 0, outcome.output
