"""The functions by which torch's pickles rebuild tensors, as builders of our own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ckptcheck.readers.pickle.pickle_machine import Builder, Machine, name_of
from ckptcheck.readers.pickle.torch_tensors import PendingStorage, checked_shape, dtype_of, itemsize_of, view
from ckptcheck.state.raw import Foreign, Named, Raw, RawTensor, ReadInto
from ckptcheck.state.tensor import TensorSpec

_IMAGINARY_TOP: Final = {"complex128": (15,), "complex64": (7,), "complex32": (3,)}
_TOPS: Final = {
    "float64": (7,), "float32": (3,), "float16": (1,), "bfloat16": (1,),
    "complex128": (7, 15), "complex64": (3, 7), "complex32": (1, 3),
}  # fmt: skip
"""Which byte of an element has a sign bit, little-endian."""
_COMPRESSED: Final = {
    "torch.sparse_csr": ("crow_indices", "col_indices"), "torch.sparse_bsr": ("crow_indices", "col_indices"),
    "torch.sparse_csc": ("ccol_indices", "row_indices"), "torch.sparse_bsc": ("ccol_indices", "row_indices"),
}  # fmt: skip
_PARAMETERS: Final = frozenset({"torch.nn.parameter.Parameter", "torch.nn.Parameter"})
_PLAIN_CLASSES: Final = _PARAMETERS | {"torch.Tensor", "torch.nn.parameter.Buffer", "torch.nn.Buffer"}
JAGGED: Final = "torch.nested.jagged"
MAX_NAME: Final = 100
"""Characters of a layout's name."""
_BUFFER_FLAGS: Final = frozenset({"persistent", "_is_buffer"})


@dataclass(frozen=True, slots=True, eq=False)
class SignFlipped:
    """A tensor of which torch saved the conjugate or the negative: the sign bits of its bytes `tops` are flipped."""

    inner: ReadInto
    itemsize: int
    tops: tuple[int, ...]

    def __call__(self, start_bytes: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start_bytes` of the tensor on."""
        import numpy as np

        self.inner(start_bytes, buffer)
        content = np.frombuffer(buffer, "u1")
        for top in self.tops:
            content[(top - start_bytes) % self.itemsize :: self.itemsize] ^= 0x80


def _tensor_v2(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    storage = args[0] if args else None
    if not isinstance(storage, PendingStorage) or not 4 <= len(args) <= 7:
        return Foreign("torch._utils._rebuild_tensor_v2", args)
    requires_grad = args[4] if len(args) > 4 else None
    tensor = view(machine, storage, storage.dtype, args[1:4], requires_grad)
    return _with_bits(tensor, args[6]) if len(args) > 6 else tensor


def _tensor_v3(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    dtype = dtype_of(args[6]) if 7 <= len(args) <= 8 else None
    if dtype is None or not isinstance(args[0], PendingStorage) or not itemsize_of(dtype):
        return Foreign("torch._utils._rebuild_tensor_v3", args)
    tensor = view(machine, args[0], dtype, args[1:4], args[4])
    return _with_bits(tensor, args[7]) if len(args) > 7 else tensor


def _with_bits(tensor: RawTensor, metadata: Raw) -> Raw:
    bits = metadata if isinstance(metadata, dict) else {}
    read = tensor.read_into
    size = itemsize_of(tensor.spec.dtype)
    if bits.get("conj") is True and tensor.spec.dtype in _IMAGINARY_TOP:
        read = SignFlipped(read, size, _IMAGINARY_TOP[tensor.spec.dtype])
    if bits.get("neg") is True and tensor.spec.dtype in _TOPS:
        read = SignFlipped(read, size, _TOPS[tensor.spec.dtype])
    # A conjugate looks into the same bytes but is no tie: its storage is not named.
    return tensor if read is tensor.read_into else replace(tensor, read_into=read, storage=None, offset=0, stride=None)


def _parameter(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    if not args or not isinstance(args[0], RawTensor):
        if args and isinstance(args[0], Foreign) and args[0].spec is not None:
            return args[0]
        return Foreign("torch._utils._rebuild_parameter", args)
    requires_grad = args[1] if len(args) > 1 and isinstance(args[1], bool) else None
    tensor = replace(args[0], requires_grad=requires_grad, is_parameter=True)
    return _with_attributes(machine, tensor, args[3]) if len(args) > 3 else tensor


def _with_attributes(machine: Machine, tensor: RawTensor, state: Raw) -> RawTensor:
    parts = state if isinstance(state, tuple) else (state,)
    machine.spend(sum(len(part) for part in parts if isinstance(part, dict)))
    found = {key: value for part in parts if isinstance(part, dict) for key, value in part.items() if type(key) is str}
    if found.get("_is_buffer") is True:
        tensor = replace(tensor, is_parameter=False)
        found = {key: value for key, value in found.items() if key not in _BUFFER_FLAGS}
    return replace(tensor, attributes=found) if found else tensor


def _from_type(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    if len(args) != 4:
        return Foreign("torch._tensor._rebuild_from_type_v2", args)
    made = machine.call(args[0], args[2])
    class_name, state = name_of(args[1]), args[3]
    if isinstance(made, RawTensor):
        if class_name in _PLAIN_CLASSES:
            is_parameter = True if class_name in _PARAMETERS else made.is_parameter
            return _with_attributes(machine, replace(made, is_parameter=is_parameter), state)
        return _with_attributes(machine, replace(made, class_name=class_name), state)
    if isinstance(made, Foreign) and made.state is None:
        made.state = state
        return made
    is_jagged = isinstance(made, Foreign) and made.class_name == JAGGED  # beside its parts there are only caches
    if class_name in _PLAIN_CLASSES or not state or is_jagged:
        return made
    return Foreign(class_name, (made,), state, spec=made.spec if isinstance(made, Foreign) else None)


def _wrapper_subclass(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    dtype = dtype_of(args[1]) if len(args) >= 3 else None
    if dtype is None or type(args[2]) is not tuple:
        return Foreign("torch._utils._rebuild_wrapper_subclass", args)
    return Foreign(name_of(args[0]), spec=TensorSpec(dtype, checked_shape(machine, args[2])))


def _sparse(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    layout, parts = args if len(args) == 2 else (None, None)
    if not isinstance(layout, Named) or not isinstance(parts, tuple) or not 3 <= len(parts) <= 4:
        return Foreign("torch._utils._rebuild_sparse_tensor", args)
    if layout == "torch.sparse_coo":
        names: tuple[str, ...] = ("indices", "values")
        values, shape = parts[1], parts[2]
        more = {"is_coalesced": parts[3]} if len(parts) > 3 else {}
    elif layout in _COMPRESSED and len(parts) == 4:
        names = (*_COMPRESSED[layout], "values")
        values, shape = parts[2], parts[3]
        more = {}
    else:
        return Foreign("torch._utils._rebuild_sparse_tensor", args)
    if not isinstance(values, RawTensor):
        return Foreign("torch._utils._rebuild_sparse_tensor", args)
    spec = TensorSpec(values.spec.dtype, checked_shape(machine, shape))
    return Foreign(str(layout), state=dict(zip(names, parts, strict=False)) | more, spec=spec)


def _quantized(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    scheme = args[4] if len(args) >= 5 else None
    if not isinstance(scheme, tuple) or len(scheme) < 3 or not isinstance(args[0], PendingStorage):
        return Foreign("torch._utils._rebuild_qtensor", args)
    parts = dict(zip(("scheme", "scale", "zero_point", "axis"), scheme, strict=False))
    if not args[0].dtype.startswith("q"):  # several elements in a byte: the bytes as they lie
        whole = dict(zip(("values", "offset", "shape", "stride"), args, strict=False))
        return Foreign("torch.quantized", state={**whole, **parts})
    values = view(machine, args[0], args[0].dtype, args[1:4], args[5] if len(args) > 5 else None)
    return Foreign("torch.quantized", state={"values": values, **parts}, spec=values.spec)


def _nested(_machine: Machine, args: tuple[Raw, ...]) -> Raw:
    return Foreign("torch.nested", state=dict(zip(("buffer", "sizes", "strides", "offsets"), args, strict=False)))


def _jagged(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    state = dict(args[0]) if len(args) == 1 and isinstance(args[0], dict) else {"args": args}
    machine.spend(len(state))
    state.pop("_metadata_cache", None)  # is computed from the offsets
    return Foreign(JAGGED, state=state)


def _meta(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    dtype = dtype_of(args[0]) if len(args) >= 2 else None
    if dtype is None:
        return Foreign("torch._utils._rebuild_meta_tensor_no_storage", args)
    return Foreign("torch.meta", spec=TensorSpec(dtype, checked_shape(machine, args[1])))


def _on_device(_machine: Machine, args: tuple[Raw, ...]) -> Raw:
    if len(args) < 3 or not isinstance(args[0], RawTensor):
        return Foreign("torch._utils._rebuild_device_tensor_from_numpy", args)
    requires_grad = args[3] if len(args) > 3 and isinstance(args[3], bool) else None
    device = args[2] if isinstance(args[2], str) else ""
    return replace(args[0], class_name="torch.Tensor", device=device, requires_grad=requires_grad)


def _size(_machine: Machine, args: tuple[Raw, ...]) -> Raw:
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], tuple) else Foreign("torch.Size", args)


def _device(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    machine.copy_bytes(sum(len(part) for part in args if isinstance(part, str)))
    return ":".join(str(part) for part in args if isinstance(part, str | int))


def _layout(_machine: Machine, args: tuple[Raw, ...]) -> Raw:
    name = args[0] if len(args) == 1 else None
    if type(name) is str and name.startswith("torch.") and len(name) < MAX_NAME:
        return Named(name)
    return Foreign("torch.serialization._get_layout", args)


TORCH_BUILDERS: Final[Mapping[str, Builder]] = {
    "torch._utils._rebuild_tensor": _tensor_v2,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_wrapper_subclass": _wrapper_subclass,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_sparse_csr_tensor": _sparse,
    "torch._utils._rebuild_qtensor": _quantized,
    "torch._utils._rebuild_nested_tensor": _nested,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch._utils._rebuild_device_tensor_from_numpy": _on_device,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _on_device,
    "torch._utils._rebuild_xla_tensor": _on_device,
    "torch._tensor._rebuild_from_type": _from_type,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.nested._internal.nested_tensor._rebuild_njt": _jagged,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
}
"""A builder for each function and class of torch that pickles call."""
