"""Storages in a plain pickle of tensors: each is bytes, which are a torch.save of their own in the stream format.

The format: torch/storage.py (`__reduce__`, `_load_from_bytes`), torch/serialization.py (`_legacy_save`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.pickle.pickle_machine import Builder, Machine
from ckptcheck.readers.pickle.pickle_opcodes import OPCODES
from ckptcheck.readers.pickle.torch_tensors import PendingStorage, named_storage
from ckptcheck.readers.tensor_bytes import Held
from ckptcheck.state.raw import Danger, Foreign, Raw, Storage

_NAME: Final = "torch.storage._load_from_bytes"
_STORAGE_MODULES: Final = frozenset({"torch", "torch.storage", "torch.cuda"})
_MAGIC: Final = 0x1950A86A20F9469CFC6C


def _load_from_bytes(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    """The storage, where the bytes hold one and nothing else; torch would run whatever pickle they are."""
    try:
        if len(args) == 1 and type(args[0]) is bytes:
            stored = _storage_in(machine, args[0])
            machine.grade_call(_NAME, Danger.PLAIN)
            return stored
    except CheckpointError:
        pass  # no storage as torch writes it: named, and left as the bytes that it is
    machine.grade_call(_NAME, Danger.RUNS_CODE)
    return Foreign(_NAME, args)


def _storage_in(machine: Machine, content: bytes) -> PendingStorage:
    machine.copy_bytes(len(content))
    stream = _Stream(content, f"{machine.where}: a storage in it")
    system = stream.pickle() if stream.pickle() == _MAGIC and stream.pickle() == 1001 else None
    stored = stream.pickle()
    keys = stream.pickle()
    if not isinstance(system, dict) or not isinstance(stored, PendingStorage) or keys != [stored.storage.key]:
        raise machine.damaged("has a storage in other than torch's form")
    order = "little" if system.get("little_endian") is not False else "big"
    begin = stream.position + 8
    count = int.from_bytes(content[stream.position : begin], order)  # type: ignore[arg-type]
    held = content[begin:]
    if count != stored.numel or len(held) != stored.storage.nbytes:
        raise machine.damaged("has a storage of another length than it says")
    # The key is an address; in the order of the pickle it is the same in every save.
    storage = Storage("", f"in the pickle before byte {machine.copied_bytes}", len(held))
    return replace(stored, storage=storage, run=Held(held), is_big_endian=order == "big")


class _Stream:
    """Pickles back to back that name nothing but the class of one storage."""

    def __init__(self, content: bytes, where: str) -> None:
        self.content = content
        self.where = where
        self.position = 0

    def pickle(self) -> Raw:
        machine = Machine(self.content, self.where, {}, self._persistent, self.position)
        self.position = machine.run(OPCODES, self.position)
        if any(module not in _STORAGE_MODULES or not name.endswith("Storage") for module, name in machine.names):
            raise machine.damaged("names more than a storage")
        return machine.stack[-1]

    def _persistent(self, persistent_id: Raw) -> PendingStorage:
        where = self.where
        return named_storage(persistent_id, lambda *_: Held(b""), file="", where=where, is_big_endian=False)


INLINE_BUILDERS: Final[Mapping[str, Builder]] = {_NAME: _load_from_bytes}
"""The builder of a storage that lies in the pickle."""
