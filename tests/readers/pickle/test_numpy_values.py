"""Arrays of numpy in a pickle have numpy's own bytes."""

from pathlib import Path
from typing import Any

import numpy as np

from ckptcheck.state.raw import Danger, Foreign
from tests.readers.torch_files import saved


def test_arrays_of_numpy_lie_in_the_pickle(tmp_path: Path) -> None:
    base = np.arange(24).reshape(2, 3, 4)
    dtypes = ["<f8", ">f4", "<i2", ">u8", "?", "<c8", ">c16", "<f2", "u1"]
    values: dict[str, Any] = {code: base.astype(code) for code in dtypes}
    values |= {
        "turned": np.asfortranarray(base),
        "scalar": np.float32(0.1),
        "none": np.empty((0, 3)),
        "0d": np.array(7),
    }
    for protocol in range(2, 6):
        tree = saved(tmp_path, values, pickle_protocol=protocol)
        for name, live in values.items():
            raw = tree.root[name]
            assert raw.spec.shape == live.shape
            assert bytes(raw.fetch()) == np.asarray(live).astype(live.dtype.newbyteorder("<")).tobytes(), name
        assert {one.danger for one in tree.globals} == {Danger.PLAIN}


def test_arrays_that_are_no_tensors_stay_objects(tmp_path: Path) -> None:
    shared = np.arange(3)
    values = [np.array(["a", "bc"]), np.array([1, None], dtype=object), np.array("2024-01-01", "M8[D]"),
              np.zeros(2, [("x", "f4"), ("y", "i2")]), shared, shared, (shared,)]  # fmt: skip
    for protocol in (2, 5):
        tree = saved(tmp_path, values, pickle_protocol=protocol)
        assert all(isinstance(one, Foreign) for one in tree.root[:4])
        assert [bytes(one.fetch()) for one in (*tree.root[4:6], tree.root[6][0])] == [shared.tobytes()] * 3
