"""What torch.save writes is read value by value and byte by byte as torch reads it, and never run."""

import collections
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reader import HEAD_BYTES, Head
from ckptcheck.readers.reading import Reading, read_raw
from ckptcheck.readers.source import FilePool
from ckptcheck.readers.tensor_bytes import Contiguous
from ckptcheck.readers.torch.torch_zip import TorchZip, read_torch_zip
from ckptcheck.state.raw import Danger, Flaw, StateDict, tensors_in
from tests.readers.against_torch import count_same, load_with_torch
from tests.readers.live_values import bytes_of
from tests.readers.torch_files import read_zip, saved, saved_bytes
from tests.readers.zips import entry_of, patched, zipped
from tests.samples import CHECKPOINTS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # by torch: layouts in beta, typed storages going away


def _claimed() -> list[Path]:
    found = []
    for path in sorted(CHECKPOINTS.rglob("*")):
        if path.is_file() and path.suffix != ".distcp" and path.read_bytes()[:4] == b"PK\x03\x04":
            source = FilePool().open(path)
            if TorchZip().claims(Head(source, source.head(HEAD_BYTES))):
                found.append(path)
    return found


SOUND = [path for path in _claimed() if path.stem not in {"failed_save", "trunc", "torchscript"}]


def test_every_sample_is_there() -> None:
    assert len(SOUND) > 85


@pytest.mark.parametrize("path", SOUND, ids=lambda path: str(path.relative_to(CHECKPOINTS)))
def test_every_tensor_and_value_of_a_sample_is_as_torch_reads_it(path: Path) -> None:
    tree = read_zip(path)
    live = load_with_torch(path)
    compared = count_same(tree.root, live)
    assert compared >= sum(1 for _ in tensors_in(tree.root)) - 2  # scales of a quantised tensor are not looked at
    assert tree.facts["byteorder"] == ("big" if path.stem == "big_endian" else "little")


CHECKSUMS = {"le": "on", "nocrc": "off", "deflated": "on"}


@pytest.mark.parametrize(("stem", "checksums"), CHECKSUMS.items())
def test_the_container_says_what_it_is_beside_its_content(stem: str, checksums: str) -> None:
    tree = read_zip(CHECKPOINTS / f"02_torch_edge/{stem}.pt")
    assert tree.container == "torch-zip"
    assert (tree.facts["checksums"], tree.facts["protocol"]) == (checksums, 2)
    assert tree.facts["compressed"] == (stem == "deflated")
    with zipfile.ZipFile(CHECKPOINTS / "02_torch_edge/le.pt") as archive:
        identity = archive.read("le/.data/serialization_id").decode()
    assert read_zip(CHECKPOINTS / "02_torch_edge/le.pt").facts["serialization_id"] == identity


def test_members_tell_the_one_that_has_changed() -> None:
    tree = read_zip(CHECKPOINTS / "02_torch_edge/bitflip.pt")
    found = [(one.name, defect.flaw) for one in tree.members if (defect := one.verify())]
    assert found == [("le/data/0", Flaw.CHECKSUM)]
    assert not any(one.verify() for one in read_zip(CHECKPOINTS / "02_torch_edge/nocrc.pt").members)
    assert not any(one.has_checksum for one in read_zip(CHECKPOINTS / "02_torch_edge/nocrc.pt").members)


def test_a_changed_pickle_is_never_taken_for_the_saved_one(tmp_path: Path) -> None:
    content = saved_bytes({"lr": 0.1, "w": torch.ones(2)})
    path = tmp_path / "changed.pt"
    path.write_bytes(content.replace(struct.pack(">d", 0.1), struct.pack(">d", 0.2)))
    with pytest.raises(
        DamagedCheckpointError, match=r"'archive/data.pkl' has CRC-32 .* its bytes have changed"
    ) as caught:
        read_zip(path)
    assert caught.value.flaw is Flaw.CHECKSUM
    lenient = Reading(path, strict=False)
    tree = read_torch_zip(lenient.pool.open(path), lenient)
    assert tree.root["lr"] == 0.2
    assert [one.name for one in tree.members if one.verify()] == ["archive/data.pkl"]


REFUSED = [
    ("02_torch_edge/failed_save.pt", "the save ended before it wrote 'data.pkl'", Flaw.INCOMPLETE),
    ("02_torch_edge/trunc.pt", "cut short", Flaw.UNREADABLE),
    ("03_reject/torchscript.pt", "TorchScript program", None),
    ("08_dcp/dcp_plain/__0_0.distcp", "it holds several, like a .distcp file", None),
]


@pytest.mark.parametrize(("name", "said", "flaw"), REFUSED)
def test_what_is_no_whole_checkpoint_is_refused_by_name(name: str, said: str, flaw: Flaw | None) -> None:
    with pytest.raises(CheckpointError, match=said) as caught:
        read_zip(CHECKPOINTS / name)
    assert getattr(caught.value, "flaw", None) == flaw


NO_PICKLE = {
    "storages and what stands beside them": (["a/data/0", "a/byteorder", "a/version"], True),
    "storages of two archives": (["a/data/0", "b/data/1", "b/version"], False),
    "numbered files alone": (["a/data/0", "a/data/1"], False),
    "something else beside them": (["a/data/0", "a/version", "a/notes.txt"], False),
}


@pytest.mark.parametrize(("names", "is_half_saved"), NO_PICKLE.values(), ids=NO_PICKLE)
def test_what_is_left_of_an_archive_without_its_pickle_is_a_half_save(
    tmp_path: Path, names: list[str], is_half_saved: bool
) -> None:
    path = tmp_path / "left.pt"
    path.write_bytes(zipped(dict.fromkeys(names, b"3\n")))
    with pytest.raises(CheckpointError) as caught:
        read_raw(path)
    assert getattr(caught.value, "flaw", None) == (Flaw.INCOMPLETE if is_half_saved else None)


NOT_OURS = ["13_sb3/sb3_ppo.zip", "03_reject/export.pt2", "04_hf_trainer/checkpoint-2/model.safetensors"]


@pytest.mark.parametrize("name", NOT_OURS)
def test_other_files_are_left_to_others(name: str) -> None:
    source = FilePool().open(CHECKPOINTS / name)
    assert not TorchZip().claims(Head(source, source.head(HEAD_BYTES)))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int16, torch.uint16, torch.uint8]
)
def test_big_endian_files_are_swapped_part_by_part(tmp_path: Path, dtype: torch.dtype) -> None:
    live = torch.randint(0, 256, (24 * 8,), dtype=torch.uint8).view(dtype).reshape(4, -1)
    part = {torch.complex64: 4}.get(dtype, live.element_size())
    swapped = live.clone().view(torch.uint8).reshape(-1, part).flip(1).reshape(-1).view(dtype).reshape(live.shape)
    content = saved_bytes({"row": swapped, "turned": swapped.t()}).replace(b"little", b"bigbig")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {
            one.filename: content[_payload(content, one.header_offset) :][: one.file_size] for one in archive.infolist()
        }
    path = tmp_path / "big.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name, held in members.items():
            archive.writestr(name, b"big" if name.endswith("byteorder") else held)
    tree = read_zip(path)
    assert bytes(tree.root["row"].fetch()) == bytes_of(live)
    assert bytes(tree.root["turned"].fetch()) == bytes_of(live.t())


def _payload(content: bytes, offset: int) -> int:
    name_length, extra_length = struct.unpack_from("<2H", content, offset + 26)
    return int(offset + 30 + name_length + extra_length)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_every_protocol_gives_the_same_tree(tmp_path: Path, protocol: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    moments = {i: {"step": torch.tensor(3.0), "exp_avg": torch.randn(2, 3)} for i in range(4)}
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "amsgrad": False, "foreach": None, "params": [0, 1, 2, 3]}
    value = {"model": model.state_dict(), "optimizer": {"state": moments, "param_groups": [group]}, "epoch": 3}
    tree = saved(tmp_path, value, pickle_protocol=protocol)
    assert count_same(tree.root, value) == 7 + 8
    assert tree.facts["protocol"] == protocol
    assert isinstance(tree.root["model"], StateDict)
    assert tree.root["model"].metadata["1"] == {"version": 2}


def test_contiguous_tensors_say_where_in_the_file_they_are(tmp_path: Path) -> None:
    live = torch.arange(12.0)
    tree = saved(tmp_path, {"whole": live, "rows": live.reshape(3, 4)[1:], "column": live.reshape(3, 4)[:, 1]})
    content = (tmp_path / "saved.pt").read_bytes()
    rows = tree.root["rows"].read_into
    assert isinstance(rows, Contiguous)
    source, begin = rows.located()
    assert content[source.begin + begin :][:32] == bytes_of(live[4:])
    assert not isinstance(tree.root["column"].read_into, Contiguous)


def test_a_file_inside_a_file_is_read_in_its_window(tmp_path: Path) -> None:
    inner = saved_bytes({"w": torch.arange(4.0)})
    path = tmp_path / "outer"
    path.write_bytes(b"x" * 100 + inner + b"y" * 10)
    reading = Reading(path, strict=True)
    tree = read_torch_zip(reading.pool.open(path, "outer").window(100, len(inner)), reading)
    assert bytes(tree.root["w"].fetch()) == bytes_of(torch.arange(4.0))
    assert tree.root["w"].storage.file == "outer"
    assert tree.nbytes == len(inner)


class Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        import os

        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_would_run_a_command_is_read_named_and_not_run(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "run"
    tree = saved(tmp_path, {"w": torch.ones(2), "x": Attack(marker)}, pickle_protocol=protocol)
    [dangerous] = [one for one in tree.globals if one.danger is Danger.RUNS_CODE]
    assert dangerous.name == "posix.system"
    assert tree.root["x"].arguments == (f"touch {marker}",)
    assert bytes(tree.root["w"].fetch()) == bytes_of(torch.ones(2))
    assert not marker.exists()


def test_files_of_twenty_thousand_tensors_are_read(tmp_path: Path) -> None:
    value = {f"layers.{i}": torch.full((2,), float(i)) for i in range(20_000)}
    tree = saved(tmp_path, value)
    assert len(tree.root) == 20_000
    assert bytes(tree.root["layers.19999"].fetch()) == struct.pack("<2f", 19999, 19999)
    assert len(tree.members) > 20_000


LIES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a view beyond its storage": (lambda data: data.replace(b"K\x06\x85", b"K\x60\x85"), "reaches byte 384 of the 24"),
    "a stride beyond it": (lambda data: data.replace(b"K\x01\x85", b"K\x09\x85"), "reaches byte 184 of the 24"),
    "a shorter storage": (lambda data: data.replace(b"cpuq\x06K\x06", b"cpuq\x06K\x05"), "promises 20"),
    "a longer storage": (lambda data: data.replace(b"cpuq\x06K\x06", b"cpuq\x06K\x07"), "promises 28"),
    "a storage that is missing": (
        lambda data: data.replace(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x007"),
        "'data/7' is missing",
    ),
    "another class": (lambda data: data.replace(b"FloatStorage", b"FloatStorxge"), "no known class"),
    "no storage": (lambda data: data.replace(b"X\x07\x00\x00\x00storage", b"X\x07\x00\x00\x00storxge"), "not of torch"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), LIES.values(), ids=LIES.keys())
def test_a_pickle_that_does_not_fit_its_storages_is_damaged(
    tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    with zipfile.ZipFile(io.BytesIO(saved_bytes({"w": torch.arange(6.0)}))) as archive:
        members = {one.filename: archive.read(one) for one in archive.infolist()}
    path = tmp_path / "lies.pt"
    changed = change(members["archive/data.pkl"])
    assert changed != members["archive/data.pkl"]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, changed if name.endswith("data.pkl") else content)
    with pytest.raises(DamagedCheckpointError, match=said):
        read_zip(path)


def test_a_tensor_blown_up_by_strides_of_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="beyond our bounds"):
        saved(tmp_path, {"w": torch.ones(1).expand(1 << 20, 1 << 20)})


def test_bytes_behind_the_archive_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "longer.pt"
    path.write_bytes(saved_bytes({"w": torch.ones(1)}) + b"\n\n")
    assert torch.load(path) == {"w": torch.ones(1)}
    assert read_zip(path).facts["trailing_bytes"] == 2


def test_a_byte_order_that_is_none_is_damage(tmp_path: Path) -> None:
    content = saved_bytes({"w": torch.ones(1)})
    path = tmp_path / "odd.pt"
    path.write_bytes(content.replace(b"little", b"litter"))
    with pytest.raises(DamagedCheckpointError, match="neither little nor big"):
        read_zip(path)


def test_members_beyond_the_file_are_refused(tmp_path: Path) -> None:
    content = saved_bytes(collections.OrderedDict(w=torch.ones(3)))
    path = tmp_path / "odd.pt"
    path.write_bytes(patched(content, entry_of(content, "archive/data/0") + 42, "L", len(content)))
    with pytest.raises(DamagedCheckpointError, match="ends outside"):
        read_zip(path)
