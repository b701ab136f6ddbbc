"""Whether a tensor rests: whether it can be measured later and still be what it was when it was handed over.

The contract says so of what is handed over to be measured beside the training, but a script may break it: clip
weights inside of a forward pass, swap averages in, clear gradients by hand. So trust is earned. An item is measured
at once, and measured again at the end of the time in which it should have rested, for `TRIALS` times; then it is
trusted. What is trusted is still looked at before and after it is measured: its version, which torch counts up with
each operation in place, and some of its numbers, since what is done to `.data` is not counted.
"""

import ctypes
from dataclasses import dataclass, field
from typing import Final

import torch

from ckptcheck.trace.items import Item

KINDS: Final = frozenset({"param", "state", "ema", "buffer", "grad"})
"""Kinds of items that may rest. Inputs are the script's own, and other sections may move with each batch."""
SMALL_BYTES: Final = 64
"""Smaller tensors are measured at once: counters, of which many cost next to nothing together."""
SMALL_BUFFER_BYTES: Final = 65536
"""Smaller buffers are statistics, which move in each forward pass; larger ones are masks and tables."""
_TYPES: Final = (torch.Tensor, torch.nn.Parameter)
TRIALS: Final = 2
MOVED: Final = -1
_PLACES: Final = 16
"""How many numbers of a tensor are looked at."""


def may_rest(item: Item, tensor: torch.Tensor) -> bool:
    """Whether a tensor is of a kind that may rest and can be looked at: contiguous memory of the CPU, not small."""
    kind = item.kind
    return (
        kind in KINDS
        and type(tensor) in _TYPES
        and tensor.layout is torch.strided
        and tensor.nbytes >= (SMALL_BUFFER_BYTES if kind == "buffer" else SMALL_BYTES)
        and tensor.is_cpu
        and not tensor.is_nested
        and tensor.is_contiguous()
        and not tensor.is_quantized
    )


@dataclass(slots=True)
class Seen:
    """A tensor as it was when it was looked at. `held` is an alias of what it held then.

    The alias is taken at once: `.data = ` and the like give the tensor other memory, and are no matter of another
    thread while they do. It holds the memory that was looked at, whatever the tensor is given.
    """

    tensor: torch.Tensor
    held: torch.Tensor
    version: int
    address: int
    size: int
    glimpse: bytes

    @property
    def stands(self) -> bool:
        """Whether the memory that was looked at is there: some frameworks take it away below the tensor."""
        return self.held.data_ptr() == self.address and self.held.untyped_storage().nbytes() >= self.size

    def changed(self) -> bool:
        """Whether the memory that was looked at is known to hold something else, or is not there."""
        return not self.stands or self.tensor._version != self.version or _glimpse(self.address, self.size) != self.glimpse

    def moved(self) -> bool:
        """Whether the tensor is known to hold something else, in the memory that was looked at or in other memory."""
        tensor = self.tensor
        return (
            tensor._version != self.version
            or tensor.data_ptr() != self.address
            or tensor.nbytes != self.size
            or _glimpse(self.address, self.size) != self.glimpse
        )


def seen(tensor: torch.Tensor) -> Seen | None:
    """Look at a tensor that `may_rest`; None where it has no version, as one made in inference mode.

    Calls nothing of torch that lets go of python's lock: the thread that measures would have it back only later.
    """
    try:
        version = tensor._version
    except RuntimeError:
        return None
    address, size = tensor.data_ptr(), tensor.nbytes
    return Seen(tensor, tensor.data, version, address, size, _glimpse(address, size))


def _glimpse(*place: int) -> bytes:
    """Words of four bytes from head to tail of what is at an address, of a size in bytes."""
    words = _words.get(place)
    if words is None:
        if len(_words) >= _MOST_WORDS:
            _words.clear()
        words = _words[place] = _words_at(*place)
    return words[0].tobytes() + words[1].tobytes()


_words: dict[tuple[int, ...], tuple[memoryview, memoryview]] = {}
"""Where to look, by address and size. It is looked at only where a living tensor has both: they hold no memory."""
_MOST_WORDS: Final = 100_000


def _words_at(address: int, size: int) -> tuple[memoryview, memoryview]:
    content = (ctypes.c_ubyte * size).from_address(address)
    words = memoryview(content).cast("B")[: size // 4 * 4].cast("I")
    return words[:: max(1, len(words) // (_PLACES - 1))], words[-1:]


@dataclass(slots=True)
class Trust:
    """Which items rest in a certain time: trusted, on trial, or seen to move. Holds how often each has rested."""

    _rested: dict[Item, int] = field(default_factory=dict)

    def standing(self, item: Item) -> int:
        """How often it has rested: `TRIALS` is trusted, less is on trial, and MOVED is never trusted again."""
        return self._rested.get(item, 0)

    def judge(self, item: Item, rested: bool) -> None:
        """It has been found unchanged, or changed, at the end of the time."""
        now = self._rested.get(item, 0)
        self._rested[item] = min(now + 1, TRIALS) if rested and now != MOVED else MOVED
