"""Writers whose checkpoint is one dict in one file: what they have in common."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ckptcheck.conventions.files import files_of, keeps_order
from ckptcheck.conventions.parts import Parts, checkpoint, put
from ckptcheck.conventions.sorting import sort_dict
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTree

Root: TypeAlias = Mapping[Any, Raw]
"""What the file holds."""


@dataclass(frozen=True, slots=True)
class SingleFile:
    """A `Convention` of one dict.

    Attributes:
        name: the writer.
        wrote: whether it wrote a dict, told by the dict's keys and by what stands under them; the text is the file's
            name. Must not raise.
        sort: the parts of such a dict.
    """

    name: str
    wrote: Callable[[Root, str], bool]
    sort: Callable[[Root], Parts]

    def claims(self, raw: RawTree) -> bool:
        """Whether the root is a dict of this writer's."""
        return isinstance(raw.root, Mapping) and not files_of(raw) and self.wrote(raw.root, raw.path.name)

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """The parts where this writer keeps them; what a user put beside them is sorted as in any script's dict."""
        parts = self.sort(raw.root)
        parts.ordered = keeps_order(raw, "")
        return checkpoint(raw, self.name, parts, names)


def sorted_beside(
    root: Root, *, described: Collection[str] = (), taken: Collection[str] = (), model: Raw = None
) -> Parts:
    """The values of a dict sorted by key and content, but for two kinds.

    `described` belong to the writer's format and are no state that a training goes on with, whatever is in them;
    `taken` the writer's convention sorts itself. `model` is the one that trains, where that is among them.
    """
    rest = {key: value for key, value in root.items() if key not in described and key not in taken}
    parts = sort_dict(rest, model=model)
    for key in described:
        if key in root:
            put(parts.extra, key, root[key])
    return parts


def leave(parts: Parts, path: str, value: Raw) -> None:
    """Keep a value that lies where a part should and is none; None says that there is no such part."""
    kept = put(parts.extra, path, value)
    if value is not None:
        parts.unrecognised.append(kept)
