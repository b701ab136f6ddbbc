"""Tar archives of checkpoint files, plain or with gzip: .nemo. Members are read where they lie in the tar."""

from dataclasses import replace

from ckptcheck.readers.archives.archive import Contents, archive_tree, is_whole
from ckptcheck.readers.archives.held_pool import gunzip, held, inflated_start
from ckptcheck.readers.archives.tar_members import BLOCK_BYTES, is_tar, list_tar
from ckptcheck.readers.folders.folder_files import is_candidate
from ckptcheck.readers.reader import Head
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source
from ckptcheck.state.raw import Flaw, RawTree


class TarArchive:
    """An uncompressed tar; container "tar", root a dict of member name to the member's value."""

    def claims(self, head: Head) -> bool:
        """A tar header with its sum, in a file of its own."""
        return is_whole(head.source) and is_tar(head.start)

    def read(self, source: Source, reading: Reading) -> RawTree:
        """All members that are checkpoints. CheckpointError where there is none."""
        listing = list_tar(source)
        if not listing.has_end:
            reading.damaged(Flaw.INCOMPLETE, source.label, "the tar stops without its end mark: it was cut short")
        contents = Contents(source, reading)
        for member in listing.members:
            name = member.name.removeprefix("./")
            if is_candidate(name):
                contents.take(name, replace(source.window(member.begin, member.nbytes), label=contents.label(name)))
            else:
                contents.other.append(name)
        return archive_tree(contents, "tar")


class GzipTar:
    """A tar with gzip, decompressed in memory within a bound."""

    def claims(self, head: Head) -> bool:
        """The magic of gzip, and a tar header within."""
        return (
            is_whole(head.source) and head.start[:2] == b"\x1f\x8b" and is_tar(inflated_start(head.start, BLOCK_BYTES))
        )

    def read(self, source: Source, reading: Reading) -> RawTree:
        """As `TarArchive`; CheckpointError beyond the bound, DamagedCheckpointError where gzip's checksum fails."""
        tree = TarArchive().read(held(source, gunzip(source), source.label), reading)
        return replace(tree, nbytes=source.nbytes, facts={**tree.facts, "compression": "gzip"})
