"""Arrays and scalars of numpy 1 and 2 as pickles hold them, made into tensors without numpy.

The forms: numpy/_core/src/multiarray/methods.c (`array_reduce`, `array_setstate`), numpy/_core/numeric.py.
"""

from collections.abc import Mapping
from typing import Final

from ckptcheck.readers.pickle.pickle_machine import Builder, Growing, Machine
from ckptcheck.readers.pickle.torch_tensors import checked_shape, itemsize_of
from ckptcheck.readers.tensor_bytes import COMPONENT_BYTES, Gathered, Held
from ckptcheck.state.raw import Foreign, Raw, RawTensor
from ckptcheck.state.tensor import TensorSpec

_DTYPES: Final = {
    "b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8", "u2": "uint16",
    "u4": "uint32", "u8": "uint64", "f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64",
    "c16": "complex128",
}  # fmt: skip
"""numpy's codes of the dtypes that torch has, too."""


def _array_begun(_machine: Machine, args: tuple[Raw, ...]) -> Raw:
    return Growing("numpy.ndarray", finish=_array_finished)


def _array_finished(machine: Machine, state: Raw) -> Raw:
    """The array from (version, shape, dtype, is column-major, bytes)."""
    if isinstance(state, tuple) and len(state) == 5:
        _, shape, dtype, fortran, content = state
        made = _array(machine, content, dtype, shape, bool(fortran))
        if made is not None:
            return made
    return Foreign("numpy.ndarray", state=state)


def _array_from_buffer(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    made = _array(machine, args[0], args[1], args[2], args[3] == "F") if len(args) == 4 else None
    return Foreign("numpy.ndarray", args) if made is None else made


def _scalar(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    made = _array(machine, args[1], args[0], (), False) if len(args) == 2 else None
    return Foreign("numpy.generic", args) if made is None else made


def _array(machine: Machine, content: Raw, dtype: Raw, shape: Raw, is_column_major: bool) -> RawTensor | None:
    known = _dtype_of(dtype)
    if isinstance(content, str) and content.isascii():  # as Python 2 pickled bytes
        machine.copy_bytes(len(content))
        content = content.encode()
    if known is None or not isinstance(content, bytes) or type(shape) is not tuple:
        return None
    name, is_big_endian = known
    size = itemsize_of(name)
    spec = TensorSpec(name, checked_shape(machine, shape))
    if spec.nbytes != len(content):
        raise machine.damaged(f"has a numpy array {spec} of {spec.nbytes} bytes, {len(content)} are there")
    stride = _column_major(shape) if is_column_major else _row_major(shape)
    swap = COMPONENT_BYTES.get(name, size) if is_big_endian else 1
    read = Gathered(Held(content), 0, shape, stride, size, swap)
    return RawTensor(spec, read, class_name="numpy.ndarray" if shape else f"numpy.{name}", device="cpu")


def _dtype_of(dtype: Raw) -> tuple[str, bool] | None:
    """Torch's name of a numpy dtype, and whether it is big-endian; None where torch has none such."""
    if not isinstance(dtype, Foreign) or dtype.class_name != "numpy.dtype" or not dtype.arguments:
        return None
    code = dtype.arguments[0]
    state = dtype.state
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "|"
    if not isinstance(code, str) or order not in ("<", ">", "|", "=") or _has_fields(state):
        return None
    if code[:1] in ("<", ">", "|", "="):
        order, code = code[0], code[1:]
    name = _DTYPES.get(code)
    return None if name is None else (name, order == ">")


def _has_fields(state: Raw) -> bool:
    """Whether the state (version, order, sub-array, names, fields, ...) is of a structured dtype."""
    return isinstance(state, tuple) and any(part is not None for part in state[2:5])


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def _column_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(reversed(_row_major(tuple(reversed(shape)))))


NUMPY_BUILDERS: Final[Mapping[str, Builder]] = {
    "numpy._core.multiarray._reconstruct": _array_begun,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy._core.numeric._frombuffer": _array_from_buffer,
}
"""A builder for each function of numpy that pickles call; numpy 1's names are replaced before."""
