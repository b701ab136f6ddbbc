"""Bytes of files by position: from windows, with few files open, and never from outside of a folder."""

from pathlib import Path

import pytest

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.source import MAX_OPEN, MAX_SHOWN, FilePool, inside, quoted, said_of


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    path = tmp_path / "digits"
    path.write_bytes(b"0123456789")
    return path


def test_a_window_of_a_window_has_its_own_positions(digits: Path):
    window = FilePool().open(digits).window(2, 6).window(1, 3)
    assert (window.begin, window.nbytes, window.read(0, 3), window.head(99)) == (3, 3, b"345", b"345")


@pytest.mark.parametrize(("begin", "nbytes"), [(0, 11), (10, 1), (-1, 2), (3, -1)])
def test_what_reaches_beyond_a_window_is_damage(digits: Path, begin: int, nbytes: int):
    source = FilePool().open(digits)
    for reach in (source.window, source.read):
        with pytest.raises(DamagedCheckpointError, match=r"digits: bytes .* were promised, 10 are there"):
            reach(begin, nbytes)


def test_more_files_than_are_kept_open_are_read_all_the_same(tmp_path: Path):
    pool = FilePool()
    for number in range(2 * MAX_OPEN):
        (tmp_path / str(number)).write_text(str(number))
    sources = [pool.open(tmp_path / str(number)) for number in range(2 * MAX_OPEN)]
    assert [int(one.head(9)) for one in sources] == list(range(2 * MAX_OPEN))
    pool.close()
    assert sources[0].head(9) == b"0"


@pytest.mark.parametrize("name", ["", "/x", "../x", "a/../../x", "a\\x", "a\0x"])
def test_a_name_that_may_lead_out_of_its_folder_is_not_followed(tmp_path: Path, name: str):
    with pytest.raises(CheckpointError, match="not followed") as caught:
        inside(tmp_path, name)
    assert "\0" not in str(caught.value)


def test_links_are_followed_within_the_folder_and_into_the_hubs_own_blobs_only(tmp_path: Path):
    snapshot = tmp_path / "models--x" / "snapshots" / "rev"
    snapshot.mkdir(parents=True)
    targets = {
        "near": snapshot / "file",
        "blob": tmp_path / "models--x" / "blobs" / "0",
        "far": tmp_path / "models--x" / "other" / "0",
        "outside": tmp_path / "blobs" / "0",
    }
    for name, target in targets.items():
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(b"x")
        (snapshot / name).symlink_to(target)
    assert [inside(snapshot, name) for name in ("near", "blob")] == [snapshot / "near", snapshot / "blob"]
    for name in ("far", "outside"):
        with pytest.raises(CheckpointError, match="leads out of the folder"):
            inside(snapshot, name)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("/run/a.pt: cut short", "cut short"),
        ("/run: names 'x: y'", "names 'x: y'"),
        ("/run/b.pt: cut short", "/run/b.pt: cut short"),
        ("cut short", "cut short"),
    ],
)
def test_a_message_loses_the_path_that_it_begins_with(message: str, said: str):
    assert said_of(CheckpointError(message), Path("/run/a.pt")) == said


def test_a_name_of_any_length_and_characters_is_short_and_printable():
    assert quoted("a\n\0\x1b") == r"'a\n\x00\x1b'"
    assert quoted("x" * MAX_SHOWN) == f"'{'x' * MAX_SHOWN}'"
    assert quoted("x" * 10**6) == f"'{'x' * MAX_SHOWN}...'"
