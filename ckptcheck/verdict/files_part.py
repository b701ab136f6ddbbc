"""What a result says of a checkpoint's files: size, container, checksums."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ckptcheck.finding import Json
from ckptcheck.state.raw import Member, RawTree


def files_part(raw: RawTree) -> list[Json]:
    """One row a file: its size, its container and whether its bytes carry checksums."""
    trailing = dict(_trailing(raw))
    carries: dict[str, list[Member]] = {}
    for member in raw.members:
        carries.setdefault(member.file, []).append(member)
    return [
        {
            "path": path,
            "bytes": nbytes,
            "container": container,
            "checksums": _said([one.has_checksum for one in carries.get(path) or members if one.nbytes]),
            **({"trailing_bytes": trailing[path]} if trailing.get(path) else {}),
        }
        for path, nbytes, container, members in _files(raw, "")
    ]


def _trailing(tree: RawTree, path: str = "") -> Iterator[tuple[str, int]]:
    """Of each file that says so, how many bytes are behind its end."""
    yield path, tree.facts.get("trailing_bytes", 0)
    for label, inner in tree.files.items():
        yield from _trailing(inner, label)


_File: TypeAlias = tuple[str, int, str, Sequence[Member]]


def _files(tree: RawTree, path: str) -> Iterator[_File]:
    """Path, bytes, container and members of each file: those of an archive within are one, slices of DCP are not."""
    if tree.container == "dcp":
        slices: dict[str, list[Member]] = {}
        for member in tree.members:
            slices.setdefault(member.file, []).append(member)
        for file, held in slices.items():
            if file not in tree.files:
                yield file, sum(one.nbytes for one in held), "dcp", held
    is_one_file = not tree.files or (path and tree.container in ("zip", "tar"))
    if is_one_file and tree.container != "dcp":
        yield path, tree.nbytes, tree.container, tree.members
        return
    for label, inner in tree.files.items():
        yield from _files(inner, label)


def _said(carries: Sequence[bool]) -> str:
    if not any(carries):
        return "off"
    return "on" if all(carries) else "in part"
