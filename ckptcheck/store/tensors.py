"""Live tensors on their way into payloads and back.

A dense one is {"$": "tensor", "role": ROLE, "key": KEY}, with "device", "requires_grad" and "parameter" where they
differ from the usual. A sparse one is {"$": "sparse", "layout", "dtype", "shape", "coalesced", "digest", "parts"},
its parts the dense tensors that it consists of, its digest that of the whole.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ckptcheck.errors import StoreError
from ckptcheck.state.digest import Digest
from ckptcheck.state.tensor import ITEMSIZE_BYTES
from ckptcheck.state.tensor_bytes import digester, row_major_bytes, spec_of
from ckptcheck.store import arrays, files
from ckptcheck.store.decoding import Decoder
from ckptcheck.store.encoding import Encoder
from ckptcheck.store.layout import new_payload_name
from ckptcheck.store.manifest import Encoded, PayloadRecord, TensorRecord
from ckptcheck.store.manifest_file import is_dense
from ckptcheck.store.payload import StoredTensor, header_for

_COMPRESSED: Final = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
_LAYOUTS: Final = (torch.strided, torch.sparse_coo, *_COMPRESSED)


def check_plain(tensor: torch.Tensor, path: str) -> None:
    """Raise StoreError for a tensor whose content is not simply its elements, or has not been made yet."""
    reason = None
    if is_lazy(tensor):
        reason = "has no shape yet: run one forward pass first"
    elif hasattr(tensor, "__tensor_flatten__") or hasattr(tensor, "_local_tensor"):
        reason = "is sharded or wraps other tensors: save the whole, plain tensor"
    elif tensor.is_meta:
        reason = "is on the meta device and has no content: give it a real device first"
    elif tensor.is_quantized or tensor.is_nested or tensor.layout not in _LAYOUTS:
        reason = "is quantised, nested or in a private layout: convert it to a dense tensor"
    elif str(tensor.dtype).removeprefix("torch.") not in ITEMSIZE_BYTES:
        reason = f"is of {tensor.dtype}, which the store does not know: convert it"
    if reason:
        raise StoreError(f"{path}: the tensor {reason}")


class PayloadPlan:
    """The tensors that one payload will hold; they are kept as they are, nothing is copied before it is written.

    Also the encoder's sink for what belongs to this payload.
    """

    def __init__(self, role: str, algorithm: str) -> None:
        self.role = role
        self.tensors: dict[str, torch.Tensor] = {}
        self._algorithm = algorithm
        self._shared: dict[tuple[Any, ...], str] = {}

    def add(self, hint: str, tensor: torch.Tensor) -> str:
        """Take a dense tensor in, under a key like `hint`, and return the key."""
        key, count = hint.encode("utf-8", "backslashreplace").decode(), 1
        while key in self.tensors or key == "__metadata__":
            count += 1
            key = f"{hint.encode('utf-8', 'backslashreplace').decode()}#{count}"
        self.tensors[key] = tensor.detach()
        return key

    def blob(self, content: bytes, path: str) -> tuple[str, str]:
        """Bytes as a tensor of uint8."""
        if not content:
            return self.role, self.add(path, torch.empty(0, dtype=torch.uint8, device="cpu"))
        return self.role, self.add(path, torch.frombuffer(bytearray(content), dtype=torch.uint8))

    def foreign(self, value: Any, path: str, encode: Encoder) -> Encoded:
        """Tensors, numpy values, and torch's own small types."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value, path)
        if isinstance(value, torch.Size):
            return {"$": "size", "items": list(value)}
        if isinstance(value, torch.dtype):
            return {"$": "dtype", "name": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"$": "device", "name": str(value)}
        if arrays.is_numpy(value):
            return arrays.encode(value, path, encode, self.blob)
        kind = type(value)
        raise StoreError(
            f"{path}: a {kind.__module__}.{kind.__qualname__} cannot be saved without pickle: leave it out of the "
            "state_dict, or put numbers, text, lists, dicts, tensors or arrays in its place"
        )

    def tensor(self, tensor: torch.Tensor, path: str) -> Encoded:
        """A dense or sparse tensor. One that was seen before, by its memory, is the same one again."""
        check_plain(tensor, path)
        if type(tensor) not in (torch.Tensor, nn.Parameter):
            raise StoreError(f"{path}: a {type(tensor).__name__} cannot be saved: put a plain tensor in its place")
        if tensor.layout != torch.strided:
            return self._sparse(tensor.detach(), path)
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        kind = (*place, tensor.is_conj(), tensor.is_neg(), tensor.requires_grad, type(tensor))
        key = self._shared.get(kind) if tensor.numel() else None
        if key is None:
            key = self._shared[kind] = self.add(path, tensor)
        node: dict[str, Any] = {"$": "tensor", "role": self.role, "key": key}
        if tensor.device.type != "cpu":
            node["device"] = str(tensor.device)
        if tensor.requires_grad and tensor.is_leaf:
            node["requires_grad"] = True
        if isinstance(tensor, nn.Parameter):
            node["parameter"] = True
        return node

    def _sparse(self, tensor: torch.Tensor, path: str) -> Encoded:
        if tensor.layout == torch.sparse_coo:
            # Not coalesced here: the sum over duplicates is taken later by whoever reads it.
            parts = [tensor._indices(), tensor._values()]
        else:
            parts = [*(getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]), tensor.values()]
        spec = spec_of(tensor)
        return {
            "$": "sparse",
            "layout": str(tensor.layout).removeprefix("torch."),
            "dtype": spec.dtype,
            "shape": spec.shape,
            "coalesced": tensor.layout != torch.sparse_coo or tensor.is_coalesced(),
            "digest": str(Digest(self._algorithm, digester(self._algorithm)(tensor))),
            "parts": [self.tensor(part, f"{path}/{place}") for place, part in enumerate(parts)],
        }

    def write(self, folder: Path) -> PayloadRecord:
        """Write the payload into the folder, durably, and say what it holds."""
        name = new_payload_name(self.role)
        records: dict[str, TensorRecord] = {}
        header, order = header_for({key: spec_of(tensor) for key, tensor in self.tensors.items()})
        size_bytes = files.write_new(folder / name, self._chunks(header, order, records))
        return PayloadRecord(name, size_bytes, {key: records[key] for key in self.tensors})

    def _chunks(self, header: bytes, order: list[str], records: dict[str, TensorRecord]) -> Iterator[files.Chunk]:
        digest = digester(self._algorithm)
        yield header
        for key in order:
            tensor = self.tensors[key]
            records[key] = TensorRecord(
                spec_of(tensor), Digest(self._algorithm, digest(tensor)), _stride_of(tensor), _value_of(tensor)
            )
            yield row_major_bytes(tensor)


def _stride_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    # Sums run in memory order: a gradient in channels_last has another norm, in the last bit, than its row-major copy.
    if tensor.is_contiguous() or not is_dense(tuple(tensor.shape), tensor.stride()):
        return None
    return tensor.stride()


def _value_of(tensor: torch.Tensor) -> bool | int | float | None:
    if tensor.numel() != 1 or tensor.is_complex():
        return None
    return tensor.item()


def same_kind(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether both are dense and one can be copied into the other without changing anything but values."""
    if left.layout != torch.strided or right.layout != torch.strided:
        return False
    return (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())


def read_tensor(stored: StoredTensor) -> torch.Tensor:
    """The tensor on the CPU, in fresh memory; StoreError when its bytes do not have the digest that was promised."""
    spec = stored.spec
    # torch's own allocation, for its alignment: some kernels sum in another order on memory that is aligned less.
    flat = torch.empty(spec.nbytes, dtype=torch.uint8, device="cpu")
    if spec.nbytes:
        address = (ctypes.c_ubyte * spec.nbytes).from_address(flat.data_ptr())
        stored.read_into(0, memoryview(address).cast("B"))
    dtype: torch.dtype = getattr(torch, spec.dtype)
    tensor = flat.view(dtype).reshape(spec.shape)
    if stored.record.stride is not None:
        strided = torch.empty_strided(spec.shape, stored.record.stride, dtype=dtype, device="cpu")
        tensor = strided.copy_(tensor)
    try:
        found = digester(stored.digest.algorithm)(tensor)
    except ValueError as trouble:
        raise StoreError(f"{stored.where}: {trouble}: it needs a newer ckptcheck") from None
    except ImportError:
        raise StoreError(f"{stored.where}: its digest cannot be checked without xxhash: pip install xxhash") from None
    if found != stored.digest.value:
        raise StoreError(f"{stored.where}: its bytes do not have the digest {stored.digest} that was promised: damaged")
    return tensor


class TorchSource:
    """The decoder's source with torch: tensors come from payloads into fresh memory, verified."""

    def __init__(self, tensors: Mapping[str, Mapping[str, StoredTensor]]) -> None:
        self._stored = tensors
        self._read: dict[tuple[str, str], torch.Tensor] = {}

    def foreign(self, node: dict[str, Any], decode: Decoder) -> Any:
        """Tensors, numpy values, and torch's own small types."""
        make = _MAKERS.get(node["$"])
        if make is None:
            raise ValueError(f"unknown tag {node['$']!r}")
        return make(self, node, decode)

    def blob(self, place: Encoded) -> bytes:
        """The bytes at [role, key]."""
        role, key = place
        return bytes(row_major_bytes(read_tensor(self._stored[role][key])))

    def tensor(self, node: dict[str, Any], decode: Decoder | None = None) -> torch.Tensor:
        """A dense tensor, on the device that it was saved from where that is here, else on the CPU."""
        place = (node["role"], node["key"])
        if place not in self._read:
            tensor = read_tensor(self._stored[place[0]][place[1]])
            if "device" in node:
                tensor = tensor.to(available(torch.device(node["device"])))
            if node.get("parameter"):
                tensor = nn.Parameter(tensor, requires_grad=False)
            self._read[place] = tensor.requires_grad_(bool(node.get("requires_grad")))
        return self._read[place]

    def sparse(self, node: dict[str, Any], decode: Decoder) -> torch.Tensor:
        """A sparse tensor from its parts."""
        layout, shape = getattr(torch, node["layout"]), node["shape"]
        if layout == torch.sparse_coo:
            indices, values = (decode(part) for part in node["parts"])
            tensor = torch.sparse_coo_tensor(indices, values, size=shape, check_invariants=True)
            return tensor._coalesced_(bool(node["coalesced"]))
        first, second, values = (decode(part) for part in node["parts"])
        return torch.sparse_compressed_tensor(first, second, values, size=shape, layout=layout, check_invariants=True)

    def array(self, node: dict[str, Any], decode: Decoder) -> Any:
        """A numpy array or scalar."""
        try:
            return arrays.decode(node, decode, self.blob)
        except ImportError:
            raise StoreError("the store holds numpy values, and numpy is not installed: pip install numpy") from None


def available(device: torch.device) -> torch.device:
    """The device itself where this process has it, else the CPU."""
    if device.type == "cuda" and torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count():
        return device
    return torch.device("cpu")


def _dtype(source: TorchSource, node: dict[str, Any], decode: Decoder) -> torch.dtype:
    dtype = getattr(torch, node["name"])
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{node['name']!r} is no dtype")
    return dtype


_MAKERS: Final[dict[str, Callable[[TorchSource, dict[str, Any], Decoder], Any]]] = {
    "tensor": TorchSource.tensor,
    "sparse": TorchSource.sparse,
    "array": TorchSource.array,
    "scalar": TorchSource.array,
    "size": lambda source, node, decode: torch.Size(node["items"]),
    "dtype": _dtype,
    "device": lambda source, node, decode: torch.device(node["name"]),
}
