"""One pickle of a checkpoint as a raw value."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ckptcheck.readers.finite import make_finite
from ckptcheck.readers.inline_storages import INLINE_BUILDERS
from ckptcheck.readers.numpy_values import NUMPY_BUILDERS
from ckptcheck.readers.pickle_globals import globals_of
from ckptcheck.readers.pickle_machine import Builder, Machine, Persistent
from ckptcheck.readers.pickle_opcodes import OPCODES
from ckptcheck.readers.plain_values import PLAIN_BUILDERS
from ckptcheck.readers.torch_rebuilds import TORCH_BUILDERS
from ckptcheck.state.raw import Global, Raw

BUILDERS: Final[Mapping[str, Builder]] = {**PLAIN_BUILDERS, **NUMPY_BUILDERS, **TORCH_BUILDERS, **INLINE_BUILDERS}
"""Everything that a pickle can call here."""
MAX_PICKLE_BYTES: Final = 1 << 30
"""A pickle is held in memory while it is read; the storages of torch are not in it."""


@dataclass(frozen=True, slots=True)
class Pickled:
    """What a pickle held. `end` is the position after it: there the next begins, where several lie back to back."""

    value: Raw
    end: int
    protocol: int
    globals: tuple[Global, ...]


def read_pickle(
    data: bytes,
    *,
    where: str,
    file: str = "",
    persistent: Persistent | None = None,
    start: int = 0,
    finite: bool = True,
) -> Pickled:
    """Read the pickle that begins at byte `start`; nothing is imported and nothing of it is called.

    `where` begins each message, `file` is the file's path relative to the checkpoint. `persistent` says what a
    persistent id stands for; without it there must be none. Without `finite` the value is not checked: it may contain
    itself and be of any depth, and is for whoever looks at a few levels of it only. Raises DamagedCheckpointError
    where the bytes are no pickle, CheckpointError beyond our bounds (see `pickle_machine`).
    """
    machine = Machine(data, where, BUILDERS, persistent, start)
    with no_garbage_search():
        end = machine.run(OPCODES, start)
        value = make_finite(machine.stack[-1], where) if finite else machine.stack[-1]
    return Pickled(value, end, machine.protocol, globals_of(machine.names, file, machine.graded))


@contextmanager
def no_garbage_search() -> Iterator[None]:
    """Searches no garbage meanwhile: among the many containers of a description there is none, and it takes long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
