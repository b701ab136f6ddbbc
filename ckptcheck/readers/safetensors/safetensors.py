"""safetensors: u64 header length, a JSON header of names, dtypes, shapes and byte ranges, then the bytes.

https://github.com/huggingface/safetensors#format. The format has no checksum.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.folders.folder_files import SHARD
from ckptcheck.readers.json_file import parse_json
from ckptcheck.readers.plain_member import plain_member
from ckptcheck.readers.reader import Head
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source, quoted
from ckptcheck.readers.tensor_bytes import Contiguous
from ckptcheck.state.raw import RawTensor, RawTree, Storage
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec

MAX_HEADER_BYTES: Final = 100_000_000
"""The format's own bound."""
MAX_DIMENSIONS: Final = 64
METADATA: Final = "__metadata__"

DTYPES: Final = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}  # fmt: skip
"""torch's dtype name for each code. F4 counts values, torch's dtype bytes of two: its last dimension is halved."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a header: `begin` and `end` in bytes from the start of the data."""

    spec: TensorSpec
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """A header that fits its file: entries in its own order, and where the data begins in the file."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]
    data_begin: int


class Safetensors:
    """One `.safetensors` file; container "safetensors", root a dict of name to tensor in the header's order."""

    def claims(self, head: Head) -> bool:
        """A header length within the format's bound, and an opening brace."""
        start = head.start
        return len(start) > 8 and start[8:9] == b"{" and 2 <= int.from_bytes(start[:8], "little") <= MAX_HEADER_BYTES

    def read(self, source: Source, reading: Reading) -> RawTree:
        """Describe the file. DamagedCheckpointError where header and bytes do not fit each other exactly."""
        header = read_header(source)
        return RawTree(
            path=reading.path,
            container="safetensors",
            root=tensors_of(source, header),
            nbytes=source.nbytes,
            members=tuple(
                plain_member(source.window(header.data_begin + one.begin, one.end - one.begin), name)
                for name, one in header.entries.items()
            ),
            facts={"checksums": "none", "metadata": dict(header.metadata), **_shard(source)},
            check_unchanged=reading.pool.check_unchanged,
        )


def read_header(source: Source) -> Header:
    """The header, checked against the file: known dtypes, sizes equal to shape x dtype, the data tiled exactly."""
    length = int.from_bytes(source.read(0, 8), "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise DamagedCheckpointError(f"{source}: the header's length of {length} bytes is none of this format")
    if 8 + length > source.nbytes:
        raise DamagedCheckpointError(
            f"{source}: the header promises {length} bytes of names, the file holds {source.nbytes - 8}: cut short"
        )
    described = parse_json(source.read(8, length), f"{source}: the header")
    if not isinstance(described, dict):
        raise DamagedCheckpointError(f"{source}: the header is no JSON object")
    metadata = described.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise DamagedCheckpointError(f"{source}: {METADATA} in the header is no object of texts")
    entries = {name: _entry(f"{source}: tensor {quoted(name)}", described) for name, described in described.items()}
    _check_tiling(source, entries, source.nbytes - 8 - length)
    return Header(entries, metadata, 8 + length)


def tensors_of(source: Source, header: Header) -> dict[str, RawTensor]:
    """The tensors of a file whose header was read."""
    return {
        name: RawTensor(
            spec=one.spec,
            read_into=Contiguous(source, header.data_begin + one.begin),
            storage=Storage(source.label, name, one.end - one.begin),
        )
        for name, one in header.entries.items()
    }


def _shard(source: Source) -> dict[str, str]:
    """Which shard of a set it is, where it is read alone."""
    match = SHARD.fullmatch(source.path.name) if not source.label else None
    return {"shard": f"{int(match['number'])} of {int(match['count'])}"} if match else {}


def _entry(where: str, described: Any) -> Entry:
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise DamagedCheckpointError(f"{where}: has not just dtype, shape and data_offsets in the header")
    code, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise DamagedCheckpointError(f"{where}: the dtype {str(code)[:40]!r} is none that is known here")
    if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS:
        raise DamagedCheckpointError(f"{where}: its shape is no list of at most {MAX_DIMENSIONS} lengths")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise DamagedCheckpointError(f"{where}: its data_offsets are no range of bytes")
    dtype = DTYPES[code]
    if code == "F4":
        if not shape or shape[-1] % 2:
            raise DamagedCheckpointError(f"{where}: an F4 tensor of shape {shape} does not fill whole bytes")
        shape = [*shape[:-1], shape[-1] // 2]
    if math.prod(shape) * ITEMSIZE_BYTES[dtype] != offsets[1] - offsets[0]:
        raise DamagedCheckpointError(
            f"{where}: {code}{shape} takes {math.prod(shape) * ITEMSIZE_BYTES[dtype]} bytes, "
            f"its data_offsets span {offsets[1] - offsets[0]}"
        )
    return Entry(TensorSpec(dtype, tuple(shape)), offsets[0], offsets[1])


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 2**63 for one in value)


def _check_tiling(source: Source, entries: Mapping[str, Entry], held: int) -> None:
    ordered = sorted(entries.items(), key=lambda pair: (pair[1].begin, pair[1].end))
    end = 0
    for name, one in ordered:
        if one.begin != end:
            said = "overlaps the one before it" if one.begin < end else f"leaves {one.begin - end} bytes unused before"
            raise DamagedCheckpointError(
                f"{source}: tensor {quoted(name)} begins at byte {one.begin} of the data and {said}"
            )
        end = one.end
    if end > held:
        raise DamagedCheckpointError(
            f"{source}: the header promises {end} bytes of data, the file holds {held}: cut short"
        )
    if end < held:
        raise DamagedCheckpointError(f"{source}: {held - end} bytes follow the last tensor that the header names")
