"""A mutant: one file of the package with one mistake in it."""

import difflib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hand:
    """A mistake written by hand. `path` is below `ckptcheck/`; `old` stands in it exactly once."""

    name: str
    path: str
    old: str
    new: str
    why: str
    """What would go unseen, or be told wrongly."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutated file. `path` is from the top of the repository; `lines` are those of the original that changed."""

    name: str
    path: str
    original: str
    mutated: str
    lines: tuple[int, ...]
    why: str = ""

    @property
    def package(self) -> str:
        """The room of the package that it stands in."""
        return self.path.split("/")[1].removesuffix(".py")

    @property
    def diff(self) -> str:
        """What was changed, without headers and context."""
        pair = self.original.splitlines(), self.mutated.splitlines()
        lines = list(difflib.unified_diff(*pair, lineterm="", n=0))[2:]
        return "\n".join(line for line in lines if not line.startswith("@@"))

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.lines[0]}"


def mutant(name: str, path: str, original: str, mutated: str, why: str = "") -> Mutant:
    """Make a mutant from the text of both sides, which differ."""
    pair = original.splitlines(), mutated.splitlines()
    lines: list[int] = []
    for tag, first, last, _, _ in difflib.SequenceMatcher(None, *pair, autojunk=False).get_opcodes():
        if tag != "equal":
            lines += range(first + 1, max(last, first + 1) + 1)
    return Mutant(name, path, original, mutated, tuple(lines), why)
