"""States of random generators under one set of names, whoever saved them: "torch", "cuda:0", "numpy", "python"."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ckptcheck.conventions.entries import entry, merge, unfolded
from ckptcheck.state.raw import Raw, RawTensor
from ckptcheck.state.training_state import Entry
from ckptcheck.state.tree import is_plain

_NAMES: Final = {
    "torch": ("torch", "cpu", "torch_rng", "torch_rng_state", "torch_cpu", "cpu_rng_state", "torch_manual_seed",
              "torch_cpu_rng_state", "torch_random_state", "torch_state"),
    "cuda": ("cuda", "cuda_all", "cuda_rng", "cuda_rng_state", "cuda_rng_states", "cuda_rng_state_all", "torch_cuda",
             "torch_cuda_rng_state", "torch_cuda_rng_state_all", "torch_cuda_manual_seed", "torch.cuda", "gpu"),
    "numpy": ("numpy", "np", "numpy_rng", "np_rng", "numpy_rng_state", "np_rng_state", "numpy_random_seed",
              "numpy_random_state", "np_random_state", "numpy_state"),
    "python": ("python", "random", "py", "python_rng", "python_rng_state", "random_rng_state", "random_state",
               "py_rng_state", "python_random_state", "python_state"),
}  # fmt: skip
_KIND_OF: Final = {word: kind for kind, words in _NAMES.items() for word in words}
_OF_RANK: Final = re.compile(r"(?P<key>.+) \((?P<rank>rank \d+)\)")
_DEVICE: Final = re.compile(r"cuda:\d+")
_LEGACY_NUMPY: Final = ("bit_generator", "state", "has_gauss", "gauss")
_PYTHON_VERSION: Final = 3
_LONE: Final = frozenset({"rng", "rng_state"})
"""Keys under which the state of one generator alone is torch's."""
_OTHERS: Final = re.compile(r"generator|sampler|loader|data|stream|iter", re.IGNORECASE)
"""Keys of what draws from a generator of its own."""
MAX_DEPTH: Final = 4
TORCH_STATE_BYTES: Final = 5056
"""Size of the state of torch's CPU generator."""
MAX_NUMPY_BYTES: Final = 1 << 16


def kind_of(key: Any, value: Raw) -> str | None:
    """The kind of generator that a key or the shape of its state tells, or None."""
    if isinstance(key, str):
        kind = key if _DEVICE.fullmatch(key) else _KIND_OF.get(key.lower())
        if kind and _can_be(kind, value):
            return kind
    if isinstance(value, tuple | list) and value:
        first = value[0]
        if first == _PYTHON_VERSION and len(value) == 3 and isinstance(value[1], tuple | list):
            return "python"
        return "numpy" if first == "MT19937" else None
    is_cpu_state = (
        isinstance(value, RawTensor) and value.spec.dtype == "uint8" and value.spec.numel == TORCH_STATE_BYTES
    )
    return "torch" if is_cpu_state else None


def global_generators(value: Raw, key: Any = None, depth: int = MAX_DEPTH) -> Iterator[RawTensor]:
    """States of torch's own CPU generator, told by their keys: a sampler's generator has the same form."""
    if isinstance(value, RawTensor):
        word = key.lower() if isinstance(key, str) else ""
        if kind_of(None, value) == "torch" and (_KIND_OF.get(word) == "torch" or word in _LONE):
            yield value
    elif isinstance(value, Mapping) and depth:
        for inner, one in value.items():
            if not (isinstance(inner, str) and _OTHERS.search(inner)):
                yield from global_generators(one, inner, depth - 1)


def _can_be(kind: str, value: Raw) -> bool:
    """Whether a value has the form of a state of this kind: a key alone, as "random" or "np", tells nothing."""
    if kind == "python":
        return isinstance(value, tuple | list) and len(value) == 3
    if kind == "numpy":
        return isinstance(value, Mapping) or (isinstance(value, tuple | list) and len(value) > 1)
    states = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(one, RawTensor) and one.spec.dtype == "uint8" for one in states)


def is_generators(value: Raw) -> bool:
    """Whether this is a dict of generators' states, told by keys that name at least one and its content."""
    return isinstance(value, Mapping) and any(
        isinstance(key, str) and kind_of(None, one) in ("python", "numpy", "torch") for key, one in value.items()
    )


def generators(tree: Raw, label: str = "") -> tuple[dict[str, Entry], dict[str, Raw]]:
    """Entries by generator, equal to the store's; and what in the tree is no generator's state, by key.

    `tree` is a dict of states, or one state. `label`, as "rank 1", marks the names of a further process.
    """
    found: dict[str, Entry] = {}
    rest: dict[str, Raw] = {}
    items = tree.items() if isinstance(tree, Mapping) and kind_of(None, tree) is None else [("rng", tree)]
    for told, value in items:
        key, own = _split_rank(told, label)
        kind = kind_of(key, value)
        states = list(_states(kind, value)) if kind else []
        if not states and not (kind == "cuda" and not value):
            rest[told if isinstance(told, str) else f"[{told}]"] = value
        merge(found, {f"{name} ({own})" if own else name: state for name, state in states})
    return found, rest


def _split_rank(key: Any, label: str) -> tuple[Any, str]:
    """A key and its process: "torch (rank 1)" is what a set of rank files has beside "torch"."""
    match = _OF_RANK.fullmatch(key) if isinstance(key, str) else None
    return (match["key"], match["rank"]) if match else (key, label)


def _states(kind: str, value: Raw) -> Iterator[tuple[str, Entry]]:
    if kind == "cuda":
        devices = value if isinstance(value, list | tuple) else [value]
        yield from ((f"cuda:{place}", entry(one)) for place, one in enumerate(devices) if isinstance(one, RawTensor))
    elif isinstance(value, RawTensor):
        yield kind, entry(value)
    elif kind == "python" and isinstance(value, list | tuple) and len(value) == 3:
        version, numbers, gauss = value
        is_state = isinstance(numbers, list | tuple) and all(type(one) is int for one in numbers)
        if is_state and isinstance(version, int) and isinstance(gauss, float | int | None):
            yield kind, entry(repr((version, tuple(numbers), gauss)))
    elif kind == "numpy" and is_plain(state := _numpy(unfolded(value))):
        yield kind, entry(state)


def _numpy(value: Raw) -> Raw:
    """The legacy generator of numpy as its own tuple, the key words as bytes; another's state as it is."""
    if isinstance(value, Mapping) and all(key in value for key in _LEGACY_NUMPY):
        inner = value["state"]
        if not isinstance(inner, Mapping) or not {"key", "pos"} <= set(inner):
            return value
        value = (value["bit_generator"], inner.get("key"), inner.get("pos"), value["has_gauss"], value["gauss"])
    if not isinstance(value, tuple | list) or len(value) < 2:
        return value
    kind, keys, *rest = value
    if isinstance(keys, RawTensor):
        if keys.spec.nbytes > MAX_NUMPY_BYTES or keys.spec.dtype != "uint32":
            return value
        keys = bytes(keys.fetch())
    return (kind, keys, *rest)
