"""Which calls of an optimizer's `step` are the outermost ones: the others are parts of these."""

import sys
from types import CodeType, FrameType
from typing import Any, Final

from torch.optim.optimizer import Optimizer


def is_outermost(optimizer: Any) -> bool:
    """Whether this is not a step inside the optimizer's own step, as where a subclass calls `super().step()`.

    Read off the call stack: a count would go wrong where a step raises and its caller goes on.
    """
    frame: FrameType | None = sys._getframe(1)
    steps = 0
    while frame is not None:
        if frame.f_code in STEP_CODES and frame.f_locals.get("self") is optimizer:
            steps += 1
        frame = frame.f_back
    return steps < 2


def _noop() -> None: ...


STEP_CODES: Final[set[CodeType]] = {Optimizer.profile_hook_step(_noop).__code__}
"""The code of the wrapper that torch puts around every optimizer's `step`, and of ours around others."""
