import shutil
from pathlib import Path

import pytest

from ckptcheck.store.save import save
from tests.store.runs import trained


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests look at the order of operations; `kill_sweep` waits for the real disk.
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test may change."""
    folder = tmp_path_factory.mktemp("pristine") / "s"
    save(folder, **trained(0), step=2)
    return folder


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    """A store of `trained(0)` to be damaged."""
    shutil.copytree(pristine, tmp_path / "s")
    return tmp_path / "s"
