"""One pickle of a checkpoint as a raw value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckptcheck.errors import CheckpointError
from ckptcheck.garbage import no_garbage_search
from ckptcheck.readers.pickle.finite import Finite, finite
from ckptcheck.readers.pickle.inline_storages import INLINE_BUILDERS
from ckptcheck.readers.pickle.numpy_values import NUMPY_BUILDERS
from ckptcheck.readers.pickle.pickle_globals import globals_of
from ckptcheck.readers.pickle.pickle_machine import Builder, Machine, Persistent
from ckptcheck.readers.pickle.pickle_opcodes import OPCODES
from ckptcheck.readers.pickle.plain_values import PLAIN_BUILDERS
from ckptcheck.readers.pickle.torch_rebuilds import TORCH_BUILDERS
from ckptcheck.state.raw import Global, Raw

BUILDERS: Final[Mapping[str, Builder]] = {**PLAIN_BUILDERS, **NUMPY_BUILDERS, **TORCH_BUILDERS, **INLINE_BUILDERS}
"""Everything that a pickle can call here."""
MAX_PICKLE_BYTES: Final = 1 << 30
"""A pickle is held in memory while it is read; the storages of torch are not in it."""
TEXT_FACTOR: Final = 16
TEXT_BYTES: Final = 32 << 20
"""Texts and paths may unfold to this much more than so many times the pickle: one text can be reached from anywhere."""


@dataclass(frozen=True, slots=True)
class Pickled:
    """What a pickle held. `end` is the position after it: there the next begins, where several lie back to back.

    `tensor_bytes` are logical, of all tensors, counting one as often as it is reached.
    """

    value: Raw
    end: int
    protocol: int
    globals: tuple[Global, ...]
    tensor_bytes: int = 0


def read_pickle(
    data: bytes,
    *,
    where: str,
    file: str = "",
    persistent: Persistent | None = None,
    start: int = 0,
    bounded: bool = True,
) -> Pickled:
    """Read the pickle that begins at byte `start`; nothing is imported and nothing of it is called.

    `where` begins each message, `file` is the file's path relative to the checkpoint. `persistent` says what a
    persistent id stands for; without it there must be none. Without `bounded` the value is not checked: it may contain
    itself and be of any depth, and is for whoever looks at a few levels of it only. Raises DamagedCheckpointError
    where the bytes are no pickle, CheckpointError beyond our bounds (see `pickle_machine`).
    """
    machine = Machine(data, where, BUILDERS, persistent, start)
    with no_garbage_search():
        end = machine.run(OPCODES, start)
        top = machine.stack[-1]
        found = finite(top, where) if bounded else Finite(top, 0, 0)
    if found.text_bytes > TEXT_FACTOR * (end - start) + TEXT_BYTES:
        raise CheckpointError(
            f"{where}: a pickle of {end - start} bytes unfolds to {found.text_bytes} bytes of texts, arrays and paths: "
            f"not read"
        )
    named = globals_of(machine.names, file, machine.graded)
    return Pickled(found.value, end, machine.protocol, named, found.tensor_bytes)
