"""One sample of a tensor, a gradient, or a plain value."""

import hashlib
import math

import numpy as np
import pytest
import torch
from torch import nn

from ckptcheck.state.digest import LINEAR_128, XXH3_128
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import NONE, NONZERO, ZERO, Sample
from ckptcheck.trace.measuring import Measurer, plain
from tests.state.tensors import DTYPES, SHAPES, made

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:Sparse ", "ignore:torch.quantize_per")
FLOATING = [name for name in DTYPES if "float" in name and name != "float8_e8m0fnu"]
measurer = Measurer(XXH3_128)


@pytest.mark.parametrize("algorithm", [XXH3_128, LINEAR_128])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_of_any_dtype_and_shape_has_a_sample(dtype, shape, algorithm):
    tensor, _ = made(dtype, shape)
    sample = Measurer(algorithm).tensor(tensor)
    assert sample.spec == TensorSpec(dtype, shape) and len(sample.digest) == 16
    assert (sample.value is None) == (tensor.numel() != 1)
    assert (sample.norm is None) == (tensor.numel() == 1 or not (tensor.is_floating_point() or tensor.is_complex()))


@pytest.mark.parametrize("dtype", [*FLOATING, "complex64", "complex128"])
def test_the_norm_is_that_of_numpy_in_double(dtype):
    tensor = torch.tensor([3.0, -1.5, 0.25, 4.0]).to(getattr(torch, dtype))
    assert measurer.tensor(tensor).norm == pytest.approx(np.linalg.norm([3, -1.5, 0.25, 4]), rel=1e-6)


def test_the_norm_of_many_narrow_numbers_does_not_overflow():
    assert measurer.tensor(torch.full((100,), 60000.0, dtype=torch.float16)).norm == pytest.approx(600000, rel=1e-3)


def test_one_element_tensors_carry_their_value():
    values = {
        torch.tensor(3): 3, torch.tensor([[-2.5]]): -2.5, torch.tensor(True): True, torch.tensor(1 + 2j): "(1+2j)",
        torch.tensor(2**64 - 1, dtype=torch.uint64): str(2**64 - 1), torch.tensor(7, dtype=torch.uint64): 7,
        torch.tensor(0.5, dtype=torch.float8_e4m3fn): 0.5,
    }  # fmt: skip
    for tensor, value in values.items():
        seen = measurer.tensor(tensor).value
        assert seen == value and type(seen) is type(value)


def test_content_is_the_same_only_where_dtype_and_shape_are():
    one = measurer.tensor(torch.zeros(2, 3))
    assert one.same_as(measurer.tensor(torch.zeros(2, 3)))
    assert not one.same_as(measurer.tensor(torch.zeros(3, 2)))
    assert not one.same_as(measurer.tensor(torch.zeros(2, 3, dtype=torch.int32)))
    assert not one.same_as(measurer.tensor(torch.ones(2, 3)))
    assert not one.same_as(one._replace(presence=NONE))


def test_a_parameter_that_is_not_yet_shaped_and_a_tensor_without_memory_have_samples():
    lazy = measurer.tensor(nn.LazyLinear(3).weight)
    assert lazy.spec is None and lazy.value == "<uninitialised>"
    meta = measurer.tensor(torch.empty(4, device="meta"))
    assert meta.spec == TensorSpec("float32", (4,)) and meta.digest == bytes(16)
    assert measurer.gradient(torch.empty(4, device="meta")).presence == ZERO


def test_specs_of_shapes_that_never_repeat_do_not_pile_up():
    one = Measurer(XXH3_128)
    sizes = {one.tensor(torch.empty(0, size)).spec.shape for size in range(10_500)}
    assert len(sizes) == 10_500 and len(one._specs) <= 10_001


# Gradients: none, zero and nonzero are three things


def test_no_gradient_is_none():
    assert measurer.gradient(None) == Sample(None, None, NONE)


@pytest.mark.parametrize("dtype", [*FLOATING, "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (0,)], ids=str)
def test_zero_and_minus_zero_gradients_are_zero(dtype, shape):
    zeros = torch.zeros(shape).to(getattr(torch, dtype))
    assert measurer.gradient(zeros).presence == ZERO
    assert measurer.gradient(torch.full(shape, -0.0).to(getattr(torch, dtype))).presence == ZERO


@pytest.mark.parametrize("count", [1, 2, 5000])
@pytest.mark.parametrize("dtype", [name for name in DTYPES if "float" in name and name != "float8_e8m0fnu"])
def test_the_tiniest_number_of_a_dtype_is_a_nonzero_gradient(dtype, count):
    size = getattr(torch, dtype).itemsize
    raw = bytes(size * (count - 1)) + (1).to_bytes(size, "little")
    gradient = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(getattr(torch, dtype))
    assert gradient[-1].double() > 0 and gradient.double().count_nonzero() == 1
    sample = measurer.gradient(gradient)
    assert sample.presence == NONZERO
    if count == 5000 and dtype in ("float32", "float64", "bfloat16"):
        assert sample.norm == 0  # which is why the norm does not decide


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e-45, -1.0, 1j, 1e-45j])
@pytest.mark.parametrize("count", [1, 3])
def test_a_gradient_with_anything_in_it_is_nonzero(number, count):
    gradient = torch.zeros(count, dtype=torch.complex64 if isinstance(number, complex) else torch.float32)
    gradient[-1] = number
    assert measurer.gradient(gradient).presence == NONZERO


@pytest.mark.parametrize(
    ("values", "presence"), [([], ZERO), ([0.0, 0.0], ZERO), ([0.0, 1e-45], NONZERO), ([3.0, 4.0], NONZERO)]
)
def test_sparse_gradients_are_told_apart_by_their_values(values, presence):
    places = torch.arange(len(values))[None] + 4
    gradient = torch.sparse_coo_tensor(places, torch.tensor(values), (9,))
    sample = measurer.gradient(gradient)
    assert sample.presence == presence
    assert sample.norm == pytest.approx(math.hypot(*values, 0))
    assert sample.spec == TensorSpec("float32", (9,))


def test_a_sparse_gradient_that_cancels_is_zero():
    gradient = torch.sparse_coo_tensor([[1, 1]], [2.0, -2.0], (3,))
    assert measurer.gradient(gradient).presence == ZERO


# Plain values


@pytest.mark.parametrize(("value", "text", "kept"), [
    (1, "1", 1), (True, "True", True), (-0.0, "-0.0", -0.0), (0.1, "0.1", 0.1), (None, "None", "None"),
    ("adam", "'adam'", "adam"), ((0.9, 0.999), "(0.9, 0.999)", "(0.9, 0.999)"), (2**53, str(2**53), str(2**53)),
    (2**53 - 1, str(2**53 - 1), 2**53 - 1), (math.inf, "inf", "inf"),
    ({"b": 1, "a": 2}, "{'a': 2, 'b': 1}", "{'a': 2, 'b': 1}"),
], ids=repr)  # fmt: skip
def test_a_plain_value_is_digested_by_its_text_and_kept_as_number_or_text(value, text, kept):
    sample = plain(value)
    assert sample.digest == hashlib.blake2b(text.encode(), digest_size=16).digest()
    assert sample.value == kept and type(sample.value) is type(kept)
    assert sample.spec is None and sample.norm is None and sample.presence is None


def test_a_text_with_a_lone_surrogate_has_a_digest():
    assert plain("\ud800").digest != plain("\ud801").digest


def test_measuring_draws_no_random_number_and_changes_nothing():
    before = torch.get_rng_state()
    tensor = torch.arange(6.0).reshape(2, 3).t().requires_grad_()
    version = tensor._version
    measurer.gradient(tensor), Measurer(LINEAR_128).tensor(tensor)
    assert torch.equal(torch.get_rng_state(), before)
    assert tensor._version == version and tensor.grad is None
