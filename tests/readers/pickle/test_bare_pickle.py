"""Files that are one pickle: read in every protocol, never executed, and neither texts nor programs are claimed."""

import collections
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.pickle import bare_pickle
from ckptcheck.readers.reading import read_raw
from tests.readers.live_values import assert_same

VALUE = {
    "step": 12, "names": ["a", "b"], "pair": (1.5, None), "big": 2**70, "raw": b"\x00\xff", "text": "ä\n", "yes": True,
    "numbers": list(range(300)), "empty": {},
}  # fmt: skip


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [VALUE, list(VALUE.values()), (VALUE, 3)], ids=["dict", "list", "tuple"])
def test_every_protocol_is_read_as_python_reads_it(tmp_path: Path, protocol: int, value: Any) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    tree = read_raw(path)
    assert tree.container == "pickle"
    assert assert_same(tree.root, value) > 1
    assert tree.facts["protocol"] == protocol or protocol < 2


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_replay_buffer_keeps_its_classes_as_names(tmp_path: Path, protocol: int) -> None:
    buffer = {"observations": np.arange(6, dtype=np.float32).reshape(2, 3), "counts": collections.Counter(a=2)}
    (tmp_path / "buffer.pkl").write_bytes(pickle.dumps(buffer, protocol))
    root = read_raw(tmp_path / "buffer.pkl").root
    assert list(root) == ["observations", "counts"]


NO_PICKLES = {
    "a text": b"(hello) this ends in a full stop.",
    "a line that looks like a global": b"cats\nare nice\n.",
    "a number": b"I12\n.",
    "a list of words": b"]q word word.",
    "a script": b"import os\nprint(1).",
    "an empty file": b"",
    "one byte": b"(",
    "an executable": b"\x7fELF" + bytes(range(256)),
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "random bytes that begin as protocol 9": b"\x80\x09}q\x00.",
    "a protocol mark and no opcode": b"\x80\x02\xff\xff\xff",
}


@pytest.mark.parametrize("content", NO_PICKLES.values(), ids=NO_PICKLES)
def test_what_is_no_pickle_is_refused_and_not_called_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pkl").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_raw(tmp_path / "a.pkl")
    assert not isinstance(caught.value, DamagedCheckpointError) or not content


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_cut_anywhere_is_damaged(tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps(VALUE, protocol)
    for length in range(12, len(content), 37):
        (tmp_path / "a.pkl").write_bytes(content[:length])
        with pytest.raises(DamagedCheckpointError):
            read_raw(tmp_path / "a.pkl")


def test_more_than_one_pickle_in_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(VALUE, 4) + pickle.dumps([1], 4))
    with pytest.raises(CheckpointError, match=f"{len(pickle.dumps([1], 4))} bytes follow its pickle"):
        read_raw(tmp_path / "a.pkl")


def test_a_pickle_beyond_the_bound_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bare_pickle, "MAX_BARE_BYTES", 10)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(VALUE, 4))
    with pytest.raises(CheckpointError, match="more than 10 are not read"):
        read_raw(tmp_path / "a.pkl")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_nothing_is_imported_or_run(tmp_path: Path, protocol: int) -> None:
    class Run:
        def __reduce__(self) -> tuple[Any, ...]:
            return exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",)

    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"x": Run()}, protocol))
    (tmp_path / "b.pkl").write_bytes(b"\x80\x02csite_that_is_not_there\nThing\n)R.")
    assert any(one.danger == "runs-code" for one in read_raw(tmp_path / "a.pkl").globals)
    assert read_raw(tmp_path / "b.pkl").root.class_name == "site_that_is_not_there.Thing"
    assert not (tmp_path / "ran").exists()
    assert "site_that_is_not_there" not in sys.modules
