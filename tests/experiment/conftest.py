"""Runs of these tests start as forks unless a test asks for fresh interpreters."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckptcheck.experiment import process
from ckptcheck.finding import Result
from ckptcheck.verbs import verify
from tests.experiment.forks import serve, start_forked
from tests.reports.keeping import kept

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start workers as forks, from the top of the repository."""
    serve()
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(process, "start_fresh", start_forked)


@pytest.fixture
def check(forked: None) -> Callable[..., Result]:
    """`verify` with forked workers; every result keeps the schema and can be saved and read back."""
    return lambda *asked, **options: kept(verify(*asked, **options))


@pytest.fixture
def target(tmp_path: Path) -> Callable[[str], str]:
    """Write a target file from the body of its module; the name that `verify` takes."""

    def write(body: str, name: str = "target") -> str:
        path = tmp_path / f"{name}.py"
        path.write_text("import torch\nfrom torch import nn\nimport ckptcheck\n" + body)
        return str(path)

    return write
