"""Whatever stands where a store should be is refused in one line, and nothing outside the folder is read."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from ckptcheck.errors import StoreError
from ckptcheck.store.load import load
from ckptcheck.store.read import is_store, read_state
from ckptcheck.store.save import save
from tests.store.runs import everything, payload_file, trained


def refusal(folder: Path) -> str:
    """The one line with which loading is refused; nothing live may have changed."""
    live = trained(1)
    before = everything(live)
    with pytest.raises(StoreError) as caught:
        load(folder, **live)
    assert everything(live) == before
    message = str(caught.value)
    assert "\n" not in message
    assert message.isprintable()
    assert str(folder) in message
    return message


def test_a_missing_folder_a_file_and_another_folder_are_told_apart(tmp_path: Path) -> None:
    assert "no such folder" in refusal(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    assert "a file, and a stored training state is a folder" in refusal(tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.pt").write_text("x")
    assert "no training_state.json in it" in refusal(tmp_path / "other")
    assert [is_store(tmp_path / name) for name in ("none", "file", "other")] == [False, False, False]


def test_saving_over_a_file_or_into_a_foreign_folder_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="a file stands there"):
        save(tmp_path / "file", model=nn.Linear(1, 1))
    with pytest.raises(StoreError, match=r"holds 'file' and no training state"):
        save(tmp_path, model=nn.Linear(1, 1))
    with pytest.raises(StoreError, match="cannot be written"):
        save(tmp_path / "file" / "below", model=nn.Linear(1, 1))
    assert (tmp_path / "file").read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_users_own_files_beside_a_state_stay(store: Path) -> None:
    (store / "notes.txt").write_text("mine")
    (store / "model-best.safetensors").write_text("mine too")
    save(store, **trained(1), step=5)
    assert (store / "notes.txt").read_text() == "mine"
    assert (store / "model-best.safetensors").read_text() == "mine too"
    assert load(store, **trained(2)) == 5


@pytest.mark.parametrize("role", ["model", "optimizer", "gradients", "sections"])
@pytest.mark.parametrize("place", ["first byte", "header", "first of the data", "last byte"])
def test_one_flipped_bit_in_any_payload_is_found(role: str, place: str, store: Path) -> None:
    path = payload_file(store, role)
    content = bytearray(path.read_bytes())
    data = 8 + int.from_bytes(content[:8], "little")
    content[{"first byte": 0, "header": data // 2, "first of the data": data, "last byte": -1}[place]] ^= 1
    path.write_bytes(content)
    assert path.name in refusal(store)


def test_one_flipped_bit_anywhere_in_the_manifest_is_found(store: Path) -> None:
    path = store / "training_state.json"
    whole = path.read_bytes()
    tool = range(whole.index(b'"tool"'), whole.index(b'"digest"'))
    for place in [*range(300), *range(300, len(whole) - 1, 997)]:
        content = bytearray(whole)
        content[place] ^= 1
        path.write_bytes(content)
        if place not in tool:
            with pytest.raises(StoreError):
                read_state(store)


@pytest.mark.parametrize("size", [0, 7, 100, -1])
@pytest.mark.parametrize("role", ["model", "sections"])
def test_a_payload_that_was_cut_short_is_found_by_its_size(role: str, size: int, store: Path) -> None:
    path = payload_file(store, role)
    whole = path.stat().st_size
    os.truncate(path, size if size >= 0 else whole - 1)
    assert f"{whole} bytes were promised" in refusal(store)
    with pytest.raises(StoreError, match="bytes were promised"):
        read_state(store)


def test_a_missing_payload_is_named(store: Path) -> None:
    payload_file(store).unlink()
    assert "missing, though the manifest names it: copy the whole folder" in refusal(store)


def test_payloads_of_another_save_do_not_pass(store: Path, tmp_path: Path) -> None:
    save(tmp_path / "other", **trained(5), step=2)
    shutil.copy(payload_file(tmp_path / "other"), payload_file(store))
    assert "digest" in refusal(store)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": "other"}', '{"a": 1, "a": 2}', "[" * 100_000, '{"format": NaN}', "\x00\xff"],
)
def test_a_manifest_that_is_something_else_is_refused(text: str, store: Path) -> None:
    (store / "training_state.json").write_text(text)
    refusal(store)
    assert not is_store(store)
    with pytest.raises(StoreError):
        read_state(store)


def test_a_newer_version_asks_for_a_newer_tool(store: Path) -> None:
    path = store / "training_state.json"
    path.write_text(path.read_text().replace('"version":1', '"version":2', 1))
    assert "format version 2, this ckptcheck reads up to 1: install a newer one" in refusal(store)


def test_a_manifest_edited_by_hand_is_refused(store: Path) -> None:
    path = store / "training_state.json"
    path.write_text(path.read_text().replace('"lr":0.001', '"lr":0.01', 1))
    assert "edited by hand" in refusal(store)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("which", ["payload", "manifest"])
def test_links_pipes_and_folders_in_place_of_files_are_refused(kind: str, which: str, store: Path) -> None:
    path = payload_file(store) if which == "payload" else store / "training_state.json"
    moved = store.parent / "moved"
    path.rename(moved)
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert path.name in refusal(store)


def test_a_tensor_whose_file_changed_after_reading_is_found_when_it_is_fetched(store: Path) -> None:
    state = read_state(store)
    os.truncate(payload_file(store), 200)
    reference = state.parameters["last.bias"].entry.ref
    assert reference is not None
    with pytest.raises(StoreError, match="cut short"):
        reference.fetch()


def test_a_digest_without_its_library_says_what_to_install(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    assert "pip install xxhash" in refusal(store)


def test_the_default_dtype_and_device_of_the_moment_do_not_matter(store: Path) -> None:
    live, other = trained(1), trained(1)
    load(store, **other)
    wanted = everything(other)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            load(store, **live)
    finally:
        torch.set_default_dtype(torch.float32)
    assert everything(live) == wanted
