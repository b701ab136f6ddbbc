"""A zip's directory is read as Python's zipfile reads it, and refused where it lies."""

import io
import random
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.archives.zip_content import DeflatedMember, members_of, read_member, run_of
from ckptcheck.readers.archives.zip_directory import open_zip
from ckptcheck.readers.source import FilePool
from ckptcheck.state.raw import Flaw
from tests.readers.zips import entry_of, opened, patched, source_of, zipped

MEMBERS = {"a/one": b"1" * 1_000, "a/two": bytes(range(256)) * 40, "a/empty": b"", "b": b"x"}
END = 22


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("comment", [b"", b"a comment with PK\x05\x06 in it" + b" " * 200])
def test_members_come_with_the_numbers_that_zipfile_knows(tmp_path: Path, method: int, comment: bytes) -> None:
    content = zipped(MEMBERS, method, comment)
    directory = opened(tmp_path, content)
    with zipfile.ZipFile(io.BytesIO(zipped(MEMBERS, method))) as archive:  # which itself trips over such a comment
        expected = [
            (one.filename, one.header_offset, one.file_size, one.compress_size, one.compress_type, one.CRC)
            for one in archive.infolist()
        ]
    assert [tuple(one) for one in directory.members.values()] == expected
    assert directory.has_checksums
    assert {name: read_member(directory, name, 100_000) for name in MEMBERS} == MEMBERS
    assert [one.verify() for one in members_of(directory)] == [None] * len(MEMBERS)


def test_long_archives_of_zip64_are_read(tmp_path: Path) -> None:
    path = tmp_path / "long.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("first", "second"):
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(name.encode() * 10)
    content = path.read_bytes()
    place = content.rindex(b"PK\x05\x06")
    count, nbytes, offset = struct.unpack_from("<HLL", content, place + 10)
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, nbytes, offset)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, place, 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path.write_bytes(content[:place] + record + locator + end)
    with zipfile.ZipFile(path) as archive:  # what we made is a sound archive
        assert archive.read("second") == b"second" * 10
    directory = open_zip(source_of(tmp_path, path.read_bytes()))
    assert read_member(directory, "second", 100) == b"second" * 10


def test_a_member_of_more_than_4_gib_is_found_in_a_sparse_file(tmp_path: Path) -> None:
    path, length = tmp_path / "sparse.zip", 5 << 30
    extra = struct.pack("<2H3Q", 1, 24, length, length, 0)
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 1, 0) + b"m"
    entry = struct.pack(
        "<4s4B4HL2L5H2L", b"PK\x01\x02", 45, 0, 45, 0, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 1, len(extra), 0, 0, 0, 0,
        0xFFFFFFFF,
    )  # fmt: skip
    begin = len(local) + length
    central = entry + b"m" + extra
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(central), begin)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, begin + len(central), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    with path.open("wb") as file:
        file.write(local)
        file.seek(begin - 4)
        file.write(b"last" + central + record + locator + end)
    directory = open_zip(FilePool().open(path))
    buffer = memoryview(bytearray(4))
    run_of(directory, directory.members["m"]).read_into(length - 4, buffer)
    assert bytes(buffer) == b"last"
    assert not directory.has_checksums


def test_an_archive_in_a_window_and_one_behind_a_prefix_are_read_the_same(tmp_path: Path) -> None:
    content = zipped(MEMBERS)
    whole = source_of(tmp_path, b"before" * 9 + content + b"after" * 50)
    directory = open_zip(whole.window(54, len(content)))
    assert read_member(directory, "a/two", 100_000) == MEMBERS["a/two"]
    behind = opened(tmp_path, b"prefix" + content)
    assert read_member(behind, "a/two", 100_000) == MEMBERS["a/two"]
    assert behind.members["a/one"].offset == 6


def test_a_few_bytes_behind_the_end_are_no_harm(tmp_path: Path) -> None:
    content = zipped(MEMBERS, comment=b"note")
    for tail in (b"\n", bytes(500), b"PK\x05\x06"):
        directory = opened(tmp_path, content + tail)
        assert read_member(directory, "a/two", 100_000) == MEMBERS["a/two"]
        assert directory.trailing_nbytes == len(tail)
    assert opened(tmp_path, content).trailing_nbytes == 0


def test_stored_members_know_their_place_and_read_their_header_late(tmp_path: Path) -> None:
    content = zipped(MEMBERS)
    run = run_of(opened(tmp_path, content), opened(tmp_path, content).members["a/two"])
    located = run.located()  # type: ignore[union-attr]
    assert (located.begin, located.nbytes) == (content.index(bytes(range(256))), 256 * 40)
    broken = bytearray(content)
    broken[content.index(b"PK\x03\x04", 10) + 3] ^= 1
    directory = opened(tmp_path, bytes(broken))
    with pytest.raises(DamagedCheckpointError, match="does not begin where the directory says"):
        read_member(directory, "a/two", 100_000)


def _entry(name: str, offset: int, code: str, value: int) -> Callable[[bytes], bytes]:
    return lambda content: patched(content, entry_of(content, name) + offset, code, value)


def _end(offset: int, code: str, value: int) -> Callable[[bytes], bytes]:
    return lambda content: patched(content, len(content) - END + offset, code, value)


LIES = {
    "cut at the end": (lambda content: content[:-1], "no directory at its end"),
    "many bytes at the end": (lambda content: content + bytes(70_000), "no directory at its end"),
    "another archive cut short": (lambda content: content + content[:-5], "another archive begins at byte"),
    "only a head": (lambda content: content[:100], "no directory at its end"),
    "empty": (lambda content: b"", "no directory at its end"),
    "more members than entries": (_end(8, "2H"[1:], 5), "several"),
    "too many members": (lambda content: _end(10, "H", 9)(_end(8, "H", 9)(content)), "does not fit|malformed"),
    "directory longer than the file": (_end(12, "L", 1 << 30), "does not fit"),
    "directory behind itself": (_end(16, "L", 1 << 30), "does not fit"),
    "several disks": (_end(4, "H", 1), "several"),
    "encrypted": (_entry("a/two", 8, "H", 1), "'a/two' is encrypted"),
    "unknown method": (_entry("a/two", 10, "H", 12), "method 12"),
    "stored and shorter": (_entry("a/two", 24, "L", 5), "not the promised 5"),
    "outside of the file": (_entry("b", 42, "L", 1 << 30), "overlaps what follows it, or ends outside"),
    "one on another": (_entry("a/two", 42, "L", 0), "overlaps"),
    "a bomb": (
        lambda content: _entry("a/two", 24, "L", 1 << 31)(_entry("a/two", 10, "H", 8)(content)),
        "would unfold to 2147483648 bytes",
    ),
    "no entry": (lambda content: content.replace(b"PK\x01\x02", b"PK\x01\x09", 1), "entry 0"),
    "a name beyond the directory": (_entry("b", 28, "H", 60_000), "malformed|take"),
    "a long number that is not there": (_entry("b", 20, "L", 0xFFFFFFFF), "malformed"),
    "a name that is no text": (
        lambda content: _entry("a/one", 8, "H", 0x800)(content).replace(b"PK\x01\x02", b"PK\x01\x02").replace(
            b"a/one", b"a/\xff\xfee"
        ),
        "malformed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), LIES.values(), ids=LIES.keys())
def test_a_directory_that_lies_is_refused(tmp_path: Path, change: Callable[[bytes], bytes], said: str) -> None:
    with pytest.raises(CheckpointError, match=said) as caught:
        opened(tmp_path, change(zipped(MEMBERS)))
    assert "\n" not in str(caught.value)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    content = zipped({"same": b"1", "sane": b"2"}).replace(b"sane", b"same")
    with pytest.raises(DamagedCheckpointError, match="two members have one name"):
        opened(tmp_path, content)


def test_a_header_that_pushes_its_bytes_into_the_next_member_is_refused(tmp_path: Path) -> None:
    content = zipped(MEMBERS)
    directory = opened(tmp_path, patched(content, 28, "H", 60_000))
    with pytest.raises(DamagedCheckpointError, match="reaches into what follows"):
        read_member(directory, "a/one", 10_000)


def test_a_changed_byte_is_told_with_both_checksums(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        content = zipped({"m": bytes(range(250)) * 9}, method)
        place = 31 + 40
        directory = opened(tmp_path, patched(content, place, "B", content[place] ^ 4))
        [member] = members_of(directory)
        defect = member.verify()
        assert member.has_checksum
        assert defect is not None
        assert defect.flaw in (Flaw.CHECKSUM, Flaw.UNREADABLE)
        if method == zipfile.ZIP_STORED:
            assert defect.flaw is Flaw.CHECKSUM
            assert defect.numbers["promised"] == f"{zlib.crc32(bytes(range(250)) * 9):08x}"
            assert defect.numbers["found"] != defect.numbers["promised"]


def test_checksums_that_are_all_zero_are_none(tmp_path: Path) -> None:
    content = zipped({"m": b"abc", "n": b"de"})
    for name in ("m", "n"):
        content = patched(content, entry_of(content, name) + 16, "L", 0)
    directory = opened(tmp_path, content)
    assert not directory.has_checksums
    assert [(one.has_checksum, one.verify()) for one in members_of(directory)] == [(False, None)] * 2


def _deflated(folder: Path, content: bytes) -> DeflatedMember:
    directory = opened(folder, zipped({"m": content}, zipfile.ZIP_DEFLATED))
    run = run_of(directory, directory.members["m"])
    assert isinstance(run, DeflatedMember)
    return run


def test_a_deflated_member_is_read_from_any_place_in_any_order(tmp_path: Path) -> None:
    content = random.Random(4).randbytes(3_000_000)
    run = _deflated(tmp_path, content)
    for start, length in [(0, 10), (10, 2_000_000), (2_500_000, 500_000), (5, 5), (2_999_999, 1), (0, 3_000_000)]:
        buffer = memoryview(bytearray(length))
        run.read_into(start, buffer)
        assert bytes(buffer) == content[start : start + length]
    assert [one.verify() for one in members_of(run.directory)] == [None]
    with pytest.raises(DamagedCheckpointError, match="too few bytes"):
        run.read_into(2_999_999, memoryview(bytearray(2)))


def test_threads_share_a_deflated_member(tmp_path: Path) -> None:
    content = random.Random(5).randbytes(400_000)
    run = _deflated(tmp_path, content)
    found = memoryview(bytearray(len(content)))

    def read(first: int) -> None:
        for start in range(first, first + 200_000, 10_000):
            run.read_into(start, found[start : start + 10_000])

    threads = [threading.Thread(target=read, args=(first,)) for first in (0, 200_000)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert bytes(found) == content


@pytest.mark.parametrize(("promised", "said"), [(200, "more bytes"), (400, "fewer bytes")])
def test_a_deflated_member_of_another_length_is_damaged(tmp_path: Path, promised: int, said: str) -> None:
    content = zipped({"m": b"ab" * 150}, zipfile.ZIP_DEFLATED)
    directory = opened(tmp_path, patched(content, entry_of(content, "m") + 24, "L", promised))
    with pytest.raises(DamagedCheckpointError, match=said):
        read_member(directory, "m", 1_000)


def test_a_member_beyond_what_was_asked_for_is_refused(tmp_path: Path) -> None:
    directory = opened(tmp_path, zipped({"m": b"x" * 100}))
    with pytest.raises(CheckpointError, match="has 100 bytes, more than 99"):
        read_member(directory, "m", 99)
