"""What a case of a checkpoint or of two is: a fault with the code that tells it, or legal: no error may hit it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Made = Path | tuple[Path, Path]
"""One checkpoint, which `check` judges, or two, which `diff` does by findings."""
Make = Callable[[Path], Made]
"""Writes into an empty folder and returns what lies there."""


@dataclass(frozen=True)
class Faulty:
    """A fault, and what must be said of it. `options` are those of the verb; `mechanism` is that of public reports.

    `parameter` must be the place of a finding of `code`, or be named in its message.
    """

    name: str
    make: Make
    code: str
    parameter: str | None = None
    severity: str = "error"
    options: Mapping[str, Any] = field(default_factory=dict)
    mechanism: str = ""


@dataclass(frozen=True)
class Legal:
    """What is as it should be: no finding of severity error, and none at all of the codes in `silent`."""

    name: str
    make: Make
    options: Mapping[str, Any] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
