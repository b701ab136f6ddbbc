"""What needs fresh interpreters, as every verdict that a user sees does: real processes, through the command line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from ckptcheck.cli.main import door
from ckptcheck.finding import Result, Verdict
from ckptcheck.verbs import verify

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"} | more
    return subprocess.run(
        [sys.executable, "-m", "ckptcheck", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=170,
        check=False,
    )


def test_the_readme_case_passes_and_says_what_it_compared(check: Callable[..., Result]) -> None:
    said = ["verify", "fixtures/char_gpt.py", "--steps", "20", "--resume-at", "10", "--format", "json"]
    done = CliRunner().invoke(door, said)
    assert (done.exit_code, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert (result["schema"], result["command"], result["verdict"]) == (1, "verify", "pass")
    assert result["compared"]["steps"] == 10
    assert result["compared"]["parameters"] == 30
    assert result["compared"]["state_tensors"] == 90  # AdamW keeps a counter and two moments for each
    assert result["compared"]["bytes"] > 10 * 3 * 34_816 * 4  # 34,816 parameters: values and moments at ten steps


def test_the_demo_shows_a_clean_and_a_broken_resume() -> None:
    done = command("demo")
    assert done.returncode == 0
    assert done.stdout.index("PASS") < done.stdout.index("FAIL") < done.stdout.index("CK201")


SET_OF_PARAMETERS = """
import os
def build(ctx):
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(6, 6, bias=False) for _ in range(8)])
    optimizer = torch.optim.Adam(set(model.parameters()), lr=0.01)
    def step(s):
        optimizer.zero_grad()
        x = torch.full((1, 6), 0.1 * s)
        for place, layer in enumerate(model):
            x = layer(x) + place
        x.square().mean().backward()
        optimizer.step()
    def save(path):
        torch.save([model.state_dict(), optimizer.state_dict()], path)
    def load(path):
        saved = torch.load(path)
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=save, load=load)
"""


def test_parameters_in_a_set_are_found_since_every_process_has_its_own_addresses(target: Callable[[str], str]) -> None:
    result = verify(target(SET_OF_PARAMETERS), steps=4, quick=True)
    assert result.verdict is Verdict.FAIL
    assert result.cause is not None
    assert result.cause.code == "CK302"


OF_ITS_OWN = """
def build(ctx):
    with open("here", "a") as told:
        told.write(f"{hash('a string')} {id(object())}\\n")
    model = nn.Linear(1, 1)
    model.weight.data.zero_(), model.bias.data.zero_()
    (ctx.workdir / "note").write_text("mine alone")
    def step(s):
        assert [path.name for path in ctx.workdir.iterdir() if path.is_file()] == ["note"]
        with torch.no_grad():
            model.weight.add_(hash("a string") % 1000 / 1000)
            model.bias.add_(id(object()) % 100003 / 1000)
    def save(path):
        assert path.is_relative_to(ctx.workdir) and not path.exists()
        torch.save(model.state_dict(), path)
    def load(path):
        assert path.is_relative_to(ctx.workdir) and path.exists()
        model.load_state_dict(torch.load(path))
    return ckptcheck.Run(model=model, step=step, save=save, load=load)
"""


def test_what_only_a_fresh_interpreter_changes_is_seen_and_each_has_a_folder_of_its_own(
    target: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weight hangs on the hash seed, the bias on addresses; the user's working directory is that of all runs."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.chdir(tmp_path)
    result = verify(target(OF_ITS_OWN), steps=3)
    assert (result.verdict, result.exit_code) == (Verdict.INCONCLUSIVE, 3)
    told = [line.split() for line in (tmp_path / "here").read_text().splitlines()]
    assert len(told) >= 3
    assert [len({*column}) for column in zip(*told, strict=True)] == [len(told)] * 2, "none is met twice"


def test_a_target_may_be_a_module_and_its_neighbours_can_be_imported(tmp_path: Path) -> None:
    package = tmp_path / "lab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("from torch import nn\nmodel = nn.Linear(1, 1)\n")
    (package / "training.py").write_text(
        "import ckptcheck\nfrom lab.parts import model\n"
        "def make(ctx):\n    model.weight.data.fill_(1)\n    model.bias.data.fill_(1)\n"
        "    return ckptcheck.Run(model=model, step=lambda s: model.weight.data.add_(s).item())\n"
    )
    (tmp_path / "random.py").write_text("raise SystemExit('the folder that one stands in was imported from')\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ckptcheck", "verify", "lab.training:make", "--steps", "4", "-q", "--quick"],
        capture_output=True, text=True, cwd=tmp_path, timeout=170, check=False,
    )  # fmt: skip
    assert "the folder that one stands in" in done.stderr + done.stdout or done.returncode == 0
