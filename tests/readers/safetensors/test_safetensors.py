"""safetensors: equal to its own library's reading, and every way a header can lie is told."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers import json_file
from ckptcheck.readers.reading import read_raw
from ckptcheck.readers.safetensors import safetensors as reader
from ckptcheck.state.raw import MAX_RAW_DEPTH, Flaw
from tests.readers.live_values import assert_same_tensors, bytes_of
from tests.readers.safetensors_bytes import entry, safetensors_file
from tests.samples import CHECKPOINTS

SAMPLES = sorted(CHECKPOINTS.rglob("*.safetensors"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(CHECKPOINTS)))
def test_every_sample_is_read_as_by_its_own_library(path: Path) -> None:
    tree = read_raw(path)
    assert tree.container == "safetensors"
    assert_same_tensors(tree.root, safetensors.torch.load_file(path))
    with safetensors.safe_open(path, "pt") as file:
        assert tree.facts["metadata"] == (file.metadata() or {})


def test_there_are_samples() -> None:
    assert len(SAMPLES) >= 12


DTYPES = [dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)]


def test_every_dtype_that_the_library_writes_is_read(tmp_path: Path) -> None:
    wanted = {}
    for dtype in {str(one): one for one in DTYPES}.values():
        if dtype in {safetensors.torch._TYPES.get(code) for code in safetensors.torch._TYPES}:
            wanted[str(dtype)] = torch.arange(48, dtype=torch.uint8).reshape(2, -1).view(dtype)
    wanted["torch.bool"] = torch.tensor([[True, False]])
    wanted["scalar"] = torch.tensor(2.5)
    wanted["empty"] = torch.zeros(3, 0)
    safetensors.torch.save_file(wanted, tmp_path / "all.safetensors")
    assert len(wanted) >= 18
    assert_same_tensors(read_raw(tmp_path / "all.safetensors").root, wanted)


def test_float4_shapes_count_values_in_the_file_and_bytes_in_torch(tmp_path: Path) -> None:
    tensor = torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2)
    safetensors.torch.save_file({"a": tensor}, tmp_path / "four.safetensors")
    assert json.loads((tmp_path / "four.safetensors").read_bytes()[8:].split(b"}}")[0] + b"}}")["a"]["shape"] == [2, 6]
    read = read_raw(tmp_path / "four.safetensors").root["a"]
    assert (read.spec.dtype, read.spec.shape) == ("float4_e2m1fn_x2", (2, 3))
    assert bytes(read.fetch()) == bytes_of(tensor)


def test_bytes_are_read_from_any_position(tmp_path: Path) -> None:
    path = safetensors_file(tmp_path / "a", {"a": entry("U8", [3], 0, 3), "b": entry("U8", [5], 3, 8)}, b"abcDEFGH")
    part = memoryview(bytearray(3))
    read_raw(path).root["b"].read_into(1, part)
    assert bytes(part) == b"EFG"


def test_tensors_keep_the_order_of_the_header(tmp_path: Path) -> None:
    path = safetensors_file(tmp_path / "a", {"z": entry("U8", [1], 1, 2), "a": entry("U8", [1], 0, 1)}, b"az")
    tree = read_raw(path)
    assert list(tree.root) == ["z", "a"]
    assert [bytes(one.fetch()) for one in tree.root.values()] == [b"z", b"a"]


def test_a_file_without_tensors_is_read(tmp_path: Path) -> None:
    assert read_raw(safetensors_file(tmp_path / "a", {})).root == {}


def test_members_have_no_checksum_and_are_all_of_the_data(tmp_path: Path) -> None:
    path = safetensors_file(tmp_path / "a", {"a": entry("F32", [2], 0, 8), "b": entry("U8", [1], 8, 9)}, b"123456789")
    members = read_raw(path).members
    assert [(one.name, one.nbytes, one.has_checksum) for one in members] == [("a", 8, False), ("b", 1, False)]
    assert [one.verify() for one in members] == [None, None]


def test_a_file_cut_short_after_it_was_described_is_a_defect(tmp_path: Path) -> None:
    path = safetensors_file(tmp_path / "a", {"a": entry("F32", [2], 0, 8)}, b"12345678")
    (member,) = read_raw(path).members
    path.write_bytes(path.read_bytes()[:-1])
    defect = member.verify()
    assert defect is not None
    assert defect.flaw is Flaw.UNREADABLE


ONE = {"a": entry("F32", [2], 0, 8)}
SHORT = json.dumps(entry("U8", [1], 0, 1)).encode()
DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LIES: dict[str, tuple[Any, bytes, str]] = {
    "too little data": (ONE, b"1234567", "promises 8 bytes of data, the file holds 7: cut short"),
    "too much data": (ONE, b"123456789", "1 bytes follow the last tensor"),
    "a hole": ({"a": entry("U8", [1], 0, 1), "b": entry("U8", [1], 2, 3)}, b"123", "'b' begins at byte 2.*1 bytes"),
    "a hole at the beginning": ({"a": entry("U8", [1], 1, 2)}, b"12", "leaves 1 bytes unused"),
    "an overlap": ({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"123", "'b' begins at.*overlaps"),
    "one range twice": ({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 0, 2)}, b"12", "'b'.*overlaps"),
    "size against shape": ({"a": entry("F32", [3], 0, 8)}, b"12345678", r"F32\[3\] takes 12 bytes.*span 8"),
    "an unknown dtype": ({"a": entry("F6_E2M3", [4], 0, 3)}, b"123", "dtype 'F6_E2M3' is none that is known"),
    "a dtype that is no text": ({"a": entry([], [4], 0, 4)}, b"1234", "dtype"),  # type: ignore[arg-type]
    "a negative length": ({"a": entry("U8", [-1], 0, 0)}, b"", "its shape"),
    "a length that is no integer": ({"a": entry("U8", [1.0], 0, 1)}, b"1", "its shape"),  # type: ignore[list-item]
    "a length that is a bool": ({"a": entry("U8", [True], 0, 1)}, b"1", "its shape"),
    "a shape without end": ({"a": entry("U8", [1] * 65, 0, 1)}, b"1", "its shape"),
    "a huge shape": ({"a": entry("U8", [2**40, 2**40], 0, 1)}, b"1", "takes 1208925819614629174706176 bytes"),
    "offsets backwards": ({"a": entry("U8", [0], 1, 0)}, b"", "data_offsets are no range"),
    "three offsets": ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 1]}}, b"1", "are no range"),
    "an entry without shape": ({"a": {"dtype": "U8", "data_offsets": [0, 1]}}, b"1", "not just dtype, shape"),
    "an entry with more": ({"a": {**entry("U8", [1], 0, 1), "x": 1}}, b"1", "not just dtype, shape"),
    "an entry that is no object": ({"a": 1}, b"", "not just dtype, shape"),
    "odd float4": ({"a": entry("F4", [3], 0, 1)}, b"1", "does not fill whole bytes"),
    "a float4 scalar": ({"a": entry("F4", [], 0, 1)}, b"1", "does not fill whole bytes"),
    "a key twice": (b'{"a":' + SHORT + b',"a":' + SHORT + b"}", b"1", "the key 'a' twice"),
    "metadata of numbers": ({"__metadata__": {"step": 1}}, b"", "__metadata__ in the header is no object of texts"),
    "metadata that is a list": ({"__metadata__": []}, b"", "__metadata__ in the header is no object of texts"),
    "no JSON": (b'{"a": ', b"", "no valid JSON"),
    "no UTF-8": (b'{"\xff": 1}', b"", "no valid JSON"),
    "JSON after JSON": (b"{}{}", b"", "no valid JSON"),
    "a deep header": (DEEP, b"", f"100001 levels deep, more than {MAX_RAW_DEPTH}"),
    "half a surrogate": (b'{"__metadata__":{"a":"\\ud800"}}', b"", "no Unicode"),
    "an integer without end": (b'{"a":' + b"9" * 5000 + b"}", b"", "no valid JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("header", "data", "said"), LIES.values(), ids=LIES)
def test_a_header_that_lies_is_told(tmp_path: Path, header: Any, data: bytes, said: str) -> None:
    path = safetensors_file(tmp_path / "a.safetensors", header, data)
    with pytest.raises(DamagedCheckpointError, match=said) as caught:
        read_raw(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.flaw == Flaw.UNREADABLE


@pytest.mark.parametrize("left", [9, 10, 100, -1])
def test_a_truncated_file_is_damaged(tmp_path: Path, left: int) -> None:
    path = tmp_path / "cut.safetensors"
    path.write_bytes((CHECKPOINTS / "04_hf_trainer/checkpoint-2/model.safetensors").read_bytes()[:left])
    with pytest.raises(DamagedCheckpointError, match="cut short"):
        read_raw(path)


def test_a_header_of_more_values_than_are_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_JSON_VALUES", 10)
    path = safetensors_file(tmp_path / "a", {str(place): entry("U8", [0], 0, 0) for place in range(4)})
    with pytest.raises(DamagedCheckpointError, match="more than 10 values"):
        read_raw(path)


def test_a_header_beyond_the_formats_bound_is_none_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes((reader.MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}")
    source_error = pytest.raises(Exception, match="is no checkpoint")
    with source_error:
        read_raw(path)


def test_one_shard_of_a_set_says_so() -> None:
    tree = read_raw(CHECKPOINTS / "15_safetensors_sharded/sharded/model-00002-of-00004.safetensors")
    assert tree.facts["shard"] == "2 of 4"
