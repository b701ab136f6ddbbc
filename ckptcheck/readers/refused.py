"""Files that are no training checkpoints, and the sentence that says what they are instead."""

import re
from collections.abc import Collection
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.archives.zip_directory import LOCAL_MAGIC, open_zip
from ckptcheck.readers.folders.folder_files import LEGACY_MAGIC, legacy_bytes_changed
from ckptcheck.readers.reader import Head

_MAGICS: Final = (
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 file, as Keras saves models: not a PyTorch checkpoint"),
    (b"GGUF", "is a GGUF model for llama.cpp: it holds weights for inference, no training state"),
    (b"ggjt", "is a GGML model for llama.cpp: it holds weights for inference, no training state"),
    (b"\x93NUMPY", "is one numpy array (.npy): not a checkpoint"),
    (b"\x7fELF", "is a program or library (ELF): not a checkpoint"),
    (b"version https://git-lfs", "is a pointer of git-lfs, not the file it stands for: run `git lfs pull` first"),
    (b"\x1f\x8b", "is compressed by gzip: unpack it first"),
    (b"BZh", "is compressed by bzip2: unpack it first"),
    (b"\xfd7zXZ\x00", "is compressed by xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive: unpack it first"),
    (b"Rar!\x1a\x07", "is a rar archive: unpack it first"),
    (b"%PDF-", "is a PDF document: not a checkpoint"),
    (b"\x89PNG\r\n", "is a PNG image: not a checkpoint"),
    (b"SQLite format 3\x00", "is an SQLite database: a trace is read by `ckptcheck compare`, a checkpoint it is not"),
    (b"PAR1", "is a Parquet table: not a checkpoint"),
    (b"ARROW1", "is an Arrow table: not a checkpoint"),
)
"""How a file begins, and what it is then."""
_BY_MEMBER: Final = (
    ("[Content_Types].xml", "is an office document: not a checkpoint"),
    ("META-INF/MANIFEST.MF", "is a Java archive: not a checkpoint"),
    ("AndroidManifest.xml", "is an Android package: not a checkpoint"),
)
"""Which member of a zip says what it is."""
_EXPORTED_MEMBERS: Final = frozenset({"serialized_exported_program.json", "serialized_state_dict.pt"})
"""Of torch.export before 2.6."""
_TORCHSCRIPT: Final = "is a TorchScript program (torch.jit.save): it holds a model for inference, no training state"
_EXPORTED: Final = "is an exported program (torch.export.save): it holds a model for inference, no training state"
_KERAS: Final = "is a Keras model: not a PyTorch checkpoint"
_ONNX_FIELDS: Final = frozenset({0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42})
_OWN_NAME: Final = re.compile(
    r".+\.(pt|pth|ckpt|safetensors)|(pytorch_model|adapter_model|optimizer|scheduler|training_args)(?![a-z]).*\.bin"
)
"""Names that only a checkpoint has: what lies there is damaged where it is nothing that is known."""
_PRINTABLE: Final = frozenset({9, 10, 12, 13, 27, *range(32, 127), *range(128, 256)})


def refusal_of(head: Head) -> CheckpointError:
    """The error for a file that no reader claims."""
    start = head.start
    if start.startswith((LOCAL_MAGIC, b"PK\x05\x06")):
        return _zip_error(head)
    gone = _what_is_gone(start) or _what_it_was(head)
    if gone:
        return DamagedCheckpointError(f"{head.source}: {gone}: take another copy")
    said = next((words for magic, words in _MAGICS if start.startswith(magic)), None) or _by_looks(start)
    if said is None:
        begins = f"it begins with {start[:8].hex(' ')}"
        if _OWN_NAME.fullmatch((head.source.label or head.source.path.name).rpartition("/")[2]):
            return DamagedCheckpointError(
                f"{head.source}: has the name of a checkpoint, and no checkpoint's bytes ({begins}): take another copy"
            )
        said = f"is no checkpoint of a kind that is known here; {begins}"
    return CheckpointError(f"{head.source}: {said}")


def zip_refusal(names: Collection[str]) -> str | None:
    """What a zip with members of these names is instead of a checkpoint; None where nothing is known of it."""
    inner = {name.partition("/")[2] for name in names}
    if "constants.pkl" in inner and "data.pkl" in inner:
        return _TORCHSCRIPT
    if "archive_format" in inner or not _EXPORTED_MEMBERS.isdisjoint(names):
        return _EXPORTED
    if {"config.json", "model.weights.h5"} <= set(names):
        return _KERAS
    if names and all(name.endswith(".npy") for name in names):
        return "is a set of numpy arrays (.npz): not a checkpoint"
    return next((said for member, said in _BY_MEMBER if member in names), None)


def _zip_error(head: Head) -> CheckpointError:
    try:
        names = list(open_zip(head.source).members)
    except CheckpointError as trouble:
        return trouble
    if not names:
        return DamagedCheckpointError(f"{head.source}: is an empty zip archive: the save died, take another copy")
    known = zip_refusal(names)
    if known:
        return CheckpointError(f"{head.source}: {known}")
    some = ", ".join(repr(name)[:40] for name in names[:3])
    return CheckpointError(f"{head.source}: is a zip archive with {some} and no checkpoint that is known here")


def _what_is_gone(start: bytes) -> str:
    """What befell a file that says nothing of what it was; "" where it still says something."""
    if not start:
        return "is empty: the save died, or the copy"
    return "" if any(start) else "begins with zeros only: the disk was full, or the copy was cut off"


def _what_it_was(head: Head) -> str:
    """What a file was before its first bytes changed; "" where nothing else in it says so."""
    start = head.start
    if len(start) < 8 and head.source.path.suffix == ".safetensors":
        return f"has {len(start)} bytes, fewer than the smallest safetensors file: cut short"
    wrong = legacy_bytes_changed(start)
    if wrong:
        return (
            f"begins as a file that torch saved before 1.6 does, but for {wrong} of the first {len(LEGACY_MAGIC)} bytes"
        )
    if start[8:10] == b'{"':
        length = int.from_bytes(start[:8], "little")
        return f"has the header of a safetensors file, but promises {length} bytes of it: its first bytes have changed"
    return (
        "ends with the directory of a zip that torch saved: its first bytes have changed" if _ends_as_zip(head) else ""
    )


def _ends_as_zip(head: Head) -> bool:
    """Whether the directory at the end is that of a file of torch's, and begins with the file itself."""
    try:
        members = open_zip(head.source).members
    except CheckpointError:
        return False
    is_torch = any(name.endswith("/data.pkl") for name in members)
    return is_torch and min(one.offset for one in members.values()) == 0


def _by_looks(start: bytes) -> str | None:
    """What a file without a magic number looks like; None where it looks like nothing."""
    if _is_text(start):
        return _text_kind(start)
    if start[:1] == b"\x08" and start[1:2] <= b"\x0c" and start[2:3] and start[2] in _ONNX_FIELDS:
        return "looks like an ONNX model: it holds a model for inference, no training state"
    if start[4:8] == b"TFL3":
        return "is a TensorFlow Lite model: not a PyTorch checkpoint"
    return None


def _is_text(start: bytes) -> bool:
    try:
        start.decode()
    except UnicodeDecodeError as trouble:
        if trouble.start < len(start) - 3:
            return False
    return all(byte in _PRINTABLE for byte in start)


def _text_kind(start: bytes) -> str:
    words = start.lstrip().lower()
    if words.startswith((b"<!doctype html", b"<html")):
        return "is a web page (HTML), perhaps an error page saved instead of the file: download it again"
    if words.startswith(b"<?xml"):
        return "is an XML document, perhaps an error page saved instead of the file: download it again"
    if words.startswith((b"{", b"[")):
        return "is JSON text, not a checkpoint: name the checkpoint's own file or folder"
    return "is a text file: name the checkpoint's own file or folder"
