"""Zip archives of checkpoint files: stable-baselines3 saves a JSON `data` beside one torch file an object.

Pickles that the JSON holds as base64 texts under ":serialized:" stay texts.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.archive import Contents, archive_tree, is_whole
from ckptcheck.readers.folder_files import OWN_SUFFIXES, is_candidate
from ckptcheck.readers.held_pool import MAX_INFLATED_BYTES, held
from ckptcheck.readers.reader import Head
from ckptcheck.readers.refused import zip_refusal
from ckptcheck.readers.sidecar import note
from ckptcheck.readers.source import Source
from ckptcheck.readers.zip_content import read_member
from ckptcheck.readers.zip_directory import LOCAL_MAGIC, STORED, ZipDirectory, ZipMember, open_zip
from ckptcheck.state.raw import RawTree

if TYPE_CHECKING:
    from ckptcheck.readers.reading import Reading

DATA: Final = "data"
"""stable-baselines3's JSON has no suffix."""


class ZipArchive:
    """A zip with whole checkpoint files in it; container "zip", root a dict of member name to the member's value."""

    def claims(self, head: Head) -> bool:
        """A zip of its own with a member that has a checkpoint's suffix; torch's own zips are claimed before."""
        if not head.start.startswith(LOCAL_MAGIC) or not is_whole(head.source):
            return False
        try:
            names = open_zip(head.source).members
        except CheckpointError:
            return False
        return zip_refusal(set(names)) is None and any(name.endswith(tuple(OWN_SUFFIXES)) for name in names)

    def read(self, source: Source, reading: "Reading") -> RawTree:
        """All members that are checkpoints. CheckpointError where there is none."""
        directory = open_zip(source)
        contents = Contents(source, reading)
        room = MAX_INFLATED_BYTES
        for name, member in directory.members.items():
            if name != DATA and not is_candidate(name):
                contents.other.append(name)
                continue
            try:
                inner = _source(directory, member, contents.label(name), room)
            except DamagedCheckpointError as trouble:
                note(reading, trouble, contents.label(name))
                continue
            room -= 0 if member.method == STORED else inner.nbytes
            contents.take(name, inner)
        return archive_tree(contents, "zip")


def _source(directory: ZipDirectory, member: ZipMember, label: str, room: int) -> Source:
    """A member as a source: a window where it is stored, in memory where it is deflated.

    CheckpointError where a deflated one has more than `room` bytes.
    """
    if member.method == STORED:
        return replace(directory.payload(member), label=label)
    return held(directory.source, bytearray(read_member(directory, member.name, room)), label)
