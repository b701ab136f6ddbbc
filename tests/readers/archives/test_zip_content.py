"""Compressed members, read in any order: always the same bytes, in bounded time."""

import random
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.archives import zip_content
from ckptcheck.readers.archives.zip_content import DeflatedMember, check_unfolding, run_of
from ckptcheck.readers.archives.zip_directory import open_zip
from ckptcheck.readers.source import FilePool

CONTENT = np.random.default_rng(0).integers(0, 3, 6 << 20, "u1").tobytes()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deflated") / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a", CONTENT)
        archive.writestr("zeros", bytes(8 << 20))
    return path


def opened(path: Path, name: str = "a") -> DeflatedMember:
    directory = open_zip(FilePool().open(path))
    run = run_of(directory, directory.members[name])
    assert isinstance(run, DeflatedMember)
    return run


def part(run: DeflatedMember, start: int, length: int) -> bytes:
    buffer = bytearray(length)
    run.read_into(start, memoryview(buffer))
    return bytes(buffer)


def extents(seed: int, count: int) -> list[tuple[int, int]]:
    chosen = random.Random(seed)
    starts = [chosen.randrange(len(CONTENT)) for _ in range(count)]
    return [(start, min(chosen.choice((1, 100, 70_000, 1_500_000)), len(CONTENT) - start)) for start in starts]


@pytest.mark.parametrize("order", ["any", "backwards", "forwards"])
def test_every_read_gives_the_bytes_that_lie_there(path, order):
    wanted = extents(1, 80)
    if order != "any":
        wanted.sort(reverse=order == "backwards")
    run = opened(path)
    for start, length in [*wanted, (0, len(CONTENT)), (len(CONTENT), 0), (len(CONTENT) - 1, 1)]:
        assert part(run, start, length) == CONTENT[start : start + length]


def test_threads_may_read_at_once(path):
    run = opened(path)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: part(run, *one), extents(2, 80)))
    assert found == [CONTENT[start : start + length] for start, length in extents(2, 80)]


def test_reading_from_its_end_backwards_does_not_unfold_it_each_time(path):
    run = opened(path)
    for start in range(len(CONTENT) - 10, len(CONTENT) - 10_010, -10):
        assert part(run, start, 10) == CONTENT[start : start + 10]
    assert run._unfolded < 6 * len(CONTENT)
    assert len(run._bookmarks) <= zip_content.MAX_BOOKMARKS + 1


def test_blocks_in_any_order_cost_little_more_than_themselves(path):
    run = opened(path)
    part(run, len(CONTENT) - 1, 1)
    for _ in range(10):
        for start in range(len(CONTENT) - 1, 0, -(1 << 20)):
            assert part(run, start, 1) == CONTENT[start : start + 1]
    blocks = 10 * len(CONTENT)
    assert run._unfolded < 2.5 * blocks


def test_what_would_be_unfolded_again_and_again_is_refused(path, monkeypatch):
    monkeypatch.setattr(zip_content, "MAX_UNFOLDED", 0)
    monkeypatch.setattr(zip_content, "STORED_TIMES", 0)
    monkeypatch.setattr(zip_content, "BOOKMARK_BYTES", 1 << 30)
    run = opened(path)
    with pytest.raises(CheckpointError, match=r"a.zip: 'a' is compressed, and its tensors are not read in the order"):
        [part(run, start, 1) for start in range(len(CONTENT) - 1, 0, -(1 << 19))]
    assert part(opened(path), 0, len(CONTENT)) == CONTENT


def test_an_archive_that_unfolds_to_far_more_than_it_is_long_is_refused(path, monkeypatch):
    directory = open_zip(FilePool().open(path))
    check_unfolding(directory)
    monkeypatch.setattr(zip_content, "MAX_BOMB_BYTES", 1 << 20)
    check_unfolding(directory)
    monkeypatch.setattr(zip_content, "MAX_RATIO", 2)
    with pytest.raises(CheckpointError, match=rf"a.zip: {path.stat().st_size} bytes unfold to {14 << 20}: not read"):
        check_unfolding(directory)
