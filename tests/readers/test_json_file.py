"""JSON files: python's own reading, within bounds, and nothing but JSON is claimed."""

import json
import math
from pathlib import Path

import pytest

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers import json_file
from ckptcheck.readers.json_file import parse_json
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import MAX_RAW_DEPTH
from tests.samples import CHECKPOINTS

SAMPLES = [path for path in sorted(CHECKPOINTS.rglob("*.json")) if not path.name.endswith(".index.json")]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(CHECKPOINTS)))
def test_every_sample_is_read_as_python_reads_it(path: Path) -> None:
    tree = read_raw(path)
    assert tree.container == "json"
    assert tree.root == json.loads(path.read_text())


def test_nan_and_infinity_are_numbers_as_python_writes_them() -> None:
    value = parse_json(b'{"loss": NaN, "best": -Infinity}', "it")
    assert math.isnan(value["loss"])
    assert value["best"] == -math.inf


@pytest.mark.parametrize("text", [b'{"a": "]]}{"}', b'["\\"[[", "\\\\", 1]', b'\xef\xbb\xbf{"a": "\xc3\xa4"}', b"[]"])
def test_brackets_and_quotes_in_texts_are_no_structure(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.json").write_bytes(text)
    assert read_raw(tmp_path / "a.json").root == json.loads(text.decode("utf-8-sig"))


def test_nesting_is_read_up_to_its_bound_and_not_beyond() -> None:
    assert parse_json(b"[" * MAX_RAW_DEPTH + b"]" * MAX_RAW_DEPTH, "it")
    with pytest.raises(DamagedCheckpointError, match="levels deep"):
        parse_json(b"[" * (MAX_RAW_DEPTH + 1) + b"]" * (MAX_RAW_DEPTH + 1), "it")


@pytest.mark.parametrize("text", [b"[" * 1_000_000, b'{"a":' * 300_000, b'"' + b'\\"' * 500_000, b"[" + b"]" * 500_000])
def test_a_text_made_to_exhaust_a_parser_is_told_in_one_line(text: bytes) -> None:
    with pytest.raises(DamagedCheckpointError, match=r"^it: .*(levels deep|no valid JSON)"):
        parse_json(text, "it")


def test_the_count_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_JSON_VALUES", 100)
    assert len(parse_json(b"[" + b"1," * 98 + b"1]", "it")) == 99
    with pytest.raises(DamagedCheckpointError, match="more than 100 values"):
        parse_json(b"[" + b"1," * 100 + b"1]", "it")


def test_a_file_beyond_the_bound_of_bytes_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_JSON_BYTES", 5)
    (tmp_path / "a.json").write_text('{"a": 1}')
    with pytest.raises(CheckpointError, match="a JSON file of 8 bytes"):
        read_raw(tmp_path / "a.json")


@pytest.mark.parametrize("text", [b'{"a": {"b": 1, "b": 2}}', b'{"\\u0062": 1, "b": 1}'])
def test_a_key_that_stands_twice_is_damage(text: bytes) -> None:
    with pytest.raises(DamagedCheckpointError, match="the key 'b' twice"):
        parse_json(text, "it")


@pytest.mark.parametrize("text", [b'["\\ud800"]', b'{"\\udfff": 1}'])
def test_half_a_surrogate_pair_is_no_text(text: bytes) -> None:
    with pytest.raises(DamagedCheckpointError, match="no Unicode"):
        parse_json(text, "it")


def test_a_whole_surrogate_pair_is_text() -> None:
    assert parse_json(b'["\\ud83d\\ude00"]', "it") == ["\U0001f600"]


@pytest.mark.parametrize("text", [b"step: 3\n", b"[section]\nkey = 1\n", b"{not json}", b"#!/bin/sh"])
def test_what_does_not_begin_as_json_is_not_claimed(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(CheckpointError) as caught:
        read_raw(tmp_path / "a.json")
    assert not isinstance(caught.value, DamagedCheckpointError)


def test_a_cut_file_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text('{"global_step": 2, "log_hist')
    with pytest.raises(DamagedCheckpointError, match="no valid JSON"):
        read_raw(tmp_path / "trainer_state.json")
