from collections.abc import Callable

import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome

from ckptcheck.cli.main import door


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ckptcheck() -> Callable[..., Outcome]:
    def run(*arguments: str, verbs: object = None) -> Outcome:
        return CliRunner().invoke(door, list(arguments), obj=verbs)

    return run
