"""Trials whose files go away with the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.trials import Trials


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trials]:
    trials = Trials(tmp_path)
    yield trials
    trials.close()
