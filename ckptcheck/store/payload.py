"""Payloads: files in safetensors format (https://github.com/huggingface/safetensors#format). Needs no torch.

A payload is 8 bytes of header length (little-endian), a JSON header padded with blanks to a multiple of 8, and
the tensors' row-major bytes without holes. A dtype that old safetensors readers do not know lies there as bytes,
U8; its own dtype stands in the manifest.
"""

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ckptcheck.errors import StoreError
from ckptcheck.state.digest import Digest
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec, fetch
from ckptcheck.store import files
from ckptcheck.store.fields import Fields, parse
from ckptcheck.store.manifest import PayloadRecord, TensorRecord

MAX_HEADER_BYTES: Final = 100_000_000
"""The limit of the format's own readers."""
DTYPES: Final = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""torch's dtype names to the format's. Whatever is not here lies in a payload as U8."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a payload, described by the manifest; its bytes are read when somebody asks."""

    folder: Path
    file: str
    key: str
    begin_bytes: int
    record: TensorRecord

    @property
    def spec(self) -> TensorSpec:
        """The tensor's dtype and shape."""
        return self.record.spec

    @property
    def digest(self) -> Digest:
        """What the manifest promises of the bytes."""
        return self.record.digest

    def fetch(self) -> memoryview:
        """The row-major bytes, little-endian; StoreError when the file has gone or got shorter."""
        return fetch(self)

    def read_into(self, start_bytes: int, buffer: memoryview) -> None:
        """Fill `buffer` with the row-major bytes from `start_bytes` on; errors as `fetch`."""
        try:
            with open(files.open_inside(self.folder, self.file), "rb", buffering=0) as file:
                file.seek(self.begin_bytes + start_bytes)
                while buffer:
                    count = file.readinto(buffer)
                    if not count:
                        raise StoreError(f"{self.where}: the file ends {len(buffer)} bytes early: it was cut short")
                    buffer = buffer[count:]
        except OSError as trouble:
            raise StoreError(f"{self.where}: cannot be read ({trouble.strerror})") from trouble

    @property
    def where(self) -> str:
        """The place in words, for messages."""
        return f"{self.folder / self.file}, {self.key!r}"


def header_for(specs: Mapping[str, TensorSpec]) -> tuple[bytes, list[str]]:
    """The header of a payload of these tensors, and the keys in the order in which their bytes follow.

    Wide elements come first, so that every tensor lies aligned.
    """
    order = sorted(specs, key=lambda key: -ITEMSIZE_BYTES[specs[key].dtype])
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for key in order:
        entries[key] = _entry(specs[key], begin)
        begin += specs[key].nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise StoreError(f"{len(specs)} tensors need a header of {len(text)} bytes, the format has {MAX_HEADER_BYTES}")
    return struct.pack("<Q", len(text)) + text, order


def _entry(spec: TensorSpec, begin: int) -> dict[str, object]:
    natural = spec.dtype in DTYPES
    return {
        "dtype": DTYPES[spec.dtype] if natural else "U8",
        "shape": list(spec.shape) if natural else [spec.nbytes],
        "data_offsets": [begin, begin + spec.nbytes],
    }


def open_payload(folder: Path, payload: PayloadRecord) -> dict[str, StoredTensor]:
    """The tensors of a payload by key, read from its header and held against the manifest.

    Raises StoreError when the file is missing, has another size, or has another header than the manifest says.
    """
    path = folder / payload.file
    try:
        with open(files.open_inside(folder, payload.file), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            text = file.read(length) if length <= MAX_HEADER_BYTES else b""
    except FileNotFoundError:
        raise StoreError(f"{path}: missing, though the manifest names it: copy the whole folder") from None
    except OSError as trouble:
        raise StoreError(f"{path}: cannot be read ({trouble.strerror})") from trouble
    if size != payload.size_bytes:
        raise StoreError(f"{path}: {payload.size_bytes} bytes were promised, {size} found: cut short or replaced")
    header = parse(text, f"{path}, header")
    header.values.pop("__metadata__", None)
    if header.values.keys() != payload.tensors.keys():
        odd = sorted(header.values.keys() ^ payload.tensors.keys())
        raise StoreError(f"{path}: header and manifest list other tensors ({odd[0]!r}): the file was replaced")
    found = {}
    for key, record in payload.tensors.items():
        begin = _begin(header.fields(key), record.spec, size - 8 - length)
        found[key] = StoredTensor(folder, payload.file, key, 8 + length + begin, record)
    return found


def _begin(entry: Fields, spec: TensorSpec, data_bytes: int) -> int:
    offsets = entry.integers("data_offsets")
    begin = offsets[0] if offsets else 0
    if offsets[1:] != (begin + spec.nbytes,) or offsets[1] > data_bytes or entry.values != _entry(spec, begin):
        raise StoreError(f"{entry.where}: does not lie as the manifest says: the file was replaced")
    return begin
