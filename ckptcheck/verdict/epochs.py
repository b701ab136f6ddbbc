"""Where one epoch gives way to the next: told from counters and inputs by what they do, not by what they belong to.

Three signs are believed: a counter that is called an epoch and rises now and then, a position that moves on evenly and
falls back to its start, and inputs that come again in the same order from the first on. What repeats for other reasons
(a generator's index, a worker's turn, a fixed input) is none of them.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from ckptcheck.state.training_state import Scalar
from ckptcheck.trace.items import Item

NO_EPOCH: Final = frozenset({
    "in", "per", "this", "of", "step", "steps", "batch", "batches", "sample", "samples", "time", "seconds", "position",
    "progress", "length", "size", "best", "max", "total",
})  # fmt: skip
"""Words that make a counter with "epoch" in its name another thing: samples in this epoch, steps per epoch."""
NO_POSITION: Final = frozenset({
    "rng", "random", "generator", "seed", "worker", "workers", "rank", "id", "buffer", "replay", "ring", "micro",
    "best",
})  # fmt: skip
"""Words of counters that go round for reasons of their own."""
GENERATORS: Final = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
"""What numpy calls the generator whose state stands beside such a text: its inner index goes round as well."""
LEAST: Final = 3
"""Steps of an epoch that is told from a position: two values that alternate are a switch."""


def ends_of_epochs(
    steps: Sequence[int],
    counters: Mapping[Item, Mapping[int, Scalar]],
    inputs: Mapping[Item, Sequence[bytes | None]],
    texts: Collection[tuple[str, str]] = (),
    updating: Collection[int] = (),
) -> dict[int, str]:
    """The steps in which an epoch gives way to the next, each with what shows it, the first sign for each.

    `counters` are numbers by step, `inputs` digests of what entered the model in `steps`, in this order, `texts` the
    (path, text) beside the counters. `updating` are the steps that make an update, where others do not: a counter
    that goes round with them counts micro-batches.
    """
    found: dict[int, str] = {}
    named = {item for item in counters if _counts_epochs(item)}
    for item in counters:
        if item in named:
            _note(found, _rises_now_and_then(counters[item]), item, counters[item])
    for item, values in counters.items():
        if (
            item.kind == "data"
            and item not in named
            and not NO_POSITION & set(_words(item.name, whole=True))
            and not _inside(item, texts)
        ):
            falls = falls_back(values)
            if not _goes_with(falls, updating):
                _note(found, falls, item, values)
    for digests in inputs.values():
        period = period_of(digests) if len(digests) == len(steps) else 0
        for place in range(period, len(steps), period or 1) if period else ():
            found.setdefault(steps[place], f"the batch of step {steps[0]} comes again")
    return dict(sorted(found.items()))


def _note(found: dict[int, str], steps: Iterable[int], item: Item, values: Mapping[int, Scalar]) -> None:
    before = dict(zip(list(values)[1:], values.values(), strict=False))
    for step in steps:
        found.setdefault(step, f"{item.kind} {item.name} goes from {before[step]} to {values[step]}")


def _counts_epochs(item: Item) -> bool:
    words = set(_words(item.name))
    return bool({"epoch", "epochs"} & words) and not NO_EPOCH & words


def _rises_now_and_then(values: Mapping[int, Scalar]) -> list[int]:
    """The steps in which a counter of epochs passes a whole number; none for what rises in every step, or falls."""
    pairs = [(step, _whole(before), _whole(now)) for (_, before), (step, now) in pairwise(values.items())]
    rises = [step for step, before, now in pairs if now > before]
    falls = any(now < before for _, before, now in pairs)
    return [] if falls or len(rises) == len(pairs) else rises


def falls_back(values: Mapping[int, Scalar]) -> list[int]:
    """The steps in which a position that moves on evenly falls back to its start; [] for what is no position.

    It moves by one stride, less than that only just before it falls back, and rests in between where a step is no
    batch; after a fall it stands at 0, or one stride on.
    """
    numbers = [float(one) for one in values.values() if isinstance(one, int | float)]
    if not numbers or not all(map(math.isfinite, numbers)) or min(numbers) < 0:
        return []
    moves = [(step, now - before) for step, before, now in zip(list(values)[1:], numbers, numbers[1:], strict=False)]
    moves = [(step, by) for step, by in moves if by]
    stride = max((by for _, by in moves), default=0.0)
    falls = [step for step, by in moves if by < 0]
    if stride <= 0 or not falls:
        return []
    # Before the first step it may have stood a stride lower, or anywhere in the middle of an epoch.
    rises = int(numbers[0] > 0)
    is_cut, most = numbers[0] > stride, 0
    for place, (_, by) in enumerate(moves):
        is_last = place + 1 == len(moves) or moves[place + 1][1] < 0
        if by > 0 and not (math.isclose(by, stride, rel_tol=1e-6) or is_last):
            return []
        if by < 0 and rises < LEAST - 1 and not is_cut:
            return []
        is_cut = is_cut and by > 0
        rises = rises + 1 if by > 0 else 0
        most = max(most, rises)
    after = [float(values[step]) for step in falls]
    return falls if most >= LEAST - 1 and all(one <= stride * (1 + 1e-6) for one in after) else []


def period_of(digests: Sequence[bytes | None]) -> int:
    """After how many steps inputs come again, every one of them in its turn; 0 where they do not.

    Two must have come again: one alone may be chance. What is the same in every step is no epoch.
    """
    if None in digests or len(digests) < 2:
        return 0
    period = next((place for place in range(1, len(digests)) if digests[place] == digests[0]), 0)
    again = len(digests) - period
    if period < 2 or again < 2 or len(set(digests)) != period:
        return 0
    return period if all(one == digests[place % period] for place, one in enumerate(digests)) else 0


def _goes_with(falls: Sequence[int], updating: Collection[int]) -> bool:
    """Whether a counter falls back in, or just after, every step that makes an update."""
    among = [step for step in falls if step in updating]
    after = [step for step in falls if step - 1 in updating]
    return bool(falls) and max(len(among), len(after)) == len(falls) >= len(updating) - 1


def _inside(item: Item, texts: Collection[tuple[str, str]]) -> bool:
    """Whether a number belongs to the state of a generator: one of numpy is named beside it."""
    return any(
        text in GENERATORS and item.name.startswith(re.sub(r"[^.\[]*\]?$", "", path).rstrip(".["))
        for path, text in texts
    )


def _words(path: str, whole: bool = False) -> list[str]:
    """The words of a path's last key, or of all of it, in small letters."""
    key = path if whole else path.rpartition(".")[2]
    return [one.lower() for one in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", key)]


def _whole(value: Scalar) -> int:
    return math.floor(value) if isinstance(value, int | float) and math.isfinite(value) else 0
