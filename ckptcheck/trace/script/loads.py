"""`load_state_dict` seen as it happens: what it is given, and what is live before it is overwritten."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from ckptcheck.trace.script.wrapping import tell_before


class Loading(Protocol):
    """Who hears of a load."""

    def before_load(self, section: str, loaded: Any, given: Any) -> None:
        """An object of a section (model, optimizer, schedule, scaler) is about to load what it is given."""


def listen(loading: Loading) -> Callable[[], None]:
    """Tell of every outermost `load_state_dict`; returns what undoes it."""
    undo = [
        tell_before(owner, "load_state_dict", partial(_tell, loading, section))
        for owner, section in (
            (nn.Module, "model"), (Optimizer, "optimizer"), (LRScheduler, "schedule"), (GradScaler, "scaler"),
        )
    ]  # fmt: skip
    return lambda: [one() for one in undo] and None


def _tell(loading: Loading, section: str, loaded: Any, state_dict: Any, *_: Any, **__: Any) -> None:
    loading.before_load(section, loaded, state_dict)
