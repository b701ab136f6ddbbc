"""The values of plain entries and of tensors of one element, without numpy."""

import struct
import sys
from typing import Final

from ckptcheck.errors import CheckpointError
from ckptcheck.state.tensor import TensorRef
from ckptcheck.state.training_state import Entry, Scalar

_FORMATS: Final = {
    "float64": "<d", "float32": "<f", "float16": "<e",
    "int64": "<q", "int32": "<i", "int16": "<h", "int8": "<b",
    "uint64": "<Q", "uint32": "<I", "uint16": "<H", "uint8": "<B", "bool": "<?",
}  # fmt: skip


def number_in(ref: TensorRef) -> Scalar | None:
    """The number in a tensor of one element, read now; None for other tensors and dtypes that python has not.

    Raises DamagedCheckpointError where its bytes are missing.
    """
    spec = ref.spec
    if spec.numel != 1:
        return None
    if spec.dtype == "bfloat16":
        return float(struct.unpack("<f", b"\0\0" + bytes(ref.fetch()))[0])
    form = _FORMATS.get(spec.dtype)
    if form is None:
        return None
    value: Scalar = struct.unpack(form, ref.fetch())[0]
    return value


def value_of(entry: Entry | None) -> Scalar | None:
    """A plain value, or the number in a tensor of one element, read now; None for an entry that is not there.

    Raises DamagedCheckpointError where its bytes are missing.
    """
    if entry is None:
        return None
    return number_in(entry.ref) if entry.value is None and entry.ref is not None else entry.value


def finite_number(entry: Entry | None) -> int | float | None:
    """The number that an entry is, or that a tensor of one element holds.

    None for anything else: a bool, NaN, an infinity, more than a float can be, or bytes that are missing.
    """
    try:
        value = value_of(entry)
    except CheckpointError:  # bytes that are missing are the files' affair
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) <= sys.float_info.max else None
