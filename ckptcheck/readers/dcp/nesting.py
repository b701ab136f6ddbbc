"""Nested values rebuilt from the paths of their leaves."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from ckptcheck.state.raw import Raw

ItemPath: TypeAlias = tuple[str | int, ...]
"""Where a leaf lies: strings are keys, ints are positions in a list."""

_SPARE: Final = 64
"""Positions of a list that may be missing: what was empty leaves no leaf."""


class ClashError(ValueError):
    """A path that leads through a leaf, or to where another leaf or a container is."""


class _Branch(dict[str | int, Any]):
    """A container in the making."""


def nested(leaves: Iterable[tuple[ItemPath, Raw]]) -> Raw:
    """The container that holds each leaf at its path.

    Strings are keys of a dict, ints positions of a list; positions without a leaf are None. Ints beside strings, or
    ints with large gaps, are keys, written out as the writer writes keys that are ints. Raises `ClashError`.
    """
    root = _Branch()
    for path, leaf in leaves:
        here = root
        for part in path[:-1]:
            branch = here.setdefault(part, _Branch())
            if not isinstance(branch, _Branch):
                raise ClashError(f"{path!r} leads through a value that is no container")
            here = branch
        if path[-1] in here:
            raise ClashError(f"{path!r} is there twice")
        here[path[-1]] = leaf
    return _closed(root)


def _closed(branch: _Branch) -> Raw:
    held = {key: _closed(value) if isinstance(value, _Branch) else value for key, value in branch.items()}
    positions = [key for key in held if isinstance(key, int)]
    if positions and len(positions) == len(held) and min(positions) >= 0 and max(positions) < len(held) + _SPARE:
        return [held.get(position) for position in range(max(positions) + 1)]
    return {str(key): value for key, value in held.items()}
