"""Which tensors of a checkpoint must be finite, and which hold infinity on purpose."""

from typing import Final

from ckptcheck.comparison.survey import Content
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.trace.items import Item

STATISTICS: Final = frozenset({"running_mean", "running_var"})
"""Buffers that are averages of what went through the model."""
OBSERVED: Final = frozenset({"min_val", "max_val", "min_vals", "max_vals"})
"""Buffers of quantisation's observers, which begin with inf and -inf."""
MASK_WORDS: Final = ("mask", "alibi", "causal", "triu", "tril")
MASKED_SHARE: Final = 4
"""A tensor of whose elements one in so many is -inf is a mask."""
COUNTERS: Final = frozenset({"step", "n_iter"})
"""State keys that another rule judges."""


def may_be_odd(item: Item, stored: Stored) -> bool:
    """Whether NaN or infinity would be a fault here: in a parameter, a moment, a statistic or an average."""
    if item.kind == "state":
        return item.key not in COUNTERS
    if item.kind == "extra":
        return item.name.startswith(tuple(f"{model}." for model in stored.checkpoint.models if model))
    return item.kind in ("param", "ema") or (item.kind == "buffer" and _last(item.name) in STATISTICS)


def is_variance(item: Item, stored: Stored) -> bool:
    """Whether it is the running variance of a batch norm, of the model, of another one or of an average."""
    return item.kind in ("buffer", "ema", "extra") and _last(item.name) == "running_var" and may_be_odd(item, stored)


def is_sentinel(item: Item, content: Content, stored: Stored) -> bool:
    """Whether a tensor that may not be told from a parameter holds infinity on purpose. NaN is never meant."""
    if item.kind in ("state", "buffer") or content.nan or _is_trained(item.name, stored):
        return False
    if content.numel == 1 or _last(item.name) in OBSERVED:
        return True  # a best value so far, or an observer that has seen nothing
    looks_masked = content.largest == 0 or content.minus_inf * MASKED_SHARE >= content.numel
    return not content.inf and (looks_masked or any(word in item.name.lower() for word in MASK_WORDS))


def _is_trained(name: str, stored: Stored) -> bool:
    return any(name in optimizer.state for optimizer in stored.checkpoint.state.optimizers)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
