"""Calls into torch that the script does not see: neither its modes, nor its tensor subclasses, nor its profiler.

A mode that counts operations would count ours, and one that draws random numbers would change the training.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch.utils._python_dispatch import _disable_current_modes

_KEYS: Final = torch._C._TorchDispatchModeKey
_TRACING: Final = (_KEYS.FAKE, _KEYS.PROXY, _KEYS.FUNCTIONAL)


def plainly(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `call` returns. Costs a fraction of a microsecond where nothing of the script's listens."""
    listens = torch._C._len_torch_dispatch_stack() and not is_traced_by_mode()
    profiled = torch._C._autograd._profiler_enabled()
    with torch._C.DisableTorchFunction():
        if not listens and not profiled:
            return call(*args, **kwargs)
        with ExitStack() as stack:
            if listens:
                stack.enter_context(_disable_current_modes())
            if profiled:
                enable: Any = torch._C._autograd._enable_record_function
                enable(False)
                stack.callback(enable, True)
            return call(*args, **kwargs)


def is_traced_by_mode() -> bool:
    """Whether a mode of torch's own makes tensors stand for others: it has to stay, and nothing is recorded then."""
    return any(torch._C._get_dispatch_mode(key) is not None for key in _TRACING)
