"""Seeded choices that remember what was chosen."""

import random
from collections.abc import Callable, Sequence
from typing import Any


class Draw:
    """A source of choices; `said` is the recipe: what was drawn, by name, in order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.said: dict[str, str] = {"seed": str(seed)}

    def pick(self, what: str, options: Sequence[Any]) -> Any:
        """One of several; functions are told by their names."""
        one = self.random.choice(options)
        self.said[what] = one.__name__ if isinstance(one, Callable) else str(one)
        return one

    def chance(self, what: str, share: float) -> bool:
        """Whether something that is true so often."""
        one = self.random.random() < share
        if one:
            self.said[what] = "yes"
        return one

    def number(self, what: str, least: int, most: int) -> int:
        """A whole number between two, both in."""
        one = self.random.randint(least, most)
        self.said[what] = str(one)
        return one

    @property
    def recipe(self) -> str:
        """What was drawn, in one line."""
        return " ".join(f"{key}={value}" for key, value in self.said.items())
