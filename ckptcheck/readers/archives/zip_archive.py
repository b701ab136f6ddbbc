"""Zip archives of checkpoint files: stable-baselines3 saves a JSON `data` beside one torch file an object.

Pickles that the JSON holds as base64 texts under ":serialized:" stay texts.
"""

from dataclasses import replace
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.archives.archive import Contents, archive_tree, is_whole
from ckptcheck.readers.archives.held_pool import MAX_INFLATED_BYTES, held
from ckptcheck.readers.archives.zip_content import members_of, read_member
from ckptcheck.readers.archives.zip_directory import LOCAL_MAGIC, STORED, ZipDirectory, ZipMember, open_zip
from ckptcheck.readers.folders.folder_files import OWN_SUFFIXES, is_candidate
from ckptcheck.readers.folders.sidecar import note
from ckptcheck.readers.reader import Head
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.refused import zip_refusal
from ckptcheck.readers.source import Source
from ckptcheck.state.raw import RawTree

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

    def read(self, source: Source, reading: Reading) -> RawTree:
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
        tree = archive_tree(contents, "zip")
        inside = {name for name, inner in tree.files.items() if inner.members}
        held_here = [one for one in members_of(directory) if one.name not in inside]  # also what nobody else reads
        return replace(
            tree, members=(*tree.members, *(replace(one, file=contents.label(one.name)) for one in held_here))
        )


def _source(directory: ZipDirectory, member: ZipMember, label: str, room: int) -> Source:
    """A member as a source: a window where it is stored, in memory where it is deflated.

    CheckpointError where a deflated one has more than `room` bytes.
    """
    if member.method == STORED:
        return replace(directory.payload(member), label=label)
    return held(directory.source, bytearray(read_member(directory, member.name, room)), label)
