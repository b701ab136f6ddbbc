"""Many samples by one transfer, or by few calls, are those that are made one by one."""

import math
import struct

import pytest
import torch
from torch.nn.parameter import is_lazy

from ckptcheck.state.digest import LINEAR_128, XXH3_128
from ckptcheck.state.tensor_bytes import linear_digest
from ckptcheck.trace.items import NONZERO, ZERO
from ckptcheck.trace.measuring import Measurer
from ckptcheck.trace.staging import Transfer
from tests.state.tensors import DTYPES, SHAPES, made

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:Sparse ", "ignore:torch.quantize_per")


def special() -> list[torch.Tensor]:
    wide = torch.randn(300, 70)
    return [
        torch.randn(70_000), torch.randn(200_001, dtype=torch.float64), wide.t(), wide[:, ::3],
        torch.eye(9).to_sparse(),
        torch.randn(5, dtype=torch.complex64).conj(), torch.randn(5, dtype=torch.complex64).conj().imag,
        torch.quantize_per_tensor(torch.randn(8), 0.1, 3, torch.qint8), torch.tensor(float("nan")), torch.tensor(-0.0),
        torch.tensor([float("inf"), 1.0]), torch.nn.Parameter(torch.randn(4, 4)), torch.empty(3, device="meta"),
        torch.nn.parameter.UninitializedParameter(), torch.randn(1, 1), torch.tensor(2**63 - 1),
    ]  # fmt: skip


@pytest.mark.parametrize("algorithm", [XXH3_128, LINEAR_128])
def test_samples_of_many_tensors_are_those_of_each(algorithm):
    measurer = Measurer(algorithm)
    tensors = [made(dtype, shape)[0] for dtype in DTYPES for shape in SHAPES] + special()
    for tensor, found in zip(tensors, measurer.tensors(tensors), strict=True):
        assert repr(found) == repr(measurer.tensor(tensor))  # NaN is unlike itself
    gradients = [one for one in tensors if one.dtype.is_floating_point and not is_lazy(one)]
    for tensor, found in zip(gradients, measurer.tensors(gradients, gradients=True), strict=True):
        assert repr(found) == repr(measurer.gradient(tensor))


GRADIENTS = {
    "zeros": (torch.zeros(1000), ZERO), "minus zeros": (-torch.zeros(1000), ZERO), "one zero": (torch.zeros(1), ZERO),
    "so small that their squares vanish": (torch.full((1000,), 1e-30), NONZERO), "empty": (torch.zeros(0), ZERO),
    "one number at the end": (torch.cat([torch.zeros(999), torch.ones(1)]), NONZERO),
    "not a number": (torch.full((3,), float("nan")), NONZERO), "one number": (torch.ones(()), NONZERO),
    "sparse zeros": (torch.zeros(5).to_sparse(), ZERO), "half": (torch.full((9,), 6e-8).half(), NONZERO),
}  # fmt: skip


@pytest.mark.parametrize(("gradient", "presence"), GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("algorithm", [XXH3_128, LINEAR_128])
def test_a_gradient_is_zero_only_where_every_number_of_it_is(algorithm, gradient, presence):
    assert Measurer(algorithm).tensors([gradient], gradients=True)[0].presence == presence


def test_a_transfer_brings_what_was_there_when_a_sample_was_begun():
    measurer = Measurer(LINEAR_128)
    tensors = [torch.arange(70_000, dtype=torch.float32), torch.tensor([3.0, 4.0]), torch.tensor(7)]
    digests = [linear_digest(one) for one in tensors]
    makings = [measurer.make(one) for one in tensors]
    for one in tensors:
        one.zero_()
    transfer = Transfer([making for making in makings if making is not None])
    samples = transfer.samples()
    assert [sample.digest for sample in samples] == digests
    assert [samples[1].norm, samples[2].value] == [5.0, 7]
    assert samples[0].norm == pytest.approx(math.sqrt(sum(n * n for n in range(70_000))), rel=1e-6)


def test_counters_of_equal_value_and_unlike_bits_have_digests_of_their_own():
    zeros = [torch.tensor(0.0), torch.tensor(-0.0), torch.tensor(0.0)]
    one, other, third = Measurer(XXH3_128).tensors(zeros)
    assert one.digest == third.digest != other.digest and struct.pack("<f", other.value) == struct.pack("<f", -0.0)


def test_what_is_no_matter_of_a_device_is_not_begun_there():
    assert Measurer(LINEAR_128).make(torch.empty(3, device="meta")) is None
    assert Measurer(LINEAR_128).make(torch.nn.parameter.UninitializedBuffer()) is None
    assert Measurer(XXH3_128).make(torch.zeros(3)) is None
