"""A manifest made to mislead, by somebody who knows its digest, is refused: no crash, nothing outside is read."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckptcheck.errors import StoreError
from ckptcheck.store.load import load
from ckptcheck.store.read import read_state
from tests.store.runs import everything, payload_file, trained


def told(call: Callable[[], Any]) -> str:
    """What a call is refused with, if it is; any other exception goes through."""
    try:
        call()
    except StoreError as refused:
        return str(refused)
    return ""


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
    assert load(store, **trained(1)) == 2


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


@pytest.mark.parametrize("name", HOSTILE)
def test_a_manifest_made_to_mislead_never_loads_and_never_crashes(
    name: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.parent / "outside.safetensors").write_bytes(payload_file(store).read_bytes())
    edit(store, HOSTILE[name])
    opened = []
    original = os.open
    monkeypatch.setattr("os.open", lambda path, *rest: opened.append(Path(path)) or original(path, *rest))
    live = trained(1)
    before = everything(live)
    refused = told(lambda: load(store, **live))
    assert refused.isprintable()
    assert refused
    assert everything(live) == before
    assert told(lambda: read_state(store)).isprintable()
    assert {path.parent for path in opened if path != store} <= {store}


def test_nesting_that_no_save_writes_is_refused_as_such(store: Path) -> None:
    edit(store, into(nested(250)))
    assert "nested deeper than 100 levels" in told(lambda: read_state(store))
    assert "nested deeper than 100 levels" in told(lambda: load(store, **trained(1)))
