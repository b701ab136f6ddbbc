"""Stored bytes of formats that carry no checksum: all that can be verified is that they are there."""

from dataclasses import dataclass
from typing import Final

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.source import Source
from ckptcheck.state.raw import Defect, Flaw, Member

BLOCK_BYTES: Final = 2**20


def plain_member(source: Source, name: str) -> Member:
    """A member without a checksum; its `verify` reads every byte in blocks."""
    return Member(source.label, name, source.nbytes, False, _Reads(source, name))


@dataclass(frozen=True, slots=True, eq=False)
class _Reads:
    source: Source
    name: str

    def __call__(self) -> Defect | None:
        block = memoryview(bytearray(min(BLOCK_BYTES, self.source.nbytes)))
        try:
            for start in range(0, self.source.nbytes, BLOCK_BYTES):
                self.source.read_into(start, block[: self.source.nbytes - start])
        except CheckpointError as trouble:
            return Defect(Flaw.UNREADABLE, self.source.label, f"{self.name}: {trouble}")
        return None
