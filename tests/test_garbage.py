"""The search for garbage rests during a call, and is then as it was."""

import gc

import pytest

from ckptcheck import verbs
from ckptcheck.errors import CheckpointError
from ckptcheck.garbage import no_garbage_search


@pytest.fixture(autouse=True)
def searching():
    gc.enable()
    yield
    gc.enable()


def test_it_rests_within_and_goes_on_after_an_error():
    seen = []

    @no_garbage_search()
    def fail():
        seen.append(gc.isenabled())
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (seen, gc.isenabled()) == ([False], True)


def test_it_stays_off_for_who_turned_it_off():
    gc.disable()
    with no_garbage_search():
        pass
    assert not gc.isenabled()


def test_it_rests_while_a_checkpoint_is_inspected_and_goes_on_after_a_refusal(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("ckptcheck.verdict.inspection.inspect_checkpoint", lambda *_, **__: seen.append(gc.isenabled()))
    verbs.inspect(tmp_path)
    assert seen == [False]
    with pytest.raises(CheckpointError):
        verbs.diff(tmp_path / "none", tmp_path / "none")
    assert gc.isenabled()
