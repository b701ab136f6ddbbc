"""The bytes and the XXH3 digest of live tensors, judged by bytes that were there before the tensor."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from xxhash import xxh3_128_digest

from ckptcheck.state import tensor_bytes
from ckptcheck.state.digest import LINEAR_128, XXH3_128, Digest
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec
from ckptcheck.state.tensor_bytes import (
    components,
    default_algorithm,
    digester,
    is_dense,
    linear_digest,
    row_major_bytes,
    spec_of,
)
from tests.state import linear
from tests.state.tensors import DTYPES, SHAPES, made

pytestmark = pytest.mark.filterwarnings(
    "ignore:ComplexHalf", "ignore:Sparse ", "ignore:torch.quantize_per", "ignore:The PyTorch API of nested tensors"
)
xxh3 = digester(XXH3_128)

VIEWS = {
    "transposed": lambda x: x.transpose(0, 2),
    "every second": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(4, *x.shape[1:]),
    "offset": lambda x: x[1:],
    "one column": lambda x: x[:, 1, 2],
    "flipped": lambda x: x.flip(0),
    "channels last": lambda x: x[None].contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_digest_is_over_the_bytes_that_the_tensor_was_made_of(dtype, shape):
    tensor, raw = made(dtype, shape)
    assert bytes(row_major_bytes(tensor)) == raw
    assert xxh3(tensor) == xxh3_128_digest(raw)
    assert linear_digest(tensor) == linear.digest((raw, tensor.element_size()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_its_name_and_size(dtype):
    tensor, raw = made(dtype, (3, 4))
    assert spec_of(tensor) == TensorSpec(dtype, (3, 4))
    assert spec_of(tensor).nbytes == len(raw)
    assert set(DTYPES) < set(ITEMSIZE_BYTES)
    assert str(spec_of(tensor)) == f"{dtype}[3, 4]"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16", "complex64", "bool", "float8_e5m2"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_the_bytes_of_its_elements_in_row_major_order(view, dtype):
    tensor, raw = made(dtype, (3, 4, 5))
    numbers = np.frombuffer(raw, np.dtype((np.void, tensor.element_size()))).reshape(3, 4, 5)
    places = VIEWS[view](torch.arange(60).reshape(3, 4, 5))
    expected = numbers.reshape(-1)[places.numpy().reshape(-1)].tobytes()
    seen = VIEWS[view](tensor)
    assert bytes(row_major_bytes(seen)) == expected
    assert xxh3(seen) == xxh3_128_digest(expected)
    assert linear_digest(seen) == linear.digest((expected, tensor.element_size()))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_conjugate_and_negative_views_are_taken_as_they_read(dtype):
    numbers = np.array([[1 + 2j, -3 - 0j], [0 + 1j, 5 - 7j]]).astype(torch.zeros((), dtype=dtype).numpy().dtype)
    tensor = torch.from_numpy(numbers)
    conjugate, imaginary = tensor.conj(), tensor.conj().imag
    assert conjugate.is_conj() and imaginary.is_neg()
    assert bytes(row_major_bytes(conjugate)) == np.conj(numbers).tobytes()
    assert bytes(row_major_bytes(imaginary)) == (-numbers.imag).tobytes()
    assert linear_digest(imaginary) == linear_digest(torch.from_numpy(-numbers.imag.copy()))


def test_a_negative_view_that_is_contiguous_is_taken_as_it_reads():
    numbers = np.array([[1.5, -2.0], [0.0, 3.0]], np.float32)
    negative = torch._neg_view(torch.from_numpy(numbers))
    assert negative.is_neg() and negative.is_contiguous()
    assert bytes(row_major_bytes(negative)) == (-numbers).tobytes()
    assert linear_digest(negative) == linear.digest(((-numbers).tobytes(), 4))


def test_a_parameter_and_a_tensor_in_a_graph_are_taken_without_their_graph():
    parameter = nn.Parameter(torch.tensor([1.5, -2.0]))
    assert xxh3(parameter) == xxh3_128_digest(np.array([1.5, -2.0], np.float32).tobytes())
    assert xxh3(parameter * 2) == xxh3_128_digest(np.array([3, -4], np.float32).tobytes())
    assert all(not part.requires_grad for part in components(parameter * 2))


def test_a_dense_tensor_is_not_copied():
    tensor = torch.arange(6.0)
    view = row_major_bytes(tensor)
    tensor[0] = 7
    assert bytes(view[:4]) == np.float32(7).tobytes()


def test_the_bytes_outlive_the_tensor_that_they_were_copied_from():
    view = row_major_bytes(torch.arange(5000.0).reshape(50, 100).t())
    torch.full((50, 100), -1.0)  # would take the freed memory
    assert bytes(view) == np.arange(5000, dtype=np.float32).reshape(50, 100).T.tobytes()


def test_sparse_tensors_are_their_indices_and_values():
    dense = torch.tensor([[0, 2, 0], [0, 0, 0], [-1, 0, 4]], dtype=torch.float32)
    values = np.array([2, -1, 4], np.float32).tobytes()
    coo = np.array([[0, 2, 2], [1, 0, 2]]).tobytes()
    assert bytes(row_major_bytes(dense.to_sparse())) == coo + values
    assert linear_digest(dense.to_sparse()) == linear.digest((coo, 8), (values, 4))
    csr = np.array([0, 1, 1, 3]).tobytes() + np.array([1, 0, 2]).tobytes()
    assert xxh3(dense.to_sparse_csr()) == xxh3_128_digest(csr + values)
    csc = np.array([0, 1, 2, 3]).tobytes() + np.array([2, 0, 2]).tobytes()
    by_columns = np.array([-1, 2, 4], np.float32).tobytes()
    assert xxh3(dense.to_sparse_csc()) == xxh3_128_digest(csc + by_columns)
    assert not is_dense(dense.to_sparse()) and is_dense(dense)


def test_a_sparse_tensor_counts_coalesced_and_is_not_changed():
    twice = torch.sparse_coo_tensor([[2, 0, 2]], [1.0, 5.0, 2.0], (4,))
    once = torch.sparse_coo_tensor([[0, 2]], [5.0, 3.0], (4,))
    assert xxh3(twice) == xxh3(once)
    assert not twice.is_coalesced()
    moved = torch.sparse_coo_tensor([[0, 3]], [5.0, 3.0], (4,))
    assert xxh3(moved) != xxh3(once)


def test_blocks_of_a_sparse_tensor_count():
    dense = torch.zeros(4, 4)
    dense[:2, 2:] = torch.tensor([[1.0, 2], [3, 4]])
    values = np.array([1, 2, 3, 4], np.float32).tobytes()
    rows = np.array([0, 1, 1]).tobytes() + np.array([1]).tobytes()
    assert xxh3(dense.to_sparse_bsr((2, 2))) == xxh3_128_digest(rows + values)
    columns = np.array([0, 0, 1]).tobytes() + np.array([0]).tobytes()
    assert xxh3(dense.to_sparse_bsc((2, 2))) == xxh3_128_digest(columns + values)


@pytest.mark.parametrize("algorithm", [XXH3_128, LINEAR_128])
def test_quantised_tensors_differ_where_their_integers_or_their_scale_or_zero_differ(algorithm):
    numbers = torch.tensor([1.0, 2, -1])
    one = torch.quantize_per_tensor(numbers, 0.5, 3, torch.qint8)
    digest = digester(algorithm)
    assert digest(one) == digest(torch.quantize_per_tensor(numbers, 0.5, 3, torch.qint8))
    stretched = torch.quantize_per_tensor(numbers * 2, 1.0, 3, torch.qint8)
    assert torch.equal(one.int_repr(), stretched.int_repr())
    assert digest(one) != digest(stretched)
    shifted = torch.quantize_per_tensor(numbers - 0.5, 0.5, 4, torch.qint8)
    assert torch.equal(one.int_repr(), shifted.int_repr())
    assert digest(one) != digest(shifted)


def test_tensors_quantised_by_channel_differ_where_scales_or_axis_differ():
    numbers, zeros = torch.ones(2, 2), torch.zeros(2, dtype=torch.int64)
    made_of = {(1.0, 1.0, 0), (1.0, 0.5, 0), (1.0, 1.0, 1)}
    tensors = [
        torch.quantize_per_channel(
            numbers * torch.tensor([[one], [two]]), torch.tensor([one, two]), zeros, axis, torch.qint8
        )
        for one, two, axis in sorted(made_of)
    ]
    assert all(torch.equal(tensors[0].int_repr(), one.int_repr()) or True for one in tensors)
    assert len({xxh3(one) for one in tensors}) == 3


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_their_values_and_sizes(layout):
    def nested(*sizes: int) -> torch.Tensor:
        return torch.nested.nested_tensor([torch.ones(size, 2) for size in sizes], layout=layout)

    assert spec_of(nested(2, 3)).numel == 10
    assert xxh3(nested(2, 3)) == xxh3(nested(2, 3))
    assert xxh3(nested(2, 3)) != xxh3(nested(3, 2))


def test_a_wrapper_subclass_is_the_tensors_that_it_wraps():
    from torch.testing._internal.two_tensor import TwoTensor

    one, two = torch.arange(3.0), torch.arange(3.0) + 5
    wrapped = TwoTensor(one, two)
    assert xxh3(wrapped) == xxh3_128_digest(one.numpy().tobytes() + two.numpy().tobytes())
    assert not is_dense(wrapped)


def test_minus_zero_is_not_zero_and_one_nan_is_not_another():
    for digest in (xxh3, linear_digest):
        assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))
        nans = torch.tensor([0x7FC00000, 0x7FC00001, -0x400000], dtype=torch.int32).view(torch.float32)
        assert len({digest(nan) for nan in nans}) == 3


def test_a_digest_names_its_algorithm():
    assert str(Digest(LINEAR_128, b"\x01" * 16)) == "linear_128:" + "01" * 16
    assert Digest(LINEAR_128, b"1" * 16) != Digest(XXH3_128, b"1" * 16)
    with pytest.raises(ValueError, match="unknown digest algorithm 'md5'"):
        digester(hashlib.md5().name)


def test_xxh3_is_the_default_only_where_everything_is_on_the_cpu():
    assert default_algorithm({"cpu"}) == XXH3_128
    assert default_algorithm({"cpu", "cuda"}) == LINEAR_128
    assert default_algorithm({"cuda"}) == LINEAR_128


def test_the_default_needs_xxhash(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert default_algorithm({"cpu"}) == LINEAR_128


def test_the_table_of_coefficients_does_not_depend_on_torchs_defaults(monkeypatch):
    expected = linear_digest(torch.arange(9))
    monkeypatch.setattr(tensor_bytes, "_coefficients", {})
    state = torch.get_rng_state()
    with torch.device("meta"):
        tensor_bytes._table(torch.device("cpu"))
    assert linear_digest(torch.arange(9)) == expected
    assert torch.equal(torch.get_rng_state(), state)


def test_the_nouns_of_the_state_need_neither_torch_nor_numpy():
    names = "digest", "stages", "tensor", "training_state", "tree"
    imports = "; ".join(f"import ckptcheck.state.{name}" for name in names)
    code = f"import sys; sys.modules.update(torch=None, numpy=None, xxhash=None); {imports}"
    subprocess.run([sys.executable, "-c", code], check=True)
