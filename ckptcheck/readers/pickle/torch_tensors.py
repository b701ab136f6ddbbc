"""Every form in which torch pickles a tensor, as a `RawTensor`, or a `Foreign` of several parts.

The forms: torch/_utils.py, torch/_tensor.py (`_reduce_ex_internal`), torch/nn/parameter.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.pickle.pickle_machine import Machine, Pending
from ckptcheck.readers.source import Source
from ckptcheck.readers.tensor_bytes import COMPONENT_BYTES, ByteRun, Contiguous, Gathered, LateSource, is_row_major
from ckptcheck.state.raw import Named, Raw, RawTensor, Storage
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec

MAX_NDIM: Final = 64
MAX_VIEW_BYTES: Final = 1 << 36
"""Logical bytes of a tensor that is larger than its storage (strides of 0)."""
_INTEGER: Final = frozenset({int})
_LARGEST: Final = 1 << 62

_STORAGE_DTYPES: Final = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64", "QInt8Storage": "qint8", "QUInt8Storage": "quint8", "QInt32Storage": "qint32",
    "UntypedStorage": "uint8", "_UntypedStorage": "uint8", "QUInt4x2Storage": "uint8",
    "QUInt2x4Storage": "uint8",
}  # fmt: skip
_ALIASES: Final = {
    "float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64", "short": "int16",
    "cfloat": "complex64", "cdouble": "complex128", "chalf": "complex32",
}  # fmt: skip


@dataclass(slots=True, eq=False)
class PendingStorage(Pending):
    """A storage that a persistent id of torch stands for, until a tensor looks into it.

    `run` are its bytes as they lie, `is_big_endian` says in which order; `class_name` is of the storage itself.
    """

    dtype: str
    numel: int
    storage: Storage
    run: ByteRun
    is_big_endian: bool
    device: str
    class_name: str

    @property
    def spec(self) -> TensorSpec:
        """Its dtype and length."""
        return TensorSpec(self.dtype, (self.numel,))

    def settled(self) -> RawTensor:
        """The bare storage as a tensor of one dimension."""
        spec = self.spec
        read = _reader(self, 0, spec, None)
        return RawTensor(spec, read, self.storage, class_name=self.class_name, device=self.device)


FindRun = Callable[[str, int], ByteRun]
"""From a storage's key and its length in bytes to its bytes; DamagedCheckpointError where there are none."""


def named_storage(persistent_id: Raw, find: FindRun, *, file: str, where: str, is_big_endian: bool) -> PendingStorage:
    """The storage that a persistent id ("storage", class, key, location, numel, ...) names.

    `file` is its file relative to the checkpoint. Raises DamagedCheckpointError for an id of another form.
    """
    if not (isinstance(persistent_id, tuple) and len(persistent_id) >= 5 and persistent_id[0] == "storage"):
        raise DamagedCheckpointError(f"{where}: has a persistent id that is not of torch: damaged, take another copy")
    kind, key, location, numel = persistent_id[1:5]
    class_name = kind.rpartition(".")[2] if isinstance(kind, Named) else ""
    dtype = _STORAGE_DTYPES.get(class_name)
    if dtype is None or not isinstance(key, str | int) or type(numel) is not int or not 0 <= numel < _LARGEST:
        raise DamagedCheckpointError(f"{where}: has a storage of no known class, or without a length: not read")
    key = str(key)
    nbytes = numel * itemsize_of(dtype)
    device = location if isinstance(location, str) else ""
    storage = Storage(file, key, nbytes)
    return PendingStorage(dtype, numel, storage, find(key, nbytes), is_big_endian, device, f"torch.{class_name}")


def itemsize_of(dtype: str) -> int:
    """Bytes of an element; 0 for a dtype that is not known."""
    return ITEMSIZE_BYTES.get(dtype, 0)


def dtype_of(value: Raw) -> str | None:
    """The name of a dtype without `torch.`; None where the value names none."""
    if not isinstance(value, Named) or not value.startswith("torch."):
        return None
    name = value.removeprefix("torch.")
    return _ALIASES.get(name, name)


def view(
    machine: Machine, stored: PendingStorage, dtype: str, extent: tuple[Raw, ...], requires_grad: Raw
) -> RawTensor:
    """A tensor that looks into a storage; `extent` is (offset, shape, stride) in elements of `dtype`.

    Raises DamagedCheckpointError where it reaches beyond its storage, CheckpointError where it is too large to read.
    """
    spec, strides = _checked_extent(machine, stored, dtype, extent)
    offset = extent[0]
    return RawTensor(
        spec,
        _reader(stored, offset * itemsize_of(dtype), spec, strides),
        stored.storage,
        offset,
        strides,
        requires_grad if isinstance(requires_grad, bool) else None,
        None,
        "torch.Tensor",
        stored.device,
    )


def checked_shape(machine: Machine, shape: Raw) -> tuple[int, ...]:
    """A shape of a file; DamagedCheckpointError where it is none, or absurd."""
    if type(shape) is not tuple or len(shape) > MAX_NDIM:
        raise machine.damaged("has a tensor whose shape is no tuple of lengths")
    for length in shape:
        if type(length) is not int or length < 0:
            raise machine.damaged("has a tensor with a length that is no number")
    if math.prod(shape) > _LARGEST or max(shape, default=0) > _LARGEST:
        raise machine.damaged(f"has a tensor of {len(shape)} dimensions with more than {_LARGEST} elements")
    return shape


def _checked_extent(
    machine: Machine, stored: PendingStorage, dtype: str, extent: tuple[Raw, ...]
) -> tuple[TensorSpec, tuple[int, ...] | None]:
    """The spec, and the stride where it is not row-major."""
    offset, shape, stride = extent
    spec = spec_of(machine, dtype, shape)
    size = itemsize_of(dtype)
    if type(stride) is not tuple or len(stride) != len(shape):
        raise machine.damaged("has a tensor with a stride for another number of dimensions")
    if type(offset) is not int or not 0 <= offset <= _LARGEST:
        raise machine.damaged("has a tensor that begins nowhere in its storage")
    last = offset
    for length, step in zip(shape, stride, strict=True):
        if type(step) is not int or not 0 <= step <= _LARGEST:
            raise machine.damaged("has a tensor with a stride that is no length")
        last += (length - 1) * step
    held = stored.storage.nbytes
    if (last + 1) * size > held and spec.numel:
        raise machine.damaged(f"has a {spec} that reaches byte {(last + 1) * size} of the {held} of its storage")
    if is_row_major(shape, stride):
        return spec, None
    if spec.nbytes > max(MAX_VIEW_BYTES, held):
        raise machine.refused(f"has a {spec} over {held} bytes of storage, beyond our bounds")
    return spec, stride


def spec_of(machine: Machine, dtype: str, shape: Raw) -> TensorSpec:
    """A spec, the same object for equal ones; errors as `checked_shape`'s."""
    if type(shape) is not tuple or not _INTEGER.issuperset(map(type, shape)):
        raise machine.damaged("has a tensor whose shape is no tuple of lengths")
    key = f"{dtype}{shape}"  # a text, for a file can make the hashes of tuples collide
    known = machine.specs.get(key)
    if known is None:
        known = machine.specs[key] = TensorSpec(dtype, checked_shape(machine, shape))
    return known


def _reader(
    stored: PendingStorage, begin: int, spec: TensorSpec, stride: tuple[int, ...] | None
) -> Contiguous | Gathered:
    size = itemsize_of(spec.dtype)
    swap = COMPONENT_BYTES.get(spec.dtype, size) if stored.is_big_endian else 1
    run = stored.run
    if stride is not None:
        return Gathered(run, begin, spec.shape, stride, size, swap)
    if swap == 1 and (type(run) is Source or hasattr(run, "located")):
        return Contiguous(cast("Source | LateSource", run), begin)
    return Gathered(run, begin, (spec.numel,), (1,), size, swap)
