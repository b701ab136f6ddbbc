"""What archives of checkpoint files have in common: members claimed by content, and one tree of them."""

from dataclasses import dataclass, field
from pathlib import Path

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.folders.folder_files import MAX_TOLD
from ckptcheck.readers.folders.sidecar import note
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source, quoted, said_of
from ckptcheck.state.raw import RawTree


@dataclass(slots=True)
class Contents:
    """The members of one archive as they are read; `other` are the names of those that are no checkpoints."""

    source: Source
    reading: Reading
    files: dict[str, RawTree] = field(default_factory=dict)
    other: list[str] = field(default_factory=list)

    def label(self, name: str) -> str:
        """What to call a member beside the checkpoint's own path."""
        return f"{self.source.label}/{name}" if self.source.label else name

    def take(self, name: str, member: Source) -> None:
        """Read a member that may belong to a checkpoint."""
        if name in self.files:
            raise DamagedCheckpointError(f"{self.source}: has the member {quoted(name)} twice")
        try:
            self.files[name] = self.reading.content(member)
        except DamagedCheckpointError as trouble:
            place = Path(f"{self.source}/{name}")
            said = said_of(trouble, place)
            note(self.reading, DamagedCheckpointError(f"{place}: {said}", trouble.flaw), self.label(name))
        except CheckpointError:
            self.other.append(name)


def is_whole(source: Source) -> bool:
    """Whether a source begins where its file does: archives within archives are not opened."""
    return source.begin == 0


def archive_tree(contents: Contents, container: str) -> RawTree:
    """The archive's tree. CheckpointError where no member is a checkpoint."""
    source, reading, files = contents.source, contents.reading, contents.files
    if not files and not reading.defects:
        raise CheckpointError(f"{source}: is an archive without a checkpoint in it ({_first(contents.other)})")
    facts = {"other_files": sorted(contents.other)[:MAX_TOLD]} if contents.other else {}
    return RawTree(
        path=reading.path,
        container=container,
        root={name: tree.root for name, tree in files.items()},
        nbytes=source.nbytes,
        files=files,
        members=tuple(member for tree in files.values() for member in tree.members),
        globals=tuple(one for tree in files.values() for one in tree.globals),
        defects=tuple(reading.defects),
        facts=facts,
        check_unchanged=reading.pool.check_unchanged,
    )


def _first(names: list[str]) -> str:
    return f"it holds {', '.join(map(quoted, names[:3]))}" if names else "it is empty"
