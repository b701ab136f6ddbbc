"""Wrapper prefixes in names: DDP, compile, FSDP, activation checkpointing, Lightning Fabric."""

from collections.abc import Iterable
from typing import Final

ANYWHERE: Final = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
"""Parts of a name that only a wrapper has: taken out wherever they stand."""
OUTERMOST: Final = "module."
"""Taken off only where every name has it: a user's own child may be called `module`."""
BESIDE: Final = frozenset({"n_averaged"})
"""What an averaged model keeps beside the wrapped one."""


class Stripper:
    """Takes wrapper prefixes off names, as they were found in a model's names.

    `found` holds what was taken off, in the order of discovery. Where two names would become one, none is changed.
    """

    def __init__(self, names: Iterable[str], beside: Iterable[str] = ()) -> None:
        """`names` tell the wrappers; `beside` are further names that must stay unlike."""
        self._names = [*dict.fromkeys(names)]
        every = {*self._names, *beside}
        self.found: tuple[str, ...] = ()
        plain = [_inner(name) for name in self._names]
        wrapped = [name for name in plain if name not in BESIDE]
        self._outermost = min(map(_depth, wrapped), default=0)
        if len({self._strip(name) for name in every}) < len(every):
            self._outermost = 0
            self._names = []
            return
        outer = (OUTERMOST,) if self._outermost else ()
        within = [part for part in ANYWHERE if any(part in name.split(".") for name in self._names)]
        self.found = (*outer, *(f"{part}." for part in within))

    def strip(self, name: str) -> str:
        """The name without the wrappers that were found; a name that was not among them likewise."""
        return self._strip(name) if self._names else name

    def _strip(self, name: str) -> str:
        plain = _inner(name)
        return plain[len(OUTERMOST) * min(_depth(plain), self._outermost) :]


def _depth(name: str) -> int:
    """How often `OUTERMOST` can be taken off a name's front so that something is left."""
    end = 0
    while name.startswith(OUTERMOST, end) and end + len(OUTERMOST) < len(name):
        end += len(OUTERMOST)
    return end // len(OUTERMOST)


def _inner(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in ANYWHERE)
