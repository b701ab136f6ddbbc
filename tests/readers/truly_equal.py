"""Whether two checkpoints hold the same, told without the tool: by positions of bytes and by a pickle of stubs.

`differing(left, right)` names the parts whose content differs; the left side must be sound. What a directory of a zip
says of the right side is not asked: its bytes are looked at where the left side's lie.
"""

import io
import json
import math
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOUSEKEEPING = ("version", ".format_version", ".storage_alignment", "serialization_id", "system_info.txt")
"""Members of a zip that hold nothing of the user's."""
TRACKERS = ("latest", "latest_universal", "last_checkpoint")
"""Files that name a checkpoint beside them and hold nothing of it."""
DESCRIPTIONS = ("config.json", "generation_config.json", "adapter_config.json")
"""Files that describe the model: a side that has none is not held against one that has."""
_END = b"PK\5\6"


def differing(left: Path, right: Path) -> list[str]:
    """The parts that differ, by name; empty where both hold the same."""
    if left.is_file():
        return list(_bytes_differ("", left.read_bytes(), right.read_bytes()))
    files = {one.relative_to(left) for one in left.rglob("*") if one.is_file()}
    found = []
    for file in sorted(files):
        if not (right / file).is_file():
            if file.name in (*TRACKERS, *DESCRIPTIONS):
                continue
            found.append(f"{file}: missing")
        else:
            found += _bytes_differ(str(file), (left / file).read_bytes(), (right / file).read_bytes())
    return found


def _bytes_differ(name: str, left: bytes, right: bytes) -> Iterator[str]:
    if left == right:
        return
    if left[:4] == b"PK\3\4":
        yield from _zips_differ(name, left, right)
    elif left[257:262] == b"ustar":
        yield from _tars_differ(name, left, right)
    elif left[8:9] == b"{":
        yield from _safetensors_differ(name, left, right)
    elif left[:1] not in (b"{", b"\x80"):
        yield f"{name}: bytes"
    else:
        meaning = _json if left[:1] == b"{" else _canonical
        if meaning(left) != meaning(right):
            yield f"{name}: {meaning.__name__}"


def _zips_differ(name: str, left: bytes, right: bytes) -> Iterator[str]:
    for member, start, stop in _members(left):
        if not member.endswith(HOUSEKEEPING):
            yield from _bytes_differ(f"{name}:{member}", left[start:stop], right[start:stop])


def _tars_differ(name: str, left: bytes, right: bytes) -> Iterator[str]:
    with tarfile.open(fileobj=io.BytesIO(left)) as archive:
        for info in archive:
            if info.name == "sys_info":  # the writer's machine, which torch itself does not read
                continue
            part = slice(info.offset_data, info.offset_data + info.size)
            yield from _bytes_differ(f"{name}:{info.name}", left[part], right[part])


def _members(whole: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, first and last byte of the stored content of every member; a file of several zips has them all."""
    begin = 0
    while (end := whole.find(_END, begin)) >= 0:
        with zipfile.ZipFile(io.BytesIO(whole[begin : end + 22])) as archive:
            for info in archive.infolist():
                header = begin + info.header_offset
                lengths = [int.from_bytes(whole[header + at : header + at + 2], "little") for at in (26, 28)]
                start = header + 30 + sum(lengths)
                yield info.filename, start, start + info.compress_size
        begin = end + 22


def _safetensors_differ(name: str, left: bytes, right: bytes) -> Iterator[str]:
    ends = [8 + int.from_bytes(side[:8], "little") for side in (left, right)]
    headers = [_json(side[8:end]) for side, end in zip((left, right), ends, strict=True)]
    if not isinstance(headers[1], dict) or left[ends[0] :] != right[ends[1] :]:
        yield f"{name}: data"
        return
    tensors = [{key: value for key, value in header.items() if key != "__metadata__"} for header in headers]
    if tensors[0] != tensors[1]:
        yield f"{name}: header"


def _json(content: bytes) -> Any:
    try:
        found = json.loads(content)
        # Of an index of shards the rest is sums, which say nothing that the shards do not.
        return found["weight_map"] if isinstance(found, dict) and "weight_map" in found else found
    except ValueError:
        return math.nan  # equal to nothing


class _Made:
    """What a global, or a call of it, would have been."""

    def __init__(self, *parts: Any) -> None:
        self.parts: list[Any] = list(parts)

    def __call__(self, *arguments: Any) -> "_Made":
        return _Made(*self.parts, arguments)

    def __setstate__(self, state: Any) -> None:
        # A module tree with versions, which a state_dict carries along, is no content.
        if not (isinstance(state, dict) and state.keys() == {"_metadata"}):
            self.parts.append(("state", state))

    def __setitem__(self, key: Any, value: Any) -> None:
        self.parts.append((key, value))

    def append(self, value: Any) -> None:
        self.parts.append(value)

    def extend(self, values: Any) -> None:
        self.parts.extend(values)

    def add(self, value: Any) -> None:
        self.parts.append(value)


class _Stubs(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        made = type("Made", (_Made,), {})
        made.__new__ = lambda cls, *arguments: _called(module, name, arguments)  # type: ignore[method-assign, assignment]
        made.__init__ = lambda self, *arguments: None  # type: ignore[method-assign, assignment]
        made.spelled = f"{module}.{name}"  # type: ignore[attr-defined]
        return made

    def persistent_load(self, pid: Any) -> Any:
        # The fourth part is the device, which is no content.
        return ("persistent", *(one for place, one in enumerate(pid) if place != 3)) if isinstance(pid, tuple) else pid


def _called(module: str, name: str, arguments: tuple[Any, ...]) -> _Made:
    if name == "_rebuild_tensor_v2":
        arguments = arguments[:4]  # whether it needs a gradient, and hooks, are no content
    made = object.__new__(_Made)
    made.parts = [f"{module}.{name}", *arguments]
    return made


def _canonical(content: bytes) -> Any:
    """All pickles in a row, and the bytes behind the last one, as one text."""
    stream = io.BytesIO(content)
    parts: list[str] = []
    while stream.tell() < len(content):
        at = stream.tell()
        if content[at : at + 1] != b"\x80":
            break
        try:
            parts.append(_text(_Stubs(stream, encoding="latin1").load()))
        except Exception as trouble:  # noqa: BLE001 - a pickle that does not load is equal to nothing
            return f"{type(trouble)} {content!r}"
    return (*parts, content[stream.tell() :])


def _text(value: Any) -> str:
    if isinstance(value, _Made):
        return f"<{_text(value.parts)}>"
    if isinstance(value, type):
        return str(getattr(value, "spelled", value))
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(key)}:{_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({','.join(map(_text, value))})"
    return repr(value)
