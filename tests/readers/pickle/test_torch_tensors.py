"""Tensors in every form in which torch pickles them have torch's own bytes, and say what they are."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck.state.raw import Foreign, Named, RawTensor, RawTree, tensors_in
from tests.readers.live_values import bytes_of
from tests.readers.torch_files import saved, value_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # by torch: layouts in beta, typed storages going away

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex128, torch.complex64,
    torch.complex32, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16,
    torch.uint8, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_view_has_torchs_bytes(tmp_path: Path, dtype: torch.dtype) -> None:
    size = torch.empty((), dtype=dtype).element_size()
    content = torch.randint(0, 2 if dtype == torch.bool else 256, (60 * size,), dtype=torch.uint8)
    base = content.view(dtype).reshape(3, 4, 5)
    views = {"base": base, "part": base[1:, 1:3], "turned": base.permute(2, 0, 1), "one": base[2, 3, 4],
             "wide": base[:1].expand(4, 4, 5), "none": base[:0], "column": base[:, :, 1]}  # fmt: skip
    tree = saved(tmp_path, views)
    for name, live in views.items():
        raw = tree.root[name]
        assert (f"torch.{raw.spec.dtype}", raw.spec.shape) == (str(dtype), tuple(live.shape))
        assert raw.stride == (None if live.is_contiguous() else live.stride())
        assert raw.offset == live.storage_offset()
        assert bytes(raw.fetch()) == bytes_of(live), name
    assert len({one.storage for one in tensors_in(tree.root)}) == 1


def test_conjugates_and_negatives_are_read_as_what_they_stand_for(tmp_path: Path) -> None:
    first, second = torch.randn(3, 4, dtype=torch.complex64), torch.randn(5, dtype=torch.complex128)
    values = {"conj": first.conj(), "turned": first.t().conj(), "neg": second.conj().imag}
    tree = saved(tmp_path, values)
    for name, live in values.items():
        raw = tree.root[name]
        content = bytes_of(live)
        assert bytes(raw.fetch()) == content, name
        some = memoryview(bytearray(11))
        raw.read_into(5, some)
        assert bytes(some) == content[5:16]


class Sub(torch.Tensor):
    pass


def test_parameters_buffers_and_subclasses_are_told_apart(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    tagged = torch.nn.Parameter(torch.ones(2))
    tagged.shared = {"among": ["a", "b"]}  # type: ignore[attr-defined]
    values = {"plain": torch.ones(2, requires_grad=True), "parameter": parameter, "tagged": tagged,
              "buffer": torch.nn.Buffer(torch.ones(1)), "sub": torch.ones(2).as_subclass(Sub)}  # fmt: skip
    tree = saved(tmp_path, values)
    found = {name: (one.is_parameter, one.requires_grad, one.class_name) for name, one in tree.root.items()}
    assert found == {
        "plain": (None, True, "torch.Tensor"),
        "parameter": (True, False, "torch.Tensor"),
        "tagged": (True, True, "torch.Tensor"),
        "buffer": (False, False, "torch.Tensor"),
        "sub": (None, False, f"{__name__}.Sub"),
    }
    assert tree.root["tagged"].attributes == {"shared": {"among": ["a", "b"]}}
    assert tree.root["buffer"].attributes is None


def test_ties_are_one_storage_and_one_place(tmp_path: Path) -> None:
    weight = torch.arange(6.0)
    tree = saved(tmp_path, {"first": weight, "tied": weight, "half": weight[:3], "equal": weight.clone()})
    first, tied, half, equal = tree.root.values()
    assert first.place == tied.place
    assert first.storage == half.storage
    assert first.place != half.place
    assert first.storage != equal.storage


def _sparse(tree: RawTree, name: str) -> dict[str, Any]:
    one = tree.root[name]
    assert isinstance(one, Foreign)
    return {"class": one.class_name, "spec": str(one.spec)} | {
        key: part.spec.shape if isinstance(part, RawTensor) else part for key, part in one.state.items()
    }


def test_tensors_of_several_parts_name_their_parts(tmp_path: Path) -> None:
    eye = torch.eye(4)
    values = {
        "coo": eye.to_sparse(), "csr": eye.to_sparse_csr(), "csc": eye.to_sparse_csc(),
        "bsr": eye.to_sparse_bsr((2, 2)), "bsc": eye.to_sparse_bsc((2, 2)),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "qint8": torch.quantize_per_tensor(eye, 0.5, 3, torch.qint8),
        "meta": torch.empty(2, 3, device="meta", dtype=torch.bfloat16),
    }  # fmt: skip
    tree = saved(tmp_path, values)
    spec = "float32[4, 4]"
    assert _sparse(tree, "coo") | {"is_coalesced": 0} == {
        "class": "torch.sparse_coo", "spec": spec, "indices": (2, 4), "values": (4,), "is_coalesced": 0,
    }  # fmt: skip
    for name, first, second, shapes in [
        ("csr", "crow_indices", "col_indices", ((5,), (4,), (4,))),
        ("csc", "ccol_indices", "row_indices", ((5,), (4,), (4,))),
        ("bsr", "crow_indices", "col_indices", ((3,), (2,), (2, 2, 2))),
        ("bsc", "ccol_indices", "row_indices", ((3,), (2,), (2, 2, 2))),
    ]:
        parts = dict(zip((first, second, "values"), shapes, strict=True))
        assert _sparse(tree, name) == {"class": f"torch.sparse_{name}", "spec": spec} | parts
    assert list(tree.root["nested"].state) == ["buffer", "sizes", "strides", "offsets"]
    quantized = tree.root["qint8"]
    assert (str(quantized.spec), quantized.state["scale"], quantized.state["zero_point"]) == ("qint8[4, 4]", 0.5, 3)
    assert bytes(quantized.state["values"].fetch()) == bytes_of(values["qint8"])
    assert (tree.root["meta"].class_name, str(tree.root["meta"].spec)) == ("torch.meta", "bfloat16[2, 3]")


def test_a_jagged_tensor_is_its_parts_without_what_is_computed_from_them() -> None:
    module = b"ctorch.nested._internal.nested_tensor\n"
    parts = b"}(X\x06\x00\x00\x00valuesK\x01X\x07\x00\x00\x00offsetsK\x02X\x0f\x00\x00\x00_metadata_cache}u\x85"
    state = b"}X\x05\x00\x00\x00_sizeK\x03s"
    call = b"ctorch._tensor\n_rebuild_from_type_v2\n(" + module + b"_rebuild_njt\n" + module + b"NestedTensor\n"
    found = value_of(b"\x80\x02" + call + parts + state + b"tR.")
    assert (found.class_name, found.state) == ("torch.nested.jagged", {"values": 1, "offsets": 2})


def test_small_values_of_torch_are_plain_values(tmp_path: Path) -> None:
    tree = saved(
        tmp_path, [torch.float32, torch.Size([2, 3]), torch.device("cuda", 1), torch.strided, torch.device("cpu")]
    )
    assert tree.root == [Named("torch.float32"), (2, 3), "cuda:1", Named("torch.strided"), "cpu"]
    assert isinstance(tree.root[0], Named)


def test_bare_storages_are_tensors_of_one_dimension(tmp_path: Path) -> None:
    live = torch.arange(5.0)
    tree = saved(tmp_path, {"typed": live.storage(), "in": (torch.arange(3).untyped_storage(),)})
    assert str(tree.root["typed"].spec) == "float32[5]"
    assert str(tree.root["in"][0].spec) == "uint8[24]"
    assert bytes(tree.root["typed"].fetch()) == bytes_of(live)
