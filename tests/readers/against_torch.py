"""Holds a raw value against what torch itself makes of the same file, with stubs for every class outside of torch."""

import importlib
import pickle
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ckptcheck.state.raw import Foreign, Named, RawTensor
from tests.readers.live_values import bytes_of

_REAL = (
    "torch._utils", "torch.storage", "torch.serialization", "torch._tensor", "torch.nn", "torch.nested", "numpy",
    "collections", "builtins", "__builtin__", "_codecs", "pathlib", "datetime", "decimal", "argparse",
)  # fmt: skip


class Stub:
    """An object of a class that is not imported."""

    class_name: str
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Any:
        made = super().__new__(cls)
        made.class_name, made.args, made.state = f"{cls.__module__}.{cls.__qualname__}", args, None
        return made

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _stub(module: str, name: str) -> Any:
    return type(name, (Stub,), {"__module__": module, "__qualname__": name})


def _wrapper(cls: Any, *_: Any) -> Any:
    return cls.__new__(cls)


def _from_type(func: Any, new_type: Any, args: Any, state: Any) -> Any:
    made = func(*args)
    if isinstance(made, Stub):
        made.class_name, made.args, made.state = f"{new_type.__module__}.{new_type.__qualname__}", (), state
    return made


def _getattr(owner: Any, name: str) -> Any:
    return _stub(owner.__module__, f"{owner.__qualname__}.{name}")


_REPLACED = {
    ("torch._utils", "_rebuild_wrapper_subclass"): _wrapper,
    ("torch._tensor", "_rebuild_from_type_v2"): _from_type,
    ("__builtin__", "getattr"): _getattr,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _REPLACED:
            return _REPLACED[module, name]
        if module == "torch" or module.startswith(_REAL):
            return super().find_class(module, name)
        return _stub(module, name)


def load_with_torch(path: Path) -> Any:
    """What torch.load makes of the file."""
    stubs = types.SimpleNamespace(__name__="stubs", Unpickler=_Unpickler, load=pickle.load)
    return torch.load(path, weights_only=False, pickle_module=stubs)


def count_same(raw: Any, live: Any, at: str = "") -> int:
    """Assert that both are the same, value by value and byte by byte; returns how many tensors were compared."""
    if isinstance(raw, RawTensor):
        return _same_tensor(raw, live, at)
    if isinstance(raw, Foreign):
        return _same_foreign(raw, live, at)
    if isinstance(raw, Named):
        assert isinstance(live, type) or str(live) == str(raw), at
        return 0
    if isinstance(raw, dict):
        assert isinstance(live, dict), at
        assert [str(key) for key in raw] == [str(key) for key in live], at
        pairs = zip(raw.items(), live.values(), strict=True)
        return sum(count_same(one, other, f"{at}.{key}") for (key, one), other in pairs)
    if isinstance(raw, list | tuple):
        assert len(raw) == len(live), at
        return sum(count_same(one, other, f"{at}[{i}]") for i, (one, other) in enumerate(zip(raw, live, strict=True)))
    if isinstance(live, torch.device | Path) or type(live).__module__ == "pathlib":
        assert raw == str(live), at
    elif isinstance(live, bytearray):
        assert raw == bytes(live), at
    else:
        assert type(raw) is type(live), (at, raw, live)
        assert raw == live, at
    return 0


def _same_tensor(raw: RawTensor, live: Any, at: str) -> int:
    content = bytes(raw.fetch())
    if isinstance(live, np.ndarray | np.generic):
        assert (raw.spec.dtype, raw.spec.shape) == (str(live.dtype), live.shape), at
        assert content == live.tobytes(), at
        return 1
    if isinstance(live, torch.UntypedStorage | torch.TypedStorage):
        live = torch.tensor([], dtype=getattr(live, "dtype", torch.uint8)).set_(live)
    assert isinstance(live, torch.Tensor), (at, live)
    assert (f"torch.{raw.spec.dtype}", raw.spec.shape) == (str(live.dtype), tuple(live.shape)), at
    assert content == bytes_of(live), at
    assert raw.requires_grad in (None, live.requires_grad), at
    return 1


def _same_foreign(raw: Foreign, live: Any, at: str) -> int:
    if raw.class_name.startswith("torch.sparse_"):
        assert raw.spec is not None
        assert raw.spec.shape == tuple(live.shape), at
        parts = {name: part for name, part in raw.state.items() if isinstance(part, RawTensor)}
        return sum(count_same(part, getattr(live, _GETTERS.get(name, name))(), at) for name, part in parts.items())
    if raw.class_name == "torch.quantized":
        assert raw.spec is not None
        return count_same(raw.state["values"], live, at)
    if isinstance(live, Stub):
        assert raw.class_name == live.class_name, at
        found = count_same(raw.arguments, live.args, at)
        return found + (count_same(raw.state, live.state, at) if raw.state is not None else 0)
    name = f"{type(live).__module__}.{type(live).__qualname__}"
    assert raw.class_name == name, (at, raw)
    if isinstance(live, torch.nn.Module | types.SimpleNamespace):
        return count_same(raw.state, live.__dict__, at)
    assert importlib.import_module(type(live).__module__), at
    return 0


_GETTERS = {"indices": "_indices", "values": "values"}
