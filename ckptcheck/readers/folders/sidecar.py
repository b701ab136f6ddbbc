"""One file among others: read in its own right, its damage told by its place in the checkpoint."""

from pathlib import Path

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import inside, said_of
from ckptcheck.state.raw import Defect, Flaw, RawTree


def read_beside(reading: Reading, folder: Path, name: str, label: str) -> RawTree | None:
    """The file `name` of `folder`, None where it is damaged and the reading is not strict: a defect says so.

    A link that leads out of the folder and a file that cannot be opened are damage. Raises CheckpointError where
    the file is whole but no checkpoint.
    """
    try:
        source = reading.pool.open(inside(folder, name), label)
    except CheckpointError as trouble:
        note(reading, trouble, label)
        return None
    try:
        return reading.content(source)
    except DamagedCheckpointError as trouble:
        note(reading, trouble, label)
        return None


def note(reading: Reading, trouble: CheckpointError, label: str) -> None:
    """Take an error for a defect of the file `label`; raise it as damage where the reading is strict."""
    flaw = Flaw(trouble.flaw) if isinstance(trouble, DamagedCheckpointError) else Flaw.UNREADABLE
    if reading.strict:
        raise DamagedCheckpointError(str(trouble), flaw) from None
    reading.defects.append(Defect(flaw, label, said_of(trouble, Path(f"{reading.path}/{label}"))))


def label_prefix(reading: Reading, folder: Path) -> str:
    """What comes before the names of a folder's files in their labels: "" at the top, "sub/" below."""
    return "" if folder == reading.path else folder.relative_to(reading.path).as_posix() + "/"
