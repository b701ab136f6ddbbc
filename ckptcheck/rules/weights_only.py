"""What `torch.load(weights_only=True)`, the default since torch 2.6, lets a pickle name."""

import sys
from collections.abc import Iterable
from typing import Final

from ckptcheck.readers.pickle.pickle_globals import todays_name

_KINDS: Final = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
_DENSE: Final = tuple(kind for kind in _KINDS if kind != "Bool")
_DTYPES: Final = (
    "bfloat16", "bool", "complex32", "complex64", "complex128", "float16", "float32", "float64", "float4_e2m1fn_x2",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "qint8", "qint32",
    "quint8", "quint2x4", "quint4x2", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)),
)  # fmt: skip
_REBUILD: Final = (
    "device_tensor_from_cpu_tensor", "device_tensor_from_numpy", "meta_tensor_no_storage", "nested_tensor", "parameter",
    "parameter_with_state", "qtensor", "sparse_tensor", "tensor", "tensor_v2", "tensor_v3", "wrapper_subclass",
)  # fmt: skip
ALLOWED: Final = frozenset({
    "_codecs.encode", "builtins.bytearray", "builtins.complex", "builtins.set", "collections.Counter",
    "collections.OrderedDict", "torch.Size", "torch.Tensor", "torch._tensor._rebuild_from_type_v2", "torch.device",
    "torch.nn.parameter.Parameter", "torch.serialization._get_layout", "torch.storage.TypedStorage",
    "torch.storage.UntypedStorage", "torch.per_tensor_affine", "torch.per_tensor_symmetric",
    "torch.per_channel_affine", "torch.per_channel_affine_float_qparams", "torch.per_channel_symmetric",
    *(f"torch.{dtype}" for dtype in _DTYPES),
    *(f"torch._utils._rebuild_{what}" for what in _REBUILD),
    *(f"torch.{place}{kind}{what}" for place in ("", "cuda.") for kind in _KINDS for what in ("Storage", "Tensor")),
    *(f"torch.{place}Complex{kind}Storage" for place in ("", "cuda.") for kind in ("Double", "Float")),
    *(f"torch.{kind}Storage" for kind in ("QInt8", "QInt32", "QUInt8", "QUInt2x4", "QUInt4x2")),
    *(f"torch.{place}sparse.{kind}Tensor" for place in ("", "cuda.") for kind in _DENSE),
})  # fmt: skip
"""torch's own list, of 2.13; programs can add to theirs (`torch.serialization.add_safe_globals`).

Source: `torch._weights_only_unpickler._get_allowed_globals`.
"""


def refused(names: Iterable[str]) -> list[str]:
    """The globals "module.Name", as a pickle spells them, that are not on torch's list and that nobody adds to it.

    These are numpy's and the standard library's. Other packages may add their own classes where they are imported, as
    torch.distributed and torchao do. `getattr` comes with a class, which counts in its stead.
    """
    return [one for one in names if _todays(one) not in ALLOWED and _is_nobodys(_todays(one))]


def _todays(name: str) -> str:
    module, _, last = name.rpartition(".")
    return todays_name(module, last)


def _is_nobodys(name: str) -> bool:
    package = name.partition(".")[0]
    return (package == "numpy" or package in sys.stdlib_module_names) and name != "builtins.getattr"
