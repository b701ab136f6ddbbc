import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests look at the order of operations; `kill_sweep` waits for the real disk.
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
