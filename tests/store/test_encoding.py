"""Whatever a state_dict may hold comes back with its types and bits, or is refused before anything is written."""

import math
import struct
import warnings
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from ckptcheck.errors import StoreError
from ckptcheck.store.load import load
from ckptcheck.store.read import read_state
from ckptcheck.store.save import save
from tests.store.runs import raw


class Holder:
    """An object whose state is whatever the test puts in it."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def round_trip(value: Any, folder: Path) -> Any:
    model, there = nn.Identity(), Holder()
    save(folder / "s", model=model, extra={"held": Holder(value)})
    load(folder / "s", model=model, extra={"held": there})
    read_state(folder / "s")
    return there.value


def bits(value: Any) -> Any:
    """Types and bits of a value, computed without the store."""
    if isinstance(value, torch.Tensor):
        return type(value), value.requires_grad, raw(value)
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.flags.f_contiguous, value.tobytes()
    if isinstance(value, np.generic):
        return type(value), value.dtype, value.tobytes()
    if type(value) is float:
        return struct.pack("<d", value)
    if type(value) is complex:
        return struct.pack("<dd", value.real, value.imag)
    if isinstance(value, dict):
        factory = getattr(value, "default_factory", None)
        return type(value), factory, [(bits(key), bits(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | deque) and not isinstance(value, torch.Size):
        return type(value), getattr(value, "maxlen", None), [bits(item) for item in value]
    return type(value), value


def default_dict() -> defaultdict[str, list[int]]:
    return defaultdict(list, {"a": [1]})


VALUES = {
    "plain": [None, True, False, 0, -3, 1.5, "text", ""],
    "integers as large as they come": [2**53, -(2**53), 2**53 - 1, 2**200, -(10**5000)],
    "floats by their bits": [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1 / 3, 1e308],
    "a NaN with a payload": struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0],
    "complex numbers": [1 + 2j, complex(-0.0, math.nan), complex(math.inf, -0.0)],
    "text that is no UTF-8 and control characters": ["\ud800", "\x00\x1b[31m", '"\\', "é漢"],
    "tuples in lists in tuples": ((), (1, [2, (3,)]), [[]]),
    "sets": [{1, 2, 3}, frozenset({"a", (1, 2)}), set()],
    "dicts with other keys, in their order": {2: "a", "b": 1, (1, 2): None, 1.5: 0, True: 1, None: 2, b"k": 3},
    "a key that looks like a tag": {"$": "tuple", "items": [1]},
    "an ordered dict": OrderedDict([("z", 1), ("a", 2)]),
    "a default dict": default_dict(),
    "a default dict without factory": defaultdict(None, {1: 2}),
    "a counter": Counter({3: 2, "a": -1}),
    "a bounded queue": deque([1, 2, (3,)], maxlen=5),
    "bytes, short and long": [b"", b"\x00\xff", bytes(range(256)) * 40, bytearray(b"ab"), bytearray(1000)],
    "ranges": [range(5), range(10, 0, -2)],
    "long lists": [list(range(5000)), [True] * 3000, [0.5] * 3000, [2**60] * 50, ["a"] * 100],
    "torch's small types": [torch.Size([2, 3]), torch.float8_e5m2, torch.bfloat16, torch.device("cuda", 1)],
    "numpy scalars": [np.float32(-0.0), np.int64(7), np.bool_(True), np.float64("nan"), np.str_("a"), np.complex64(1j)],
    "numpy arrays": [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3.5),
        np.zeros((0, 4), np.int8),
        np.array([1, 2], ">i4"),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8", (2,))]),
        np.array(["ab", "c"]),
    ],
    "tensors of odd shapes": [torch.tensor(3.5), torch.empty(0, 4), torch.ones(1, 1), torch.arange(6).reshape(2, 3)],
    "tensors that are not row-major": [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last),
    ],
    "NaN bits in tensors": torch.tensor([0x7FC00001, -1, 0x7F800001], dtype=torch.int32).view(torch.float32),
    "a parameter and a leaf": [nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)],
    "a conjugate view": torch.tensor([1 + 2j, 3 - 1j]).conj().resolve_conj(),
    "a sparse tensor": torch.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), check_invariants=True).coalesce(),
    "a sparse tensor with duplicates": torch.sparse_coo_tensor(
        [[0, 0], [2, 2]], [1.0, 2.0], (2, 3), check_invariants=True
    ),
    "an empty sparse tensor": torch.sparse_coo_tensor(size=(2, 3), check_invariants=True),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_comes_back_with_its_types_and_bits(value: Any, tmp_path: Path) -> None:
    assert bits(round_trip(value, tmp_path)) == bits(value)


CARRIED = ("torch.complex64", "torch.complex128", "torch.float8_e4m3fn", "torch.uint64", "torch.bool", "torch.bfloat16")
DTYPES = [one for one in vars(torch).values() if isinstance(one, torch.dtype) and one.itemsize and "q" not in str(one)]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", sorted({str(one) for one in DTYPES}))
def test_a_tensor_of_every_dtype_comes_back_or_is_refused_by_name(dtype: str, tmp_path: Path) -> None:
    kind = getattr(torch, dtype.removeprefix("torch."))
    value = torch.arange(32, dtype=torch.uint8).remainder(2).view(kind)
    try:
        there = round_trip(value, tmp_path)
    except StoreError as trouble:
        refused = str(trouble)
    else:
        assert bits(there) == bits(value)
        return
    assert dtype in refused
    assert dtype not in CARRIED


def test_a_csr_tensor_comes_back(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the layout a beta, once a process
        value = torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse_csr()
    there = round_trip(value, tmp_path)
    assert there.layout == torch.sparse_csr
    assert raw(there.values()) == raw(value.values())
    assert raw(there.col_indices()) == raw(value.col_indices())


def test_a_tensor_that_is_held_twice_is_stored_once_and_shared_again(tmp_path: Path) -> None:
    one = torch.randn(100)
    there = round_trip({"a": one, "b": [one.view(100)], "c": one.clone()}, tmp_path)
    assert there["a"].data_ptr() == there["b"][0].data_ptr() != there["c"].data_ptr()
    stored = [entry for entry in read_state(tmp_path / "s").sections["extra"].values() if entry.ref is not None]
    assert len({entry.ref.begin_bytes for entry in stored}) == 2


def test_what_was_loaded_is_writable_and_not_the_file(tmp_path: Path) -> None:
    there = round_trip([torch.zeros(3), np.zeros(3)], tmp_path)
    there[0] += 1
    there[1] += 1
    model, again = nn.Identity(), Holder()
    load(tmp_path / "s", model=model, extra={"held": again})
    assert again.value[0].tolist() == again.value[1].tolist() == [0, 0, 0]


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=400), st.complex_numbers()
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner),
        st.dictionaries(st.sampled_from(["$", "items", "a"]), inner),
    ),
    max_leaves=20,
)


@given(TREES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_tree_of_plain_values_comes_back(tmp_path: Path, tree: Any) -> None:
    assert bits(round_trip(tree, tmp_path)) == bits(tree)


Pair = namedtuple("Pair", "a b")


class Text(str):
    """A subclass that JSON would silently flatten."""

    __slots__ = ()


def holding_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an arbitrary object": (Holder, "Holder"),
    "a function": (lambda: math.sqrt, "builtin_function_or_method"),
    "a function of the user": (lambda: holding_itself, "function"),
    "a named tuple": (lambda: Pair(1, 2), "Pair"),
    "a subclass of str": (lambda: Text("a"), "Text"),
    "a list that holds itself": (holding_itself, "holding itself"),
    "an array of objects": (lambda: np.array([None]), "Python objects"),
    "a masked array": (lambda: np.ma.masked_array([1], [0]), "MaskedArray"),
    "a random generator": (np.random.default_rng, "Generator"),
    "a default dict with a lambda": (partial(defaultdict, lambda: 1), "factory"),
    "a tensor without content": (lambda: torch.empty(2, device="meta"), "meta"),
    "a set of objects": (lambda: {Pair(1, 2)}, "Pair"),
}


@pytest.mark.parametrize(("make", "told"), REFUSED.values(), ids=REFUSED)
def test_what_needs_pickle_is_refused_with_its_place_and_nothing_is_written(
    make: Callable[[], Any], told: str, tmp_path: Path
) -> None:
    holder = Holder({"deep": [1, make()]})
    with pytest.raises(StoreError, match=told) as caught:
        save(tmp_path / "s", model=nn.Identity(), extra={"held": holder})
    assert str(caught.value).startswith("extra/held.value.deep[1]")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()
