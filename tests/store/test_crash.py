"""Wherever a save is stopped, the folder holds the old state or the new one, whole."""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim

from ckptcheck.errors import StoreError
from ckptcheck.store import files
from ckptcheck.store.load import load
from ckptcheck.store.read import is_store
from ckptcheck.store.save import save
from tests.store.journal import Crash, Journal, after_power_cut
from tests.store.runs import Fields


def fields(step: int) -> Fields:
    """A run whose every tensor says at which step it was."""
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(step)
    model.weight.grad = torch.full((1, 2), float(step))
    optimizer = optim.SGD(model.parameters(), lr=0.0, momentum=0.5)
    optimizer.step()
    return {"model": model, "optimizer": optimizer}


def loaded_step(folder: Path) -> int | None:
    """The step that the folder holds; every part of the state must be that step's. None for no state."""
    there = fields(0)
    try:
        step = load(folder, **there)
    except StoreError:
        assert not is_store(folder), "a state is there and does not load"
        return None
    weight = there["model"].weight
    moment = there["optimizer"].state[weight]["momentum_buffer"]
    assert {step} == {*weight.flatten().tolist(), *weight.grad.flatten().tolist(), *moment.flatten().tolist()}
    return step


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def operations(folder: Path, step: int) -> list[tuple[str, str, Any]]:
    with Journal().recording() as journal:
        save(folder, **fields(step), step=step)
    return journal.done


@pytest.mark.parametrize("torn", [False, True], ids=["before the operation", "with half of a write done"])
@pytest.mark.parametrize("old", [None, 1], ids=["the first save", "a later save"])
def test_a_crash_at_any_operation_leaves_the_old_state_or_the_new_one(
    old: int | None, torn: bool, tmp_path: Path
) -> None:
    count = len(operations(tmp_path / "counted" / "deep", 2)) if old is None else None
    if count is None:
        save(tmp_path / "counted", **fields(1), step=1)
        count = len(operations(tmp_path / "counted", 2))
    assert count > 15
    seen = set()
    for place in range(count):
        folder = tmp_path / f"s{place}" / "deep"
        if old is not None:
            save(folder, **fields(old), step=old)
        with pytest.raises(Crash), Journal(stop_at=place, torn=torn).recording():
            save(folder, **fields(2), step=2)
        seen.add(loaded_step(folder))
        save(folder, **fields(3), step=3)
        assert loaded_step(folder) == 3
        assert len(names(folder)) == 5, "a later save sweeps away what the crashed one left"
    assert seen == {old, 2}


def test_an_error_at_any_operation_leaves_the_old_state_and_no_rubbish(tmp_path: Path) -> None:
    save(tmp_path / "counted", **fields(1), step=1)
    done = operations(tmp_path / "counted", 2)
    swap = next(place for place, (name, _, _) in enumerate(done) if name == "replace")
    folder = tmp_path / "s"
    save(folder, **fields(1), step=1)
    before = names(folder)
    for place in range(swap):
        full = OSError(errno.ENOSPC, "No space left on device")
        with Journal(stop_at=place, trouble=full).recording(), pytest.raises(StoreError, match="No space left"):
            save(folder, **fields(2), step=2)
        assert names(folder) == before
        assert loaded_step(folder) == 1


def test_an_interrupt_after_the_swap_keeps_the_new_state(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    save(folder, **fields(1), step=1)
    done = operations(folder, 2)
    swap = next(place for place, (name, _, _) in enumerate(done) if name == "replace")
    for place in range(swap + 1, len(done)):
        save(folder, **fields(1), step=1)
        with pytest.raises(KeyboardInterrupt), Journal(stop_at=place, trouble=KeyboardInterrupt()).recording():
            save(folder, **fields(2), step=2)
        assert loaded_step(folder) == 2


def test_everything_is_on_the_disk_before_the_swap_and_nothing_goes_before_the_swap_is(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    save(folder, **fields(1), step=1)
    old = names(folder) - {"training_state.json"}
    done = [(name, Path(path).name, more) for name, path, more in operations(folder, 2)]
    new = names(folder) - {"training_state.json"}
    order = [(name, path) for name, path, _ in done]
    swap = next(place for place, (name, _, _) in enumerate(done) if name == "replace")
    temporary = done[swap][1]
    assert done[swap][2] == str(folder / "training_state.json")
    for file in (*new, temporary):
        writes = [place for place, one in enumerate(order) if one == ("write", file)]
        assert order.index(("open", file)) < min(writes)
        assert max(writes) < order.index(("fsync", file)) < swap
    assert all(order.index(("fsync", file)) < order.index(("open", temporary)) for file in new)
    syncs = [place for place, one in enumerate(order) if one == ("fsync", "s")]
    assert any(order.index(("fsync", temporary)) < place < swap for place in syncs)
    unlinks = [place for place, (name, _) in enumerate(order) if name == "unlink"]
    assert {order[place][1] for place in unlinks} == old
    assert any(swap < place < min(unlinks) for place in syncs)


def test_a_new_folder_is_on_the_disk_before_anything_is_in_it(tmp_path: Path) -> None:
    done = operations(tmp_path / "a" / "b", 1)
    assert [(name, path) for name, path, _ in done[:4]] == [
        ("mkdir", str(tmp_path / "a")),
        ("fsync", str(tmp_path)),
        ("mkdir", str(tmp_path / "a" / "b")),
        ("fsync", str(tmp_path / "a")),
    ]


@pytest.mark.parametrize("old", [None, 1], ids=["the first save", "a later save"])
def test_a_power_cut_at_any_moment_leaves_the_old_state_or_the_new_one(old: int | None, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    if old is not None:
        save(folder, **fields(old), step=old)
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    done = operations(folder, 2)
    states = after_power_cut(done, folder, before)
    assert len(states) > 20
    seen = set()
    for place, state in enumerate(sorted(states, key=sorted)):
        left = tmp_path / f"left{place}"
        left.mkdir()
        for name, content in state:
            (left / name).write_bytes(content)
        seen.add(loaded_step(left))
    assert seen == {old, 2}


def test_the_model_of_a_power_cut_shows_a_save_that_does_not_sync(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    save(folder, **fields(1), step=1)
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    done = operations(folder, 2)
    payload = next(path for name, path, _ in done if name == "open")
    for lost in (("fsync", payload, None), ("fsync", str(folder), None)):
        careless = [one for one in done if one != lost]
        broken = 0
        for state in after_power_cut(careless, folder, before):
            left = tmp_path / "left"
            left.mkdir(exist_ok=True)
            for one in left.iterdir():
                one.unlink()
            for name, content in state:
                (left / name).write_bytes(content)
            try:
                loaded_step(left)
            except AssertionError:
                broken += 1
        assert broken, lost


def test_two_saves_at_once_into_one_folder_are_refused_and_the_first_one_wins(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    save(folder, **fields(1), step=1)

    with files.locked(folder, exclusive=True), pytest.raises(StoreError, match="give each rank a folder of its own"):
        save(folder, **fields(2), step=2)
    assert loaded_step(folder) == 1
