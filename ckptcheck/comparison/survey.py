"""What the tensors of one checkpoint hold, element by element: read once, in blocks, in bounded memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ckptcheck.trace.items import Item


@dataclass(frozen=True, slots=True)
class Content:
    """What a tensor's elements are, counted; of a complex one real and imaginary parts, so twice as many.

    Attributes:
        numel: how many there are.
        nan, inf, minus_inf: of these, those that are not finite.
        negative: those below zero, -inf among them; -0.0 is not.
        zeros: those that are 0.0 or -0.0.
        first_at: index of the first element that is not finite, None where all are; the first in the order in which
            they lie, which of a transposed tensor is not that of its indices.
        first_negative_at: index of the first one below zero, None where none is.
        largest: the largest magnitude of a finite element, 0.0 where there is none.
    """

    numel: int
    nan: int = 0
    inf: int = 0
    minus_inf: int = 0
    negative: int = 0
    zeros: int = 0
    first_at: tuple[int, ...] | None = None
    first_negative_at: tuple[int, ...] | None = None
    largest: float = 0.0

    @property
    def finite(self) -> bool:
        """Whether every element is a number."""
        return not (self.nan or self.inf or self.minus_inf)


@dataclass(frozen=True, slots=True)
class Underflow:
    """Elements whose second moment is zero although their first moment is not.

    `count` of `numel`; `first_at` is the first one's index, `largest` the largest magnitude of such a first moment.
    """

    count: int
    numel: int
    first_at: tuple[int, ...]
    largest: float


@dataclass(frozen=True, slots=True)
class Survey:
    """What the tensors of a checkpoint hold.

    Attributes:
        contents: of each floating tensor, by where it stands: kind "param", "buffer", "grad", "state" (with key and
            optimizer), "ema", "extra", ...; a parameter of several parts has an item for each.
        underflows: of each second moment that has some, by its own item.
        unread: tensors that were not surveyed, and why.
        nbytes: bytes that were read.
    """

    contents: Mapping[Item, Content] = field(default_factory=dict)
    underflows: Mapping[Item, Underflow] = field(default_factory=dict)
    unread: Mapping[Item, str] = field(default_factory=dict)
    nbytes: int = 0
