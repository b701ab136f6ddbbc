"""Whatever stands where a store should be is refused in one line, and nothing outside the folder is read."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim

from ckptcheck.errors import StoreError
from ckptcheck.store.load import load
from ckptcheck.store.read import is_store, read_state
from ckptcheck.store.save import save
from tests.store.runs import Fields, everything, training


def fields(seed: int) -> Fields:
    run = training(seed, optim.Adam)
    run.train(2)
    return run.fields


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine") / "s"
    save(folder, **fields(0), step=2)
    return folder


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "s")
    return tmp_path / "s"


def refusal(folder: Path) -> str:
    """The one line with which loading is refused; nothing live may have changed."""
    live = fields(1)
    before = everything(live)
    with pytest.raises(StoreError) as caught:
        load(folder, **live)
    assert everything(live) == before
    message = str(caught.value)
    assert "\n" not in message
    assert message.isprintable()
    assert str(folder) in message
    return message


def told(call: Callable[[], Any]) -> str:
    """What a call is refused with, if it is; any other exception goes through."""
    try:
        call()
    except StoreError as refused:
        return str(refused)
    return ""


def payload(folder: Path, role: str = "model") -> Path:
    return next(folder.glob(f"{role}-*.safetensors"))


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest as somebody would who knows its digest."""
    path = folder / "training_state.json"
    whole = json.loads(path.read_text())
    change(whole["state"])
    state = json.dumps(whole["state"], separators=(",", ":"))
    digest = hashlib.sha256(state.encode()).hexdigest()
    path.write_text(
        f'{{"format":"ckptcheck-training-state","version":1,"tool":"x","digest":"sha256:{digest}","state":{state}}}\n'
    )


def test_a_manifest_that_was_only_written_anew_still_loads(store: Path) -> None:
    edit(store, lambda state: None)
    assert load(store, **fields(1)) == 2


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
    save(store, **fields(1), step=5)
    assert (store / "notes.txt").read_text() == "mine"
    assert (store / "model-best.safetensors").read_text() == "mine too"
    assert load(store, **fields(2)) == 5


@pytest.mark.parametrize("role", ["model", "optimizer", "gradients", "sections"])
@pytest.mark.parametrize("place", ["first byte", "header", "first of the data", "last byte"])
def test_one_flipped_bit_in_any_payload_is_found(role: str, place: str, store: Path) -> None:
    path = payload(store, role)
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
    path = payload(store, role)
    whole = path.stat().st_size
    os.truncate(path, size if size >= 0 else whole - 1)
    assert f"{whole} bytes were promised" in refusal(store)
    with pytest.raises(StoreError, match="bytes were promised"):
        read_state(store)


def test_a_missing_payload_is_named(store: Path) -> None:
    payload(store).unlink()
    assert "missing, though the manifest names it: copy the whole folder" in refusal(store)


def test_payloads_of_another_save_do_not_pass(store: Path, tmp_path: Path) -> None:
    save(tmp_path / "other", **fields(5), step=2)
    shutil.copy(payload(tmp_path / "other"), payload(store))
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


def tensors(state: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = state["payloads"]["model"]["tensors"]
    return found


def nested(depth: int) -> Any:
    node: Any = []
    for _ in range(depth):
        node = [node]
    return node


def into(node: Any) -> Callable[[dict[str, Any]], Any]:
    """Put a node where the optimizer's state of one parameter stands."""
    return lambda state: state["optimizers"][0]["state"]["first.bias"].update(step=node)


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a payload outside": lambda state: state["payloads"]["model"].update(file="../outside.safetensors"),
    "a payload at an absolute path": lambda state: state["payloads"]["model"].update(file="/etc/passwd"),
    "a payload with a line break": lambda state: state["payloads"]["model"].update(
        file=state["payloads"]["model"]["file"] + "\n"
    ),
    "a payload that is a number": lambda state: state["payloads"]["model"].update(file=3),
    "an unknown role": lambda state: state["payloads"].update(other=state["payloads"]["model"]),
    "no payloads": lambda state: state.update(payloads={}),
    "payloads that are a list": lambda state: state.update(payloads=[]),
    "no parameters": lambda state: state.pop("parameters"),
    "a tensor of a giant shape": lambda state: tensors(state)["first.bias"].update(shape=[2**40, 2**40]),
    "a tensor of a negative shape": lambda state: tensors(state)["first.bias"].update(shape=[-5]),
    "a shape of true": lambda state: tensors(state)["first.bias"].update(shape=[True]),
    "another shape of the same size": lambda state: tensors(state)["first.weight"].update(shape=[20]),
    "an unknown dtype": lambda state: tensors(state)["first.bias"].update(dtype="load"),
    "a stride that overlaps": lambda state: tensors(state)["first.weight"].update(stride=[0, 0]),
    "a stride of a giant": lambda state: tensors(state)["first.weight"].update(stride=[2**60, 1]),
    "a digest of an unknown kind": lambda state: tensors(state)["first.bias"].update(digest="md5:00"),
    "a digest that is none": lambda state: tensors(state)["first.bias"].update(digest="xxh3_128:zz"),
    "a tensor more": lambda state: tensors(state).update(new=tensors(state)["first.bias"]),
    "a name with an escape sequence": lambda state: tensors(state).update({"\x1b[31m\n": {"shape": 3}}),
    "a step of text": lambda state: state.update(step="2"),
    "a step below zero": lambda state: state.update(step=-1),
    "modes of text": lambda state: state.update(modes={"": "yes"}),
    "flags of lists": lambda state: state.update(flags={"a": []}),
    "an unknown section": lambda state: state.update(sections={"pickle": {}}),
    "a gradient without presence": lambda state: state["parameters"]["first.bias"].update(presence="none"),
    "a parameter nobody holds": lambda state: state["parameters"].update(x=state["parameters"]["first.bias"]),
    "a group without members": lambda state: state["optimizers"][0]["groups"][0].pop("members"),
    "hyperparameters of a number": lambda state: state["optimizers"][0]["groups"][0].update(hyperparameters=3),
    "an unknown tag": into({"$": "pickle", "data": "x"}),
    "a tag of a list": into({"$": ["tuple"]}),
    "a tuple without items": into({"$": "tuple"}),
    "a dict with keys that cannot be": into({"$": "dict", "items": [[[], 1]]}),
    "an integer of text": into({"$": "int", "hex": "zz"}),
    "a float of three bytes": into({"$": "float", "bits": "000000"}),
    "bytes that are no base64": into({"$": "bytes", "base64": "!"}),
    "a factory that is not listed": into({"$": "default_dict", "factory": "eval", "items": []}),
    "a dtype that is a function": into({"$": "dtype", "name": "load"}),
    "a device that is none": into({"$": "device", "name": "nowhere"}),
    "a tensor in no payload": into({"$": "tensor", "role": "model", "key": "no such"}),
    "a blob of a number": into({"$": "bytes", "blob": 3}),
    "an array of objects": into(
        {"$": "array", "dtype": "O", "shape": [1], "fortran": False, "blob": ["model", "first.bias"]}
    ),
    "a sparse tensor out of bounds": into({"$": "sparse", "layout": "sparse_coo", "shape": [1], "parts": []}),
    "a tensor as a sparse layout": into({"$": "sparse", "layout": "load", "shape": [1], "parts": [1, 2]}),
    "deep nesting": into(nested(300)),
    "an integer of a million digits": into({"$": "int", "hex": "0x" + "f" * 1_000_000}),
    "state of a parameter in no group": lambda state: state["optimizers"][0]["state"].update(nobody={}),
    "a generator's state that is none": lambda state: state["rng"].update(torch=[1, 2]),
    "an unknown generator": lambda state: state["rng"].update(other=None),
    "a python generator of text": lambda state: state["rng"].update(python="x"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_manifest_made_to_mislead_never_loads_and_never_crashes(
    change: Callable[[dict[str, Any]], Any], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.parent / "outside.safetensors").write_bytes(payload(store).read_bytes())
    edit(store, change)
    opened = []
    original = os.open
    monkeypatch.setattr("os.open", lambda path, *rest: opened.append(Path(path)) or original(path, *rest))
    assert told(lambda: load(store, **fields(1))).isprintable()
    assert told(lambda: read_state(store)).isprintable()
    assert {path.parent for path in opened if path != store} <= {store}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("which", ["payload", "manifest"])
def test_links_pipes_and_folders_in_place_of_files_are_refused(kind: str, which: str, store: Path) -> None:
    path = payload(store) if which == "payload" else store / "training_state.json"
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
    os.truncate(payload(store), 200)
    reference = state.parameters["last.bias"].entry.ref
    assert reference is not None
    with pytest.raises(StoreError, match="cut short"):
        reference.fetch()


def test_a_digest_without_its_library_says_what_to_install(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xxhash", None)
    assert "pip install xxhash" in refusal(store)


def test_the_default_dtype_and_device_of_the_moment_do_not_matter(store: Path) -> None:
    live, other = fields(1), fields(1)
    load(store, **other)
    wanted = everything(other)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            load(store, **live)
    finally:
        torch.set_default_dtype(torch.float32)
    assert everything(live) == wanted
