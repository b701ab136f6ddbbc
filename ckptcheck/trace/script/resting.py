"""Whether a tensor rests: whether it can be measured later and still be what it was when it was handed over.

The contract says so of what is handed over to be measured beside the training, but a script may break it: clip
weights inside of a forward pass, swap averages in, clear gradients by hand. So trust is earned. An item is measured
at once, and measured again at the end of the time in which it should have rested, for `TRIALS` times; then it is
trusted. What is trusted is still looked at before and after it is measured: its version, which torch counts up with
each operation in place, and some of its numbers, since what is done to `.data` is not counted.
"""

import ctypes
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import torch

from ckptcheck.trace.items import Item

KINDS: Final = frozenset({"param", "state", "ema", "buffer", "grad"})
"""Kinds of items that may rest. Inputs are the script's own, and other sections may move with each batch."""
SMALL_BYTES: Final = 64
"""Smaller tensors are measured at once: counters, of which many cost next to nothing together."""
SMALL_BUFFER_BYTES: Final = 65536
"""Smaller buffers are statistics, which move in each forward pass; larger ones are masks and tables."""
_TYPES: Final = frozenset({torch.Tensor, torch.nn.Parameter})
_DTYPES: Final = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool})
"""Dtypes whose tensors are none that torch has quantised."""
TRIALS: Final = 2
MOVED: Final = -1
_PLACES: Final = 16
"""How many numbers of a tensor are looked at."""


def may_rest(item: Item, tensor: torch.Tensor) -> bool:
    """Whether a tensor is of a kind that may rest and can be looked at: contiguous memory of the CPU, not small."""
    return (
        type(tensor) in _TYPES
        and (kind := item[0]) in KINDS
        and tensor.is_cpu
        and tensor.dtype in _DTYPES
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.is_contiguous()
        and tensor.nbytes >= (SMALL_BUFFER_BYTES if kind == "buffer" else SMALL_BYTES)
    )


class Seen:
    """A tensor as it was when it was looked at. `held` is an alias of what it held then.

    The alias is taken at once: `.data = ` and the like give the tensor other memory, and are no matter of another
    thread while they do. It holds the memory that was looked at, whatever the tensor is given.
    """

    __slots__ = ("_address", "_glimpse", "_version", "_words", "held", "size", "tensor")

    def __init__(self, tensor: torch.Tensor, version: int) -> None:
        self.tensor = tensor
        self.held = tensor.data
        self._version = version
        self._address, self.size = place = tensor.data_ptr(), tensor.nbytes
        words = self._words = _words.get(place) or _words_of(place)
        self._glimpse = words[0].tobytes(), words[1].tobytes()

    @property
    def stands(self) -> bool:
        """Whether the memory that was looked at is there: some frameworks take it away below the tensor."""
        return self.held.data_ptr() == self._address and self.held.untyped_storage().nbytes() >= self.size

    def changed(self) -> bool:
        """Whether the memory that was looked at is known to hold something else, or is not there."""
        return not self.stands or self.tensor._version != self._version or self._differs()

    def moved(self) -> bool:
        """Whether the tensor is known to hold something else, in the memory that was looked at or in other memory."""
        tensor = self.tensor
        return (
            tensor._version != self._version
            or tensor.data_ptr() != self._address
            or tensor.nbytes != self.size
            or self._differs()
        )

    def _differs(self) -> bool:
        words, glimpse = self._words, self._glimpse
        return words[0].tobytes() != glimpse[0] or words[1].tobytes() != glimpse[1]


def seen(tensor: torch.Tensor) -> Seen | None:
    """Look at a tensor that `may_rest`; None where it has no version, as one made in inference mode.

    Calls nothing of torch that lets go of python's lock: the thread that measures would have it back only later.
    """
    try:
        return Seen(tensor, tensor._version)
    except RuntimeError:
        return None


_Words: TypeAlias = tuple[memoryview, memoryview]
_words: dict[tuple[int, int], _Words] = {}
"""Where to look, by address and size. It is looked at only where a living tensor has both: they hold no memory."""
_MOST_WORDS: Final = 100_000


def _words_of(place: tuple[int, int]) -> _Words:
    """Words of four bytes from head to tail of what is at an address, of a size in bytes; and the last one."""
    if len(_words) >= _MOST_WORDS:
        _words.clear()
    address, size = place
    content = (ctypes.c_ubyte * size).from_address(address)
    words = memoryview(content).cast("B")[: size // 4 * 4].cast("I")
    found = _words[place] = words[:: max(1, len(words) // (_PLACES - 1))], words[-1:]
    return found


@dataclass(slots=True)
class Trust:
    """Which items rest in a certain time: trusted, on trial, or seen to move. `rested` counts how often each has."""

    rested: dict[Item, int] = field(default_factory=dict)

    def standing(self, item: Item) -> int:
        """How often it has rested: `TRIALS` is trusted, less is on trial, and MOVED is never trusted again."""
        return self.rested.get(item, 0)

    def judge(self, item: Item, rested: bool) -> None:
        """It has been found unchanged, or changed, at the end of the time."""
        now = self.rested.get(item, 0)
        self.rested[item] = min(now + 1, TRIALS) if rested and now != MOVED else MOVED
