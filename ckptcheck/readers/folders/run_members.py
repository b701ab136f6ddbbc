"""The checkpoints of one run that lie in a folder beside each other, told by the numbers in their names."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.folders.folder_files import NUMBERED, at_top
from ckptcheck.readers.reader import Listing
from ckptcheck.readers.reading import list_folder
from ckptcheck.readers.source import inside

LOOSE: Final = re.compile(r".+\.(?:pt|pth|ckpt|pth\.tar|pt\.tar|zip|nemo)")
"""A file that can be a whole checkpoint beside others."""
_STEP: Final = re.compile(
    r"(?<![a-z])(?:global_?step|steps?|iteration|iter|it)[-_=]?(\d+)|(?<!\d)(\d+)[-_]steps?(?=\.)", re.IGNORECASE
)
_OTHER: Final = re.compile(
    r"(?<![a-z])(?:(?:epochs?|ep|checkpoint|ckpt|snapshot)[-_=]?|model[-_=](?=\d{4}))(\d+)", re.IGNORECASE
)
"""A number in a file's name that counts steps, and one that counts something else; that of a metric is neither, nor
that of one model of several."""


_PLAIN: Final = re.compile(
    r"(?:(?:m|model|net|network|weights|save|saved|state)(?:[-_][a-z])?[-_=]?)?(\d+)\.[a-z.]+", re.I
)
"""A number in a file's name that may count anything: steps, or the models of several that belong together."""


@dataclass(frozen=True, slots=True)
class RunMember:
    """One checkpoint of a run: its name in the run's folder, the number in it, and when it was written (seconds)."""

    name: str
    number: int
    path: Path
    written_s: float


def numbered_files(labels: list[str]) -> dict[str, int]:
    """The numbers of files that have names of one kind, as epoch_1.pt and epoch_2.pt; empty where one has another."""
    kinds = {re.sub(r"\d+", "#", label) for label in labels}
    found = {label: number for label in labels if (number := _number(label))}
    numbers = {label: int(number) for label, number in found.items() if len(number) <= 18}
    is_series = len(kinds) == 1 and len(numbers) == len(labels) == len(set(numbers.values())) > 1
    return numbers if is_series else {}


def counts_something(label: str) -> bool:
    """Whether the number in a file's name surely counts steps, epochs or saves."""
    return bool(_STEP.search(label) or _OTHER.search(label))


def _number(label: str) -> str:
    found = _STEP.search(label) or _OTHER.search(label) or _PLAIN.fullmatch(label)
    return next((one for one in found.groups() if one), "") if found else ""


def numbered_folders(listing: Listing) -> dict[str, tuple[str, int]]:
    """Sub-folders that are one checkpoint each: family and number by name."""
    matches = {name: NUMBERED.fullmatch(name) for name in listing.folders}
    return {name: (match["family"], int(match["number"])) for name, match in matches.items() if match}


def members_beside(chosen: Path, top: Path) -> tuple[Path, tuple[RunMember, ...]]:
    """The run's folder and its checkpoints in the order of their numbers, that of `chosen` among them.

    `chosen` lies in `top`, perhaps some folders deeper. No members where it has no numbered one beside it.
    """
    folder = chosen
    while folder not in (top, folder.parent):
        within, folder = folder, folder.parent
        found = _members(list_folder(folder), within.name)
        if len(found) > 1:
            return folder, found
    return top, ()


def _members(listing: Listing, name: str) -> tuple[RunMember, ...]:
    """Those of the kind that `name` is, in order; none where it has no number."""
    folders = numbered_folders(listing)
    if name in folders:
        family = folders[name][0]
        numbers = {one: number for one, (kind, number) in folders.items() if kind == family}
    else:
        kind = re.sub(r"\d+", "#", name)
        alike = [one for one in at_top(listing) if LOOSE.fullmatch(one) and re.sub(r"\d+", "#", one) == kind]
        numbers = numbered_files(alike)
    found = []
    for one, number in numbers.items():
        try:
            path = inside(listing.path, one)
        except CheckpointError:
            continue  # a link that leads out of the folder
        found.append(RunMember(one, number, path, _written_s(path)))
    return tuple(sorted(found, key=lambda one: one.number))


def _written_s(path: Path) -> float:
    """When a file, or the latest of the files straight in a folder, was written; 0.0 where nobody can tell."""
    try:
        if not path.is_dir():
            return path.stat().st_mtime
        with os.scandir(path) as entries:
            return max((one.stat().st_mtime for one in entries if one.is_file()), default=0.0)
    except OSError:
        return 0.0
