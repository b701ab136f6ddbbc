"""The two formats of torch before 1.6: equal to torch's own reading, and every way to be cut or to lie is told."""

import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.readers.torch.torch_legacy import VERSION
from ckptcheck.state.raw import Foreign
from tests.readers.live_values import assert_same
from tests.samples import CHECKPOINTS

STREAM = CHECKPOINTS / "01_torch_save/legacy_full.pt"
TAR = CHECKPOINTS / "02_torch_edge/legacy_tar.pt"


def saved(path: Path, value: Any) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=False)
    return path


def test_the_sample_of_the_stream_is_read_as_torch_reads_it() -> None:
    tree = read_raw(STREAM)
    live = torch.load(STREAM, weights_only=False)
    assert tree.container == "torch-legacy"
    assert assert_same(tree.root["model"], live["model"]) > 5
    assert assert_same(tree.root["optimizer"], live["optimizer"]) > 20
    assert tree.facts["byteorder"] == "little"
    assert {one.has_checksum for one in tree.members} == {False}
    assert [one.verify() for one in tree.members] == [None] * len(tree.members)


def test_every_dtype_views_and_ties_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    whole = torch.arange(60.0).reshape(6, 10)
    value = {
        "strided": whole[1:, ::3],
        "turned": whole.t(),
        "tied": [whole, whole],
        "expanded": torch.ones(1).expand(3, 4),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        **{
            str(dtype): torch.arange(48, dtype=torch.uint8).view(dtype)
            for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int16)
        },
        "bool": torch.tensor([True, False]),
    }
    path = saved(tmp_path / "all.pt", value)
    tree = read_raw(path)
    assert assert_same(tree.root, torch.load(path, weights_only=False)) == 15
    first, second = tree.root["tied"]
    assert first.place == second.place
    assert first.storage == tree.root["turned"].storage


def test_parts_of_a_tensor_are_read_from_any_position(tmp_path: Path) -> None:
    tensor = read_raw(saved(tmp_path / "a.pt", torch.arange(100, dtype=torch.int32))).root
    part = memoryview(bytearray(8))
    tensor.read_into(40, part)
    assert struct.unpack("<2i", part) == (10, 11)


def test_a_whole_module_names_its_source_and_is_not_run(tmp_path: Path) -> None:
    tree = read_raw(saved(tmp_path / "module.pt", torch.nn.Linear(2, 3)))
    assert isinstance(tree.root, Foreign)
    assert tree.root.class_name == "torch.nn.modules.linear.Linear"
    assert any(name.endswith("linear.py") for name in tree.facts["source_files"])


def test_a_big_endian_file_is_read(tmp_path: Path) -> None:
    content = saved(tmp_path / "a.pt", torch.tensor([1.5, -2.0, 3.0])).read_bytes()
    data = struct.pack("<q3f", 3, 1.5, -2.0, 3.0)
    swapped = content.replace(b"little_endianq\x02\x88", b"little_endianq\x02\x89").replace(
        data, struct.pack(">q3f", 3, 1.5, -2.0, 3.0)
    )
    assert len(swapped) == len(content) != content.count(swapped)
    (tmp_path / "big.pt").write_bytes(swapped)
    tree = read_raw(tmp_path / "big.pt")
    assert tree.facts["byteorder"] == "big"
    assert bytes(tree.root.fetch()) == struct.pack("<3f", 1.5, -2.0, 3.0)


def test_views_of_files_before_torch_0_4_are_parts_of_their_storage(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    path.write_bytes(_stream([_Storage(("7", "cpu", 6, ("9", 2, 3)))], [7], struct.pack("<q6f", 6, *range(6))))
    (storage,) = read_raw(path).root
    assert storage.spec.shape == (3,)
    assert bytes(storage.fetch()) == struct.pack("<3f", 2, 3, 4)


class _Storage:
    """Stands for a storage in a pickle."""

    def __init__(self, described: tuple[Any, ...]) -> None:
        self.described = described


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return ("storage", torch.FloatStorage, *obj.described) if isinstance(obj, _Storage) else None


def _stream(value: Any, keys: Any, data: bytes, version: Any = VERSION, system: Any = None) -> bytes:
    """A legacy file by hand."""
    file = io.BytesIO()
    pickle.dump(0x1950A86A20F9469CFC6C, file, 2)
    pickle.dump(version, file, 2)
    pickle.dump({"little_endian": True} if system is None else system, file, 2)
    _Pickler(file, 2).dump(value)
    pickle.dump(keys if keys is None else [str(key) for key in keys], file, 2)
    return file.getvalue() + data


ONE = [_Storage(("7", "cpu", 2, None))]
DATA = struct.pack("<q2f", 2, 1.0, 2.0)
LIES: dict[str, tuple[bytes, str]] = {
    "no data": (_stream(ONE, [7], b""), "were promised"),
    "data cut": (_stream(ONE, [7], DATA[:-1]), "cut short"),
    "another count": (_stream(ONE, [7], struct.pack("<q", 3) + DATA[8:]), "has 3 elements, its pickle promises 2"),
    "a negative count": (_stream(ONE, [7], struct.pack("<q", -1) + DATA[8:]), "has -1 elements"),
    "a storage that is not listed": (_stream(ONE, [], DATA), "lists 0 storages, its pickle names 1"),
    "a storage that is not named": (_stream(ONE, [7, 8], DATA), "lists 2 storages, its pickle names 1"),
    "a storage listed twice": (_stream(ONE, [7, 7], DATA), "lists 2 storages, its pickle names 1"),
    "no list": (_stream(ONE, None, DATA), "does not list its storages"),
    "another version": (_stream(ONE, [7], DATA, version=1002), "of version 1002"),
    "no byte order": (_stream(ONE, [7], DATA, system={"a": 1}), "does not say its byte order"),
    "two lengths of one storage": (
        _stream([*ONE, _Storage(("7", "cpu", 3, None))], [7], DATA), "is of 8 and of 12 bytes",
    ),
    "a view that reaches beyond": (_stream([_Storage(("7", "cpu", 2, ("9", 1, 2)))], [7], DATA), "reaches beyond"),
    "a view before the storage": (_stream([_Storage(("7", "cpu", 2, ("9", -1, 2)))], [7], DATA), "reaches beyond"),
    "a storage without length": (_stream([_Storage(("7", "cpu", "x", None))], [7], DATA), "no known class"),
    "a huge storage": (_stream([_Storage(("7", "cpu", 2**61, None))], [7], struct.pack("<q", 2**61)), "were promised"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "said"), LIES.values(), ids=LIES)
def test_a_stream_that_lies_is_told(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=said) as caught:
        read_raw(tmp_path / "a.pt")
    assert str(tmp_path / "a.pt") in str(caught.value)


def test_what_the_lies_are_made_from_is_sound(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(_stream(ONE, [7], DATA))
    assert bytes(read_raw(tmp_path / "a.pt").root[0].fetch()) == DATA[8:]
    (tmp_path / "b.pt").write_bytes(_stream(ONE, [7], DATA) + b"more")
    assert read_raw(tmp_path / "b.pt").facts["trailing_bytes"] == 4


@pytest.mark.parametrize("path", [STREAM, TAR], ids=["stream", "tar"])
def test_a_file_cut_anywhere_is_damaged_or_refused(tmp_path: Path, path: Path) -> None:
    content = path.read_bytes()
    cut = tmp_path / "cut.pt"
    end = len(content) - 1 if path == STREAM else content.rindex(b"\x80\x02]q\x00.")
    for length in [*range(16, end, len(content) // 40), end]:
        cut.write_bytes(content[:length])
        with pytest.raises(CheckpointError):
            read_raw(cut)


def test_a_pickle_longer_than_the_first_look_is_read_whole(tmp_path: Path) -> None:
    value = {"text": "x" * 100_000, "rows": [f"row {place}" for place in range(90_000)], "tensor": torch.ones(3)}
    assert_same(read_raw(saved(tmp_path / "long.pt", value)).root, value)


def test_the_sample_of_the_tar_is_read_as_torch_reads_it() -> None:
    tree = read_raw(TAR)
    assert tree.container == "torch-tar"
    assert assert_same(tree.root, torch.load(TAR, weights_only=False)) == 1
    assert [(one.nbytes, one.verify()) for one in tree.members] == [(24, None)]


def tar_of(path: Path, parts: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


class _Reference:
    def __init__(self, key: int) -> None:
        self.key = key


class _TarPickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.key if isinstance(obj, _Reference) else None


def dumped(value: Any) -> bytes:
    file = io.BytesIO()
    _TarPickler(file, 2).dump(value)
    return file.getvalue()


def tar_parts(tensor: bytes | None = None, views: Any = None) -> dict[str, bytes]:
    """A file of torch 0.1 with one storage of six floats, a view of it, and a tensor of each."""
    shaped = struct.pack("<i4x5q", 2, 2, 3, 3, 1, 0)
    return {
        "sys_info": dumped({}),
        "pickle": dumped({"w": _Reference(2), "v": _Reference(4)}),
        "tensors": dumped(2) + dumped((2, 1, torch.FloatTensor)) + (tensor or shaped)
        + dumped((4, 3, torch.FloatTensor)) + struct.pack("<i4x3q", 1, 2, 1, 0),
        "storages": dumped(1) + dumped((1, "cpu", torch.FloatStorage)) + struct.pack("<q6f", 6, *range(6))
        + dumped([(3, 1, 4, 2)] if views is None else views),
    }  # fmt: skip


def test_a_tar_with_views_of_storages_is_read_as_torch_reads_it(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "old.pt", tar_parts())
    live = torch.load(path, weights_only=False)
    assert live["v"].tolist() == [4.0, 5.0]
    assert assert_same(read_raw(path).root, live) == 2


TAR_LIES: dict[str, tuple[Callable[[], dict[str, bytes]], str]] = {
    "a tensor beyond its storage": (lambda: tar_parts(struct.pack("<i4x5q", 2, 2, 3, 4, 1, 0)), "byte 28 of the 24"),
    "a negative length": (lambda: tar_parts(struct.pack("<i4x5q", 2, -2, 3, 3, 1, 0)), "a length that is no number"),
    "a negative offset": (lambda: tar_parts(struct.pack("<i4x5q", 2, 2, 3, 3, 1, -1)), "begins nowhere in its storage"),
    "65 dimensions": (lambda: tar_parts(struct.pack("<i", 65) + bytes(2000)), "of 65 dimensions"),
    "negative dimensions": (lambda: tar_parts(struct.pack("<i", -1) + bytes(20)), "of -1 dimensions"),
    "a view of no storage": (lambda: tar_parts(views=[(3, 99, 4, 2)]), "a view of a storage that is not there"),
    "a view beyond its storage": (lambda: tar_parts(views=[(3, 1, 5, 2)]), "were promised"),
    "a view that is no tuple": (lambda: tar_parts(views=[1]), "a view of a storage that is not there"),
    "no tensors": (lambda: {name: one for name, one in tar_parts().items() if name != "tensors"}, "has no 'tensors'"),
    "no pickle": (lambda: {name: one for name, one in tar_parts().items() if name != "pickle"}, "has no 'pickle'"),
    "a tensor that is not there": (lambda: {**tar_parts(), "pickle": dumped(_Reference(5))}, "is not in the tar"),
    "no count": (lambda: {**tar_parts(), "storages": dumped("x")}, "begins with no count"),
    "a negative count": (lambda: {**tar_parts(), "storages": dumped(-1)}, "begins with no count"),
    "more storages than there are": (lambda: {**tar_parts(), "storages": dumped(2)}, "no triple|pickle"),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "said"), TAR_LIES.values(), ids=TAR_LIES)
def test_a_tar_that_lies_is_told(tmp_path: Path, parts: Callable[[], dict[str, bytes]], said: str) -> None:
    path = tar_of(tmp_path / "a.pt", parts())
    with pytest.raises(DamagedCheckpointError, match=said):
        read_raw(path)


def test_nothing_in_a_stream_is_run(tmp_path: Path) -> None:
    class Run:
        def __reduce__(self) -> tuple[Any, ...]:
            return exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",)

    tree = read_raw(saved(tmp_path / "a.pt", {"x": Run()}))
    assert not (tmp_path / "ran").exists()
    assert [one.danger for one in tree.globals if one.name.endswith("exec")] == ["runs-code"]
