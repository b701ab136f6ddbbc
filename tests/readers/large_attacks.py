"""Checkpoints of less than 2 MB whose reading would take gigabytes or minutes, were it not bounded."""

import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

from fixtures.hostile import safe, zips
from fixtures.hostile.pickles import call, integer, listed, proto2, storage, tensor, text
from fixtures.hostile.zips import torch_zip

Attack = Callable[[], bytes]

_MASK = (1 << 64) - 1
_PRIMES = 11400714785074694791, 14029467366897019727, 2870177450012600261
"""Of xxHash, by which Python hashes tuples: cpython's Objects/tupleobject.c."""


def alike_pairs(count: int) -> Iterator[tuple[int, int]]:
    """Pairs of numbers whose tuples have one hash, so that a dict compares each with all before."""
    first, second, start = _PRIMES
    inverse = pow(second, -1, 1 << 64)
    lane = 0
    while count:
        lane += 1
        mixed = (start + lane * second) & _MASK
        mixed = (((mixed << 31) | (mixed >> 33)) & _MASK) * first & _MASK
        other = (12345678901234567 - mixed) * inverse & _MASK
        if other < 1 << 60:
            count -= 1
            yield lane, other


def pair(left: int, right: int) -> bytes:
    return integer(left) + integer(right) + b"\x86"


def keyed(keys: Iterator[bytes]) -> bytes:
    return b"}(" + b"".join(key + b"N" for key in keys) + b"u"


def complex_keys(count: int) -> Iterator[bytes]:
    """Complex numbers that all have the hash 0."""
    for number in range(1, count + 1):
        yield call("__builtin__.complex", b"G" + struct.pack(">d", -1000003.0 * number), integer(number))


def again(value: bytes, count: int) -> bytes:
    """A list that holds one value many times."""
    return b"](" + value + b"q\1" + b"h\1" * count + b"e"


def under_one_key(key: bytes, count: int) -> bytes:
    return b"}" + key + listed(*[b"]"] * count) + b"s"


def nested(depth: int, key: bytes) -> bytes:
    """Dicts in dicts under one long key."""
    return b"}" + key + b"q\1" + (b"}h\1") * depth + b"N" + b"s" * (depth + 1)


def saved(body: bytes, **storages: bytes) -> bytes:
    return torch_zip(proto2(body), storages)


def deflated(offsets: list[int], numel: int) -> bytes:
    """Views into one storage of zeros, which is compressed."""
    views = [tensor(storage(numel=numel) if place else storage(numel=numel) + b"q\2", offset, (4,)) if not place
             else tensor(b"h\2", offset, (4,)) for place, offset in enumerate(offsets)]  # fmt: skip
    target = BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("archive/data.pkl", proto2(listed(*views)))
        archive.writestr("archive/byteorder", "little")
        with archive.open("archive/data/0", "w") as member:
            for _ in range(numel >> 18):
                member.write(bytes(1 << 20))
        archive.writestr("archive/version", "3\n")
    return target.getvalue()


LONG = text("A" * 1_000_000)


def sparse_safetensors(path: Path) -> None:
    """1 TB of zeros that takes no room."""
    header = json.dumps({"a": {"dtype": "U8", "shape": [1 << 40], "data_offsets": [0, 1 << 40]}}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + (1 << 40))


DESCRIBED: dict[str, Attack] = {
    "four million lists and more": lambda: saved(b"](" + b"]" * 4_100_000 + b"e"),
    "half a million numbers": lambda: saved(b"](" + b"K\1" * 500_000 + b"e"),
    "fifty thousand lists": lambda: saved(b"](" + b"]" * 50_000 + b"e"),
    "three hundred thousand texts": lambda: saved(b"](" + text("abcdefgh") * 300_000 + b"e"),
    "twenty thousand globals": lambda: saved(b"](" + b"".join(b"cm\nn%d\n" % n for n in range(20_000)) + b"e"),
    "twenty thousand tensors of one storage": lambda: saved(b"](" + tensor() * 20_000 + b"e", **{"0": bytes(16)}),
    "two hundred thousand entries of a memo": lambda: saved(
        b"](" + b"".join(b"Nr" + struct.pack("<I", n) for n in range(200_000)) + b"e"
    ),
    "twenty thousand members": lambda: zips.build(
        [*zips.SOUND, *(zips.member(f"data/x{number}") for number in range(20_000))]
    ),
    "a deflated pickle of 128 MB": lambda: zips.build(zips.changed(0, content=bytes(1 << 27), method=8)),
    "twenty thousand names": lambda: safe.whole(
        {f"{n}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in range(20_000)}, b""
    ),
    "a header of 90 MB of spaces": lambda: safe.whole(b"{" + b" " * (90 << 20) + b"}", b""),
}
"""What is large, and for the most part not yet beyond a bound; some are larger than 2 MB."""

REFUSED: dict[str, Attack] = {
    "tuples of one hash": lambda: saved(keyed(pair(*one) for one in alike_pairs(60_000))),
    "complex numbers of one hash": lambda: saved(keyed(complex_keys(50_000))),
    "sets of one hash": lambda: saved(keyed(b"(" + pair(*one) + b"\x91" for one in alike_pairs(30_000))),
    "a dict of tuples of one hash, copied again and again": lambda: saved(
        b"(" + keyed(pair(*one) for one in alike_pairs(3_900)) + b"q\1"
        + b"ccollections\nOrderedDict\nq\2h\1\x85R" + b"h\2h\1\x85R" * 50 + b"t"
    ),
    "a dict of tuples of one hash, reached again and again": lambda: saved(
        again(keyed(pair(*one) for one in alike_pairs(3_000)), 40)
    ),
    "a text a hundred thousand times": lambda: saved(again(LONG, 100_000)),
    "bytes by thousands": lambda: saved(again(b"B" + struct.pack("<I", 500_000) + bytes(500_000), 100_000)),
    "an integer by hundreds of thousands": lambda: saved(
        again(b"\x8b" + struct.pack("<i", 1250) + b"\1" * 1250, 900_000)
    ),
    "a list of one text by thousands": lambda: saved(again(listed(LONG), 50_000)),
    "a long key over thousands of values": lambda: saved(under_one_key(LONG, 20_000)),
    "a long key within itself": lambda: saved(nested(60, LONG)),
    "an object of a long class by hundreds of thousands": lambda: saved(
        again(b"cm\n" + b"n" * 900 + b"\n)\x81", 500_000)
    ),
    "an array by thousands": lambda: saved(again(_array(500_000), 20_000)),
    "a number expanded to 32 GiB": lambda: saved(tensor(size=(1 << 33,), stride=(0,)), **{"0": bytes(16)}),
    "a tensor by hundreds of thousands": lambda: saved(
        again(tensor(storage(numel=250_000), size=(250_000,)), 300_000), **{"0": bytes(1_000_000)}
    ),
    "a bare storage by hundreds of thousands": lambda: saved(
        again(storage(numel=250_000), 300_000), **{"0": bytes(1_000_000)}
    ),
    "zeros that unfold to a thousand times as much": lambda: deflated([0], 100 << 20),
}  # fmt: skip
"""What is beyond a bound."""

READ: dict[str, Attack] = {
    "as many tuples of one hash as are read": lambda: saved(keyed(pair(*one) for one in alike_pairs(3_900))),
    "shapes of one hash": lambda: saved(
        listed(*[tensor(size=(0, *one), stride=(1, 1, 1)) for one in alike_pairs(12_000)]), **{"0": bytes(16)}
    ),
    "views at the end of a compressed storage": lambda: deflated([(16 << 20) - 10 - n for n in range(300)], 16 << 20),
}
"""What is read, in time."""


def _array(nbytes: int) -> bytes:
    """A numpy array of bytes."""
    dtype = call("numpy.dtype", text("u1"), integer(0), integer(1))
    content = b"B" + struct.pack("<I", nbytes) + bytes(nbytes)
    return call("numpy.core.numeric._frombuffer", content, dtype, b"(" + integer(nbytes) + b"t", text("C"))
