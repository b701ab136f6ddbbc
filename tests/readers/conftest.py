from collections.abc import Iterator

import pytest

from tests.readers.exploring import Watch


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """A watched process, in a folder that must stay empty."""
    watching = Watch(tmp_path_factory.mktemp("watched"))
    yield watching
    watching.close()
    assert list(watching.folder.iterdir()) == []
