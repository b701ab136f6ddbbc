"""Archives: members read where they lie, equal to torch's own reading, and every way to be cut or to lie is told."""

import gzip
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.archives import held_pool, tar_members, zip_archive
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Flaw
from tests.readers.live_values import assert_same
from tests.samples import CHECKPOINTS

SB3 = sorted((CHECKPOINTS / "13_sb3").glob("*.zip"))
WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}


def torch_bytes(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@pytest.mark.parametrize("path", SB3, ids=lambda path: path.stem)
def test_every_sample_is_read_as_torch_reads_its_members(path: Path) -> None:
    tree = read_raw(path)
    assert tree.container == "zip"
    with zipfile.ZipFile(path) as archive:
        named = [name for name in archive.namelist() if name.endswith(".pth")]
        assert set(tree.root) == {*named, "data"}
        for name in named:
            live = torch.load(io.BytesIO(archive.read(name)), weights_only=False)
            assert assert_same(tree.root[name], live) > 0 or not live
            assert tree.files[name].container == "torch-zip"
        assert tree.root["data"] == json.loads(archive.read("data"))
    assert ":serialized:" in tree.root["data"]["policy_class"]
    files = {member.file for member in tree.members}
    assert set(named) <= files
    assert [member.verify() for member in tree.members] == [None] * len(tree.members)
    assert "system_info.txt" in tree.facts["other_files"]


def test_storages_of_two_members_are_not_ties() -> None:
    tree = read_raw(SB3[0])
    files = {one.storage.file for one in tree.root["policy.pth"].values()}
    assert files == {"policy.pth"}


def test_there_are_samples() -> None:
    assert len(SB3) == 2


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read_stored_or_deflated(tmp_path: Path, method: int) -> None:
    path = tmp_path / "agent.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("data", '{"num_timesteps": 5}')
        archive.writestr("policy.pth", torch_bytes(WEIGHTS))
    tree = read_raw(path)
    assert tree.root["data"] == {"num_timesteps": 5}
    assert assert_same(tree.root["policy.pth"], WEIGHTS) == 2


def test_all_deflated_members_together_stay_within_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = torch_bytes({"a": torch.zeros(10_000)})
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", bytes(10**6))
        for number in range(3):
            archive.writestr(f"{number}.pth", content)
    monkeypatch.setattr(zip_archive, "MAX_INFLATED_BYTES", 3 * len(content))
    assert len(read_raw(tmp_path / "a.zip").root) == 3
    monkeypatch.setattr(zip_archive, "MAX_INFLATED_BYTES", 3 * len(content) - 1)
    with pytest.raises(CheckpointError, match=r"'2\.pth' has \d+ bytes, more than"):
        read_raw(tmp_path / "a.zip")


def test_a_deflated_member_that_is_malformed_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one.pth", torch_bytes(WEIGHTS))
        archive.writestr("two.pth", torch_bytes(WEIGHTS))
        begin = archive.infolist()[0].header_offset + 30 + len("one.pth")
    content = bytearray(path.read_bytes())
    content[begin : begin + 4] = b"\xff" * 4
    path.write_bytes(content)
    tree = read_raw(path, strict=False)
    assert (list(tree.root), [one.file for one in tree.defects]) == (["two.pth"], ["one.pth"])


def test_a_zip_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
        archive.writestr("data", '{"a": 1}')
    with pytest.raises(CheckpointError):
        read_raw(tmp_path / "a.zip")


def test_a_damaged_member_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "agent.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("policy.pth", torch_bytes(WEIGHTS))
        archive.writestr("policy.optimizer.pth", torch_bytes(WEIGHTS)[:500])
        archive.writestr("empty.pth", b"")
    with pytest.raises(DamagedCheckpointError, match=r"agent\.zip/policy\.optimizer\.pth: begins as a zip") as caught:
        read_raw(path)
    assert str(caught.value).count("agent.zip") == 1
    tree = read_raw(path, strict=False)
    assert list(tree.root) == ["policy.pth"]
    assert [(one.flaw, one.file) for one in tree.defects] == [
        (Flaw.UNREADABLE, "policy.optimizer.pth"),
        (Flaw.UNREADABLE, "empty.pth"),
    ]
    assert not any(str(path) in one.said or one.file in one.said for one in tree.defects)


def nemo(
    path: Path, mode: str = "w", fmt: int = tarfile.PAX_FORMAT, names: tuple[str, ...] = ("model_weights.ckpt",)
) -> Path:
    with tarfile.open(path, mode, format=fmt) as tar:  # type: ignore[call-overload]
        for name, content in [("model_config.yaml", b"a: 1\n"), *((name, torch_bytes(WEIGHTS)) for name in names)]:
            member = tarfile.TarInfo("./" + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_nemo_archive_is_read_in_every_tar_format(tmp_path: Path, mode: str, fmt: int) -> None:
    tree = read_raw(nemo(tmp_path / "model.nemo", mode, fmt))
    assert tree.container == "tar"
    assert list(tree.root) == ["model_weights.ckpt"]
    assert assert_same(tree.root["model_weights.ckpt"], WEIGHTS) == 2
    assert {one.storage.file for one in tree.root["model_weights.ckpt"].values()} == {"model_weights.ckpt"}
    assert tree.nbytes == (tmp_path / "model.nemo").stat().st_size
    assert tree.facts["other_files"] == ["model_config.yaml"]
    assert tree.facts.get("compression") == ("gzip" if mode == "w:gz" else None)
    tree.check_unchanged()


@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_are_read(tmp_path: Path, fmt: int) -> None:
    names = ("w/" * 120 + "model.ckpt", "gewichte-\xe4.ckpt")
    assert list(read_raw(nemo(tmp_path / "a.tar", fmt=fmt, names=names)).root) == list(names)


def test_a_length_in_an_extended_header_counts(tmp_path: Path) -> None:
    content = torch_bytes(WEIGHTS)
    record = b"%d size=%d\n" % (len(b"12 size=\n") + len(str(len(content))), len(content))
    blocks = [_header(b"%011o\0" % len(record), b"x"), record, _header(b"%011o\0" % 0), content, bytes(1024)]
    (tmp_path / "a.tar").write_bytes(b"".join(block + bytes(-len(block) % 512) for block in blocks))
    assert assert_same(read_raw(tmp_path / "a.tar").root["a.ckpt"], WEIGHTS) == 2


def test_one_name_twice_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedCheckpointError, match="twice"):
        read_raw(nemo(tmp_path / "a.tar", names=("a.ckpt", "a.ckpt")))


def test_a_tar_cut_anywhere_is_damaged(tmp_path: Path) -> None:
    content = nemo(tmp_path / "a.nemo", fmt=tarfile.USTAR_FORMAT).read_bytes()
    end = len(content.rstrip(b"\0")) // 512 * 512 + 512
    for length in [*range(600, end, 301), end]:
        (tmp_path / "cut.nemo").write_bytes(content[:length])
        with pytest.raises(CheckpointError):
            read_raw(tmp_path / "cut.nemo")
    assert "end mark" in read_raw(tmp_path / "cut.nemo", strict=False).defects[0].said


def test_a_header_with_another_sum_or_without_size_is_damage(tmp_path: Path) -> None:
    content = bytearray(nemo(tmp_path / "a.nemo", fmt=tarfile.USTAR_FORMAT).read_bytes())
    second = content.index(b"./model_weights")
    content[second] ^= 1
    (tmp_path / "b.nemo").write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=f"header at byte {second} does not have its own sum"):
        read_raw(tmp_path / "b.nemo")


def _header(size: bytes, kind: bytes = b"0") -> bytes:
    header = bytearray(512)
    header[:6], header[124:136], header[148:156], header[156:157] = b"a.ckpt", size, b" " * 8, kind
    header[257:265] = b"ustar\x0000"
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


SIZES = {
    "no number": (_header(b"x" * 12), "has no size"),
    "beyond the file": (_header(b"%011o\0" % 10**6), "were promised"),
    "beyond everything": (_header(b"\x80" + b"\xff" * 11), "has no size"),
    "binary and beyond the file": (_header(b"\x80" + (2**60).to_bytes(11, "big")), "were promised"),
    "a long name without end": (_header(b"%011o\0" % 10**7, b"L") + bytes(10**4), "a name of 10000000 bytes"),
    "a long name cut short": (_header(b"%011o\0" % 1000, b"L"), "were promised"),
}


@pytest.mark.parametrize(("content", "said"), SIZES.values(), ids=SIZES)
def test_a_tar_whose_lengths_lie_is_damage(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=said):
        read_raw(tmp_path / "a.tar")


def test_the_count_of_members_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_members, "MAX_MEMBERS", 3)
    with pytest.raises(CheckpointError, match="more than 3 members"):
        read_raw(nemo(tmp_path / "a.tar", fmt=tarfile.USTAR_FORMAT, names=("a.ckpt", "b.ckpt", "c.ckpt")))


def test_archives_within_archives_are_not_opened(tmp_path: Path) -> None:
    inner = nemo(tmp_path / "inner.tar").read_bytes()
    with tarfile.open(tmp_path / "outer.tar", "w") as tar:
        member = tarfile.TarInfo("inner.tar")
        member.size = len(inner)
        tar.addfile(member, io.BytesIO(inner))
    with pytest.raises(CheckpointError, match="without a checkpoint in it"):
        read_raw(tmp_path / "outer.tar")


def test_a_gzip_that_unfolds_beyond_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_pool, "MAX_INFLATED_BYTES", 2**20)
    content = nemo(tmp_path / "a.tar", fmt=tarfile.USTAR_FORMAT).read_bytes() + bytes(2**24)
    (tmp_path / "a.nemo").write_bytes(gzip.compress(content))
    with pytest.raises(CheckpointError, match="decompresses to more than 1048576 bytes"):
        read_raw(tmp_path / "a.nemo")


def test_a_damaged_gzip_is_told(tmp_path: Path) -> None:
    content = bytearray(nemo(tmp_path / "a.nemo", "w:gz").read_bytes())
    (tmp_path / "cut.nemo").write_bytes(content[:-20])
    with pytest.raises(DamagedCheckpointError, match=r"ends early|were promised"):
        read_raw(tmp_path / "cut.nemo")
    content[-6] ^= 1
    (tmp_path / "crc.nemo").write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match="check") as caught:
        read_raw(tmp_path / "crc.nemo")
    assert caught.value.flaw == Flaw.CHECKSUM


def test_a_gzip_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(os.urandom(5000)))
    with pytest.raises(CheckpointError):
        read_raw(tmp_path / "a.gz")
