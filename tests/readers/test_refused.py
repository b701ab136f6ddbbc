"""What is no checkpoint is told by name."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save

import ckptcheck
from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.finding import Verdict
from ckptcheck.readers.reader import HEAD_BYTES, Head
from ckptcheck.readers.reading import read_raw
from ckptcheck.readers.refused import refusal_of
from ckptcheck.readers.source import FilePool
from ckptcheck.state.raw import Flaw
from tests.readers.zips import zipped
from tests.samples import CHECKPOINTS


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


def _npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.arange(3))
    return buffer.getvalue()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
REFUSED = {
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5 file, as Keras"),
    "gguf": (b"GGUF\x03\x00\x00\x00" + bytes(100), "GGUF model"),
    "npy": (_npy(), "numpy array"),
    "npz": (_npz(), "set of numpy arrays"),
    "elf": (b"\x7fELF\x02\x01\x01" + bytes(100), "program or library"),
    "git-lfs": (LFS, "git lfs pull"),
    "xz": (b"\xfd7zXZ\x00" + bytes(20), "xz: unpack it"),
    "onnx": (b"\x08\x09\x12\x07pytorch\x1a\x062.13.0:\x80\x01", "ONNX model"),
    "web page": (b"\n<!DOCTYPE html><html><body>404</body></html>", "web page"),
    "xml error": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML document"),
    "text": (b"nothing but words\n", "text file"),
    "text cut in a letter": ("a\u4e2d".encode() * 5000, "text file"),
    "binary": (bytes(range(1, 200)), "begins with 01 02 03"),
    "keras": (zipped({"metadata.json": b"{}", "config.json": b"{}", "model.weights.h5": b"x"}), "Keras model"),
    "office": (zipped({"[Content_Types].xml": b"<x/>", "word/document.xml": b"<x/>"}), "office document"),
    "zip": (zipped({"notes.md": b"x"}), "zip archive with 'notes.md' and no checkpoint"),
    "old export": (zipped({"serialized_exported_program.json": b"{}", "version": b"5"}), "exported program"),
}


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_a_file_that_is_no_checkpoint_is_told_by_what_it_is(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.dat"
    path.write_bytes(content)
    source = FilePool().open(path)
    trouble = refusal_of(Head(source, source.head(HEAD_BYTES)))
    assert said in str(trouble)
    assert str(trouble).startswith(f"{path}: ")
    assert "\n" not in str(trouble)
    assert not isinstance(trouble, DamagedCheckpointError)


DAMAGED = {
    "empty": (b"", "is empty"),
    "zeros": (bytes(5_000), "zeros only"),
    "zip cut short": (zipped({"notes.md": b"x" * 99})[:80], "cut short"),
    "zip of nothing": (zipped({}), "empty zip archive"),
}


@pytest.mark.parametrize(("content", "said"), DAMAGED.values(), ids=DAMAGED.keys())
def test_what_may_have_been_a_checkpoint_is_damaged(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=said):
        read_raw(path)


def _legacy() -> bytes:
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(3)}, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def _zip() -> bytes:
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(3)}, buffer)
    return buffer.getvalue()


def _changed(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x01]) + content[place + 1 :]


SAFE = save({"w": np.ones(3, np.float32)})
ONCE = {
    **{f"byte {n} of a zip": ("model.bak", _changed(_zip(), n), "ends with the directory of a zip") for n in range(4)},
    **{f"byte {n} of a legacy file": ("model.bak", _changed(_legacy(), n), ".") for n in range(15)},
    **{f"byte {n} of safetensors": ("model.bak", _changed(SAFE, n), ".") for n in range(8)},
    **{f"{n} bytes of safetensors": ("model.safetensors", SAFE[:n], ".") for n in range(9)},
    "noise under a checkpoint's name": ("last.ckpt", bytes(range(128, 256)), "has the name of a checkpoint"),
    "noise under a trainer's name": ("optimizer_1.bin", bytes(range(128, 256)), "has the name of a checkpoint"),
}


@pytest.mark.parametrize(("name", "content", "said"), ONCE.values(), ids=ONCE)
def test_what_was_a_checkpoint_once_is_damaged(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=said) as caught:
        read_raw(path)
    assert caught.value.flaw == Flaw.UNREADABLE
    assert str(caught.value).startswith(f"{path}: ")
    result = ckptcheck.check(path)
    assert (result.verdict, [one.code for one in result.findings]) == (Verdict.FAIL, ["CK101"])


@pytest.mark.parametrize("name", ["train.bin", "notes", "image.dat"])
def test_noise_under_any_other_name_was_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(range(128, 256)))
    with pytest.raises(CheckpointError, match="no checkpoint of a kind") as caught:
        read_raw(path)
    assert not isinstance(caught.value, DamagedCheckpointError)


@pytest.mark.parametrize("name", ["03_reject/torchscript.pt", "03_reject/export.pt2"])
def test_programs_are_told_from_checkpoints(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"program .*no training state"):
        read_raw(CHECKPOINTS / name)


def test_names_in_a_refusal_are_short_and_escaped(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(zipped({"\x1b[31m" + "x" * 500: b""}))
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist()
    source = FilePool().open(path)
    said = str(refusal_of(Head(source, source.head(HEAD_BYTES))))
    assert "\x1b" not in said
    assert len(said) < len(str(path)) + 200


def test_json_is_called_json_where_nobody_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_text(json.dumps({"error": "not found"}))
    source = FilePool().open(path)
    assert "is JSON text" in str(refusal_of(Head(source, source.head(HEAD_BYTES))))
