"""Read a store without torch: its training state, described first and fetched late."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptcheck.errors import StoreError
from ckptcheck.state.digest import PLAIN_DIGEST, Digest, plain_digest
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import SECTIONS, Entry, Group, Optimizer, Parameter, TrainingState
from ckptcheck.state.tree import canonical, flatten
from ckptcheck.store import arrays, layout, manifest_file, payload
from ckptcheck.store.decoding import Decoder
from ckptcheck.store.manifest import Encoded, Manifest, OptimizerRecord
from ckptcheck.store.payload import StoredTensor


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store whose manifest and payload headers have been read and fit each other. No tensor has been read.

    `tensors` has the tensors of each payload by role and key.
    """

    folder: Path
    manifest: Manifest
    tensors: Mapping[str, Mapping[str, StoredTensor]]


@dataclass(frozen=True, slots=True)
class StoredSparse:
    """A sparse tensor as far as it is known without torch."""

    spec: TensorSpec
    digest: Digest


@dataclass(frozen=True, slots=True)
class TorchName:
    """A torch dtype or device, known by the text that torch itself shows for it."""

    text: str

    def __repr__(self) -> str:
        return self.text


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether the folder holds a training state that `save` wrote, told by the manifest's content."""
    return manifest_file.claims(Path(path))


def open_store(path: str | os.PathLike[str]) -> OpenStore:
    """Open a store; StoreError when it is absent, damaged, written by a newer format, or made to mislead."""
    folder = Path(path)
    manifest = manifest_file.read(folder)
    tensors = {role: payload.open_payload(folder, record) for role, record in manifest.payloads.items()}
    return OpenStore(folder, manifest, tensors)


def read_state(path: str | os.PathLike[str]) -> TrainingState:
    """The training state of a store; digests are those of the manifest, `fetch()` reads a tensor's bytes.

    Needs no torch. Section paths begin with the position where there are several objects, in `extra` with the
    name. Raises StoreError as `open_store` does.
    """
    store = open_store(path)
    entries = _Entries(store)
    manifest = store.manifest
    held = store.tensors.get(layout.MODEL, {})
    return TrainingState(
        source=f"training state saved by ckptcheck in {store.folder}",
        step=manifest.step,
        parameters={
            name: Parameter(
                name=name,
                entry=_entry(held[name]),
                aliases=record.aliases,
                requires_grad=record.requires_grad,
                presence=record.presence,
                grad=None if record.gradient is None else entries.one(record.gradient, f"gradient of {name}"),
            )
            for name, record in manifest.parameters.items()
        },
        buffers={name: _entry(held[name]) for name in manifest.buffers},
        optimizers=tuple(entries.optimizer(record, place) for place, record in enumerate(manifest.optimizers)),
        sections={section: entries.section(section) for section in SECTIONS if section in manifest.sections},
        rng={name: entries.generator(name, node) for name, node in manifest.rng.items()},
        modes=manifest.modes,
        flags=manifest.flags,
    )


class _Entries:
    """Encoded values of one store as entries."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._decode = Decoder(_PlainSource(store))

    def one(self, node: Encoded, what: str) -> Entry:
        return _entry(self._decode.at(node, f"{self._store.folder}, {what}"))

    def tree(self, node: Encoded, what: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
        value = self._decode.at(node, f"{self._store.folder}, {what}")
        return ((path, _entry(leaf)) for path, leaf in flatten(value, prefix))

    def section(self, section: str) -> dict[str, Entry]:
        objects = self._store.manifest.sections[section]
        found: dict[str, Entry] = {}
        for label, record in objects.items():
            prefix = label if section == "extra" else f"[{label}]" if len(objects) > 1 else ""
            found.update(self.tree(record.state, f"{section} {label!r}", prefix))
        return found

    def generator(self, name: str, node: Encoded) -> Entry:
        state = self._decode.at(node, f"{self._store.folder}, rng {name}")
        if name == "numpy" and isinstance(state, tuple) and len(state) > 1:
            kind, keys, *rest = state
            state = (kind, keys.tobytes() if arrays.is_numpy(keys) else keys, *rest)
        return _entry(repr(state) if name == "python" else state)

    def optimizer(self, record: OptimizerRecord, place: int) -> Optimizer:
        what = f"optimizer {place}"
        named = {**record.state, **record.orphans}
        state = {name: dict(self.tree(node, f"{what}, {name}")) for name, node in named.items()}
        for key, value in self._decode.at(record.loose, f"{self._store.folder}, {what}"):
            state[str(key)] = {path: _entry(leaf) for path, leaf in flatten(value)}
        groups = tuple(
            Group(
                members=tuple(None if name in record.unnamed else name for name in group.members),
                hyperparameters=dict(self.tree(group.hyperparameters, f"{what}, group {number}")),
            )
            for number, group in enumerate(record.groups or ())
        )
        return Optimizer(record.class_name, groups, state)


def _entry(leaf: Any) -> Entry:
    if isinstance(leaf, StoredTensor):
        return Entry(leaf.spec, leaf.digest, value=leaf.record.value, ref=leaf)
    if isinstance(leaf, StoredSparse):
        return Entry(leaf.spec, leaf.digest)
    text = leaf.text if isinstance(leaf, TorchName) else canonical(leaf)
    digest = Digest(PLAIN_DIGEST, plain_digest(text))
    is_number = isinstance(leaf, bool | int | float) and abs(leaf) < 2**53
    return Entry(None, digest, value=leaf if is_number else text)


class _PlainSource:
    """The decoder's source without torch: tensors stay descriptions, torch's small types become text and tuples."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store

    def foreign(self, node: dict[str, Any], decode: Decoder) -> Any:
        tag = node["$"]
        if tag == "tensor":
            return self._store.tensors[node["role"]][node["key"]]
        if tag == "sparse":
            spec, (algorithm, digits) = TensorSpec(node["dtype"], tuple(node["shape"])), node["digest"].split(":")
            return StoredSparse(spec, Digest(algorithm, bytes.fromhex(digits)))
        if tag in ("array", "scalar"):
            return self._array(node, decode)
        if tag == "size":
            return tuple(node["items"])
        if tag == "dtype":
            return TorchName(f"torch.{node['name']}")
        if tag == "device":
            kind, _, index = node["name"].partition(":")
            return TorchName(f"device(type={kind!r}, index={index})" if index else f"device(type={kind!r})")
        raise ValueError(f"unknown tag {tag!r}")

    def blob(self, place: Encoded) -> bytes:
        role, key = place
        return bytes(self._store.tensors[role][key].fetch())

    def _array(self, node: dict[str, Any], decode: Decoder) -> Any:
        try:
            return arrays.decode(node, decode, self.blob)
        except ImportError:
            raise StoreError(
                f"{self._store.folder}: holds numpy values, and numpy is not installed: pip install numpy"
            ) from None
