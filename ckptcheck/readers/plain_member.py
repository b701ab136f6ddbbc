"""Stored bytes of formats that carry no checksum: all that can be verified is that they are there."""

from dataclasses import dataclass

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.source import Source, said_of
from ckptcheck.readers.tensor_bytes import watched
from ckptcheck.state.raw import Defect, Flaw, Member, Watch


def plain_member(source: Source, name: str) -> Member:
    """A member without a checksum; its `verify` reads every byte in blocks."""
    return Member(source.label, name, source.nbytes, False, _Reads(source, name))


@dataclass(frozen=True, slots=True, eq=False)
class _Reads:
    source: Source
    name: str

    def __call__(self, watch: Watch | None = None) -> Defect | None:
        try:
            for _ in watched(self.source, watch):
                pass
        except CheckpointError as trouble:
            return Defect(Flaw.UNREADABLE, self.source.label, f"{self.name}: {said_of(trouble, self.source.path)}")
        return None
