"""What a comparison leaves out, and by what patterns."""

import re
from collections.abc import Sequence
from fnmatch import translate

from ckptcheck.comparison.pairs import Pair


class Selection:
    """Globs that choose pairs.

    A pattern is held against the whole place ("optimizer/layer.weight/step", where `*` also crosses a "/"), the
    section, the parameter's name and the key: "model", "backbone.*", "optimizer/*/step" and "exp_avg" all work.
    """

    def __init__(self, only: Sequence[str], ignored: Sequence[str]) -> None:
        self._only = [(pattern, re.compile(translate(pattern))) for pattern in only]
        self._ignored = [(pattern, re.compile(translate(pattern))) for pattern in ignored]
        self._used: set[str] = set()
        self._left_out = 0

    def choose(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs that are to be compared."""
        if not self._only and not self._ignored:
            return pairs
        chosen = [pair for pair in pairs if self._wants(pair)]
        self._left_out = len(pairs) - len(chosen)
        return chosen

    def wants(self, pair: Pair) -> bool:
        """Whether one pair is to be compared."""
        return self._wants(pair)

    def sentences(self) -> list[str]:
        """What was left out."""
        if not self._left_out:
            return []
        given = [f"--only {pattern!r}" for pattern, _ in self._only]
        given += [f"--ignore {pattern!r}" for pattern, _ in self._ignored]
        return [f"{self._left_out} tensors and values that were left out by {', '.join(given)}"]

    def idle(self) -> list[str]:
        """Which patterns chose nothing, one sentence each; asked when all is chosen."""
        said = []
        for option, patterns in (("--only", self._only), ("--ignore", self._ignored)):
            idle = [pattern for pattern, _ in patterns if f"{option} {pattern}" not in self._used]
            said += [f"nothing is called as {option} {pattern!r} says" for pattern in idle]
        return said

    def _wants(self, pair: Pair) -> bool:
        names = [name for name in (pair.place, pair.section, pair.parameter, pair.key) if name is not None]
        wanted = not self._only or self._matches("--only", self._only, names)
        return wanted and not self._matches("--ignore", self._ignored, names)

    def _matches(self, option: str, patterns: list[tuple[str, re.Pattern[str]]], names: list[str]) -> bool:
        found = False
        for pattern, compiled in patterns:
            if any(compiled.match(name) for name in names):
                self._used.add(f"{option} {pattern}")
                found = True
        return found
