"""Damage by chance ends in one line, in differences, or in what truly is the same; the full count is run by hand."""

import random
import struct
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tests.readers.corruption import DAMAGES, LAYOUTS, ending, run_case
from tests.readers.exploring import Watch
from tests.readers.truly_equal import differing
from tests.samples import CHECKPOINTS

COUNT = 200
SEED = 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_by_chance_ends_as_it_must(watch: Watch, layout: str, tmp_path: Path):
    numbers = range(LAYOUTS.index(layout), COUNT, len(LAYOUTS))
    cases = [run_case(watch, number, SEED, tmp_path) for number in numbers]
    assert len(cases) == COUNT // len(LAYOUTS)
    assert [case for case in cases if case.wrong] == []
    endings = Counter(map(ending, cases))
    assert endings["damaged"] + endings["differs"] + endings["refused"] > 0, "no damage was seen"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_not_damaged_is_the_same_without_a_finding(watch: Watch, layout: str):
    outcome = watch("corrupted", CHECKPOINTS / layout, CHECKPOINTS / layout)
    assert outcome.is_proper
    assert outcome.found["same"]
    assert outcome.found["findings"] == []
    assert differing(CHECKPOINTS / layout, CHECKPOINTS / layout) == []


def test_the_independent_check_sees_what_it_must(tmp_path: Path):
    """Every byte of a tensor's storage, of a pickle's text and of a header counts; padding does not."""
    source = CHECKPOINTS / "01_torch_save/zip_full.pt"
    whole = source.read_bytes()
    copy = tmp_path / "copy.pt"
    with zipfile.ZipFile(source) as archive:
        header = next(one.header_offset for one in archive.infolist() if one.filename.endswith("/data/0"))
    storage = header + 30 + sum(struct.unpack_from("<HH", whole, header + 26))
    for at, differs in (
        (storage, True),
        (storage - 1, False),
        (whole.index(b"exp_avg"), True),
        (len(whole) - 1, False),
    ):
        copy.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert bool(differing(source, copy)) is differs, at


def test_every_kind_of_damage_changes_something():
    content = bytes(range(256)) * 40
    for damage in DAMAGES:
        assert any(damage(content, random.Random(seed)) != content for seed in range(5)), damage.__name__
