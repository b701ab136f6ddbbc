"""A tensor described before its bytes are fetched."""

import math
from dataclasses import dataclass
from typing import Final, Protocol

ITEMSIZE_BYTES: Final = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "complex128": 16, "complex64": 8, "complex32": 4,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "qint8": 1, "quint8": 1, "qint32": 4,
}  # fmt: skip
"""Bytes per element, by torch's dtype name without its `torch.` prefix."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a tensor is without its bytes: dtype by torch's name (no `torch.` prefix) and logical shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a scalar tensor of shape ()."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the logical row-major content; 0 for a dtype whose element size is not known."""
        return self.numel * ITEMSIZE_BYTES.get(self.dtype, 0)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class TensorRef(Protocol):
    """A tensor whose bytes are read only when somebody compares them; several threads may read at once."""

    @property
    def spec(self) -> TensorSpec:
        """The tensor's dtype and shape."""
        ...

    def read_into(self, start_bytes: int, buffer: memoryview) -> None:
        """Fill `buffer` with the logical row-major little-endian bytes from `start_bytes` on."""
        ...

    def fetch(self) -> memoryview:
        """The logical row-major bytes, little-endian, `spec.nbytes` long."""
        ...


def fetch(ref: TensorRef) -> memoryview:
    """All bytes of a tensor in fresh memory."""
    content = memoryview(bytearray(ref.spec.nbytes))
    ref.read_into(0, content)
    return content
