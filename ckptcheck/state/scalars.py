"""The value of a tensor of one element, without numpy."""

import struct
from typing import Final

from ckptcheck.state.tensor import TensorRef
from ckptcheck.state.training_state import Scalar

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
