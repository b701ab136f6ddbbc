"""Keeping what is ours out of torch.compile, which would else trace it, or compile it as a part of the script."""

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

import torch

from ckptcheck.trace.script.guard import GUARD


class Apart:
    """Loading dynamo takes seconds, and is for torch.compile and optimizers to do; until then nothing is kept apart."""

    def __init__(self) -> None:
        self._codes: list[CodeType] = []
        self._is_loaded = False
        self.tell: Callable[..., None] = GUARD.tell
        self.run: Callable[..., None] = GUARD.run

    def skip(self, code: CodeType) -> None:
        """Have dynamo pass over a function and go on with what it calls. Where it traces its caller, it sees it."""
        self._codes.append(code)
        if self._is_loaded:
            _skip(code)

    def __call__(self, function: Callable[..., Any]) -> Any:
        """The function as one that dynamo neither traces nor compiles, nor anything that it calls."""
        disable: Any = torch.compiler.disable
        return disable(function) if self._is_loaded else function

    def renewed(self) -> bool:
        """Whether dynamo has been loaded since it was last asked for."""
        if self._is_loaded or "torch._dynamo" not in sys.modules:
            return False
        self._is_loaded = True
        self.tell, self.run = self(GUARD.tell), self(GUARD.run)
        for code in self._codes:
            _skip(code)
        return True


def _skip(code: CodeType) -> None:
    skip_code = getattr(sys.modules.get("torch._dynamo.eval_frame"), "skip_code", None)
    if skip_code is not None:
        skip_code(code)


APART: Final = Apart()
"""The one of this process."""
