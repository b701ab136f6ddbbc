"""How many bytes a pickle unfolds to, and what is refused for it."""

import pickle

import numpy as np
import pytest
import torch

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.pickle import pickles
from ckptcheck.readers.pickle.finite import finite
from ckptcheck.readers.pickle.pickles import read_pickle
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Foreign, tensors_in

TEXT = "t" * 1000


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        (TEXT, 1000),
        ([TEXT, b"abc", 1, None, 0.5], 1003),
        ([TEXT] * 7, 7000),
        ([[TEXT]] * 7, 7000),
        ({"key": TEXT}, 1003),
        ({"key": [TEXT, TEXT]}, 3 + 2000 + 3 * 3),
        ({"ab": {"c": 1}}, 2 + 1 + 2 * 2),
        ([1 << 8000] * 3, 3 * 8001 // 8),
        ([1 << 61, -5, True], 0),
        ({("ab", 1): 0}, 2),
        ([Foreign("m.Name", state=TEXT)] * 2, 2 * 1006),
    ],
)  # fmt: skip
def test_texts_and_paths_count_as_often_as_they_are_reached(value, nbytes):
    found = finite(value, "here")
    assert (found.text_bytes, found.tensor_bytes) == (nbytes, 0)


def test_an_array_in_a_pickle_counts_as_text_and_a_tensor_by_its_logical_bytes(tmp_path):
    array = np.arange(500, dtype="i8")
    found = read_pickle(pickle.dumps([array] * 3, protocol=2), where="here")
    assert found.tensor_bytes == 0
    torch.save({"w": torch.ones(2).expand(300, 2), "v": [torch.zeros(5)]}, tmp_path / "a.pt")
    assert finite(read_raw(tmp_path / "a.pt").root, "here").tensor_bytes == 300 * 2 * 4 + 5 * 4


@pytest.mark.parametrize("value", [[TEXT], {"a": [TEXT]}, np.zeros(1000, "u1")])
def test_what_is_reached_too_often_is_refused_and_nothing_less(value, monkeypatch):
    monkeypatch.setattr(pickles, "TEXT_BYTES", 30_000)
    monkeypatch.setattr(pickles, "TEXT_FACTOR", 1)
    data = pickle.dumps([value] * 100, protocol=2)
    with pytest.raises(CheckpointError, match=r"here: a pickle of \d+ bytes unfolds to 10\d+ bytes"):
        read_pickle(data, where="here")
    assert len(read_pickle(pickle.dumps([value] * 30, protocol=2), where="here").value) == 30


def test_expanded_tensors_of_ordinary_size_are_read(tmp_path):
    wanted = torch.arange(3.0).view(3, 1).expand(3, 100_000)
    torch.save({"mask": wanted, "same": [wanted] * 20}, tmp_path / "a.pt")
    tensors = list(tensors_in(read_raw(tmp_path / "a.pt").root))
    assert len(tensors) == 21
    assert all(bytes(one.fetch()) == wanted.contiguous().numpy().tobytes() for one in tensors)


def test_tensors_far_larger_than_their_storages_are_refused_in_every_format(tmp_path):
    huge = {"a": torch.ones(1).expand(1 << 29)}
    for legacy in (False, True):
        torch.save(huge, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
        with pytest.raises(CheckpointError, match=r"tensors have 2147483648 bytes together and look into 4 bytes"):
            read_raw(tmp_path / "a.pt")
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(huge, protocol=2))
    with pytest.raises(CheckpointError, match="tensors have 2147483648 bytes together"):
        read_raw(tmp_path / "a.pkl")


def test_a_large_storage_may_be_looked_at_often(tmp_path):
    flat = torch.zeros(4 << 20)
    torch.save([flat.view(1 << shift, -1) for shift in range(20)] * 3, tmp_path / "a.pt")
    assert len(list(tensors_in(read_raw(tmp_path / "a.pt").root))) == 60
