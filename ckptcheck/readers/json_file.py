"""JSON files as raw values, and the bounded parsing that every JSON text in a checkpoint goes through."""

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.reader import Head
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source, quoted
from ckptcheck.state.raw import MAX_RAW_DEPTH, Raw, RawTree

MAX_JSON_BYTES: Final = 64 * 2**20
MAX_JSON_VALUES: Final = 2_000_000

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A string, or the rest of the text where it does not end: so the search is linear whatever the text."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_BEGINNING: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*["}]|\[\s*(?:[\[{"\-0-9\]]|true|false|null))')


class JsonFile:
    """A JSON file that begins with an object or a list; container "json"."""

    def claims(self, head: Head) -> bool:
        """Whether it begins as JSON does."""
        return _BEGINNING.match(head.start) is not None

    def read(self, source: Source, reading: Reading) -> RawTree:
        """Its value. DamagedCheckpointError where it is no JSON, or beyond the bounds of `parse_json`."""
        value = read_json(source)
        return RawTree(reading.path, "json", value, source.nbytes, check_unchanged=reading.pool.check_unchanged)


def read_json(source: Source) -> Raw:
    """The value of a JSON file of at most `MAX_JSON_BYTES` bytes; errors as `parse_json`'s."""
    if source.nbytes > MAX_JSON_BYTES:
        raise DamagedCheckpointError(
            f"{source}: is a JSON file of {source.nbytes} bytes, more than {MAX_JSON_BYTES} are not read"
        )
    return parse_json(source.read(0, source.nbytes), str(source))


def parse_json(text: bytes, where: str) -> Raw:
    """The value of a JSON text in UTF-8; `where` begins each message.

    `NaN` and `Infinity` are taken as python's own writer means them. DamagedCheckpointError where it is no JSON, has
    a key twice in one object, nests deeper than `MAX_RAW_DEPTH` or has more than `MAX_JSON_VALUES` values.
    """
    _check_bounds(text, where)
    try:
        value = json.loads(text.decode("utf-8-sig"), object_pairs_hook=_object(where))
    except ValueError as trouble:  # UnicodeDecodeError and JSONDecodeError are both
        said = str(trouble).partition(";")[0]  # what python would have done about it is nothing to our user
        raise DamagedCheckpointError(f"{where}: is no valid JSON ({said})") from None
    if _SURROGATE.search(text):
        _check_speakable(value, where)
    return value


def _check_bounds(text: bytes, where: str) -> None:
    bare = _STRING.sub(b"", text)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MAX_JSON_VALUES:
        raise DamagedCheckpointError(f"{where}: holds more than {MAX_JSON_VALUES} values: not read")
    depth = max(accumulate(_STEP[bracket] for bracket in bare.translate(None, _NO_BRACKETS)), default=0)
    if depth > MAX_RAW_DEPTH:
        raise DamagedCheckpointError(f"{where}: nests {depth} levels deep, more than {MAX_RAW_DEPTH} are not read")


def _object(where: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) < len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise DamagedCheckpointError(f"{where}: has the key {quoted(twice)} twice in one object")
        return built

    return build


def _check_speakable(value: Any, where: str) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DamagedCheckpointError(f"{where}: holds text that is no Unicode (half of a surrogate pair)") from None
