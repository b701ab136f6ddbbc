"""Content that lies at another place on the right: moved among what differs, renamed among what is new."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ckptcheck.comparison.checkpoint_diff import Kind
from ckptcheck.comparison.crew import Worker, thread_count, work_off
from ckptcheck.comparison.outcomes import Outcome
from ckptcheck.comparison.pairs import Pair
from ckptcheck.comparison.plain import is_same
from ckptcheck.comparison.streams import CHUNK_BYTES, RefPair, find_unequal
from ckptcheck.state.tensor import TensorRef
from ckptcheck.state.training_state import Entry

SECTIONS: Final = frozenset({"model", "optimizer"})
SAMPLE_BYTES: Final = 64
"""From the middle of each candidate; only tensors whose samples agree are hashed."""
MAX_HASHED_BYTES: Final = 16 << 30
"""Of both sides together; where the candidates hold more, the largest of them are not looked at."""

Spot = tuple[int, str]
"""A pair's place and its side, "left" or "right"."""


def find_moves(pairs: Sequence[Pair], outcomes: Sequence[Outcome]) -> list[str]:
    """Turn outcomes to moved and renamed where content is found elsewhere; returns what was left out, in sentences.

    Content must be unique on both sides, and of more than one value: constant tensors are alike without being moved.
    """
    spots = dict(_candidates(pairs, outcomes))
    alike = _alike(pairs, outcomes, spots)
    chosen, left_out = _affordable(alike, spots)
    contents = _hashes({spot: spots[spot] for group in chosen for spot in group})
    for group in chosen:
        for one, other in _unique(group, contents):
            _mark(pairs, outcomes, one, other)
    _follow_names(pairs, outcomes)
    if left_out:
        most = f"{MAX_HASHED_BYTES >> 30} GiB"
        return [f"whether the content of {left_out} tensors lies elsewhere: more than {most} would have to be hashed"]
    return []


def _candidates(pairs: Sequence[Pair], outcomes: Sequence[Outcome]) -> Iterator[tuple[Spot, TensorRef]]:
    for place, (pair, outcome) in enumerate(zip(pairs, outcomes, strict=True)):
        if pair.section in SECTIONS and outcome.kind in (Kind.CHANGED, Kind.ADDED, Kind.REMOVED):
            for side, entry in (("left", pair.left), ("right", pair.right)):
                if entry is not None and entry.ref is not None and entry.ref.spec.numel > 1 and entry.ref.spec.nbytes:
                    yield (place, side), entry.ref


def _alike(pairs: Sequence[Pair], outcomes: Sequence[Outcome], spots: Mapping[Spot, TensorRef]) -> list[list[Spot]]:
    """Groups of candidates with one spec and one sample, in which both sides are found at different places."""
    by_spec: dict[object, list[Spot]] = defaultdict(list)
    for (place, side), ref in spots.items():
        stays = outcomes[place].kind is Kind.CHANGED
        by_spec[pairs[place].section, stays, ref.spec].append((place, side))
    samples: dict[object, list[Spot]] = defaultdict(list)
    for spec, group in by_spec.items():
        if _crosses(group):
            for spot in group:
                samples[spec, _sample(spots[spot])].append(spot)
    return [group for group in samples.values() if _crosses(group)]


def _crosses(group: Iterable[Spot]) -> bool:
    left = {place for place, side in group if side == "left"}
    right = {place for place, side in group if side == "right"}
    return bool(left and right) and len(left | right) > 1


def _sample(ref: TensorRef) -> bytes:
    total_bytes = ref.spec.nbytes
    content = bytearray(min(SAMPLE_BYTES, total_bytes))
    ref.read_into((total_bytes - len(content)) // 2, memoryview(content))
    return bytes(content)


def _affordable(groups: list[list[Spot]], spots: Mapping[Spot, TensorRef]) -> tuple[list[list[Spot]], int]:
    """The groups that may be hashed, the smallest first, and how many tensors that leaves out."""
    chosen, spent_bytes, left_out = [], 0, 0
    for group in sorted(groups, key=lambda group: spots[group[0]].spec.nbytes):
        spent_bytes += sum(spots[spot].spec.nbytes for spot in group)
        if spent_bytes > MAX_HASHED_BYTES:
            left_out += len(group)
        else:
            chosen.append(group)
    return chosen, left_out


def _hashes(spots: Mapping[Spot, TensorRef]) -> dict[Spot, bytes]:
    """128 bits of the content of each; constant tensors have none."""
    found: dict[Spot, bytes] = {}

    def take(spot: Spot, worker: Worker) -> None:
        content = _hash(spots[spot], worker)
        if content is not None:
            found[spot] = content

    work_off(list(spots), take, thread_count() if len(spots) > 1 else 1)
    return found


def _hash(ref: TensorRef, worker: Worker) -> bytes | None:
    hasher, is_constant = _hasher(), True
    width = ref.spec.nbytes // ref.spec.numel
    for at in range(0, ref.spec.nbytes, CHUNK_BYTES):
        worker.check()
        view, first = worker.views(min(CHUNK_BYTES, ref.spec.nbytes - at), width)
        ref.read_into(at, view)
        if not at:
            first[:] = view[:width]
        hasher.update(view)
        # A chunk is a whole number of elements: every width is a power of two.
        is_constant = is_constant and bytes(view) == bytes(first) * (len(view) // width)
    return None if is_constant else bytes(hasher.digest())


def _hasher() -> Any:
    try:
        import xxhash
    except ImportError:
        return hashlib.blake2b(digest_size=16)
    return xxhash.xxh3_128()


def _unique(group: Iterable[Spot], contents: Mapping[Spot, bytes]) -> Iterator[tuple[int, int]]:
    """Places whose left content is at another place on the right, and that place; each content once on a side."""
    holders: dict[bytes, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for spot in group:
        if spot in contents:
            holders[contents[spot]][spot[1] == "right"].append(spot[0])
    for left, right in holders.values():
        if len(left) == len(right) == 1 and left != right:
            yield left[0], right[0]


def _mark(pairs: Sequence[Pair], outcomes: Sequence[Outcome], one: int, other: int) -> None:
    """The left content of pair `one` is the right content of pair `other`."""
    outcomes[one].other = _name(pairs[other], pairs[one])
    if outcomes[one].kind is Kind.CHANGED:
        outcomes[one].kind = Kind.MOVED
    else:
        outcomes[one].kind, outcomes[one].partner = Kind.RENAMED, other
        outcomes[other].is_absorbed = True


def _name(pair: Pair, seen_from: Pair) -> str:
    if pair.optimizer is not None and pair.optimizer != seen_from.optimizer:
        return pair.place.replace(pair.section, f"optimizer {pair.optimizer}", 1)
    return pair.place if pair.parameter is None or pair.key != seen_from.key else pair.parameter


def _follow_names(pairs: Sequence[Pair], outcomes: Sequence[Outcome]) -> None:
    """Where one tensor of a parameter or module was renamed, its equal steps, zero biases and the like were too."""
    renamed = [
        (pairs[place].parameter, pairs[outcome.partner].parameter)
        for place, outcome in enumerate(outcomes)
        if outcome.kind is Kind.RENAMED and outcome.partner is not None
    ]
    modules = dict(_without_common_end(one, other) for one, other in renamed if one and other)
    if not modules:
        return
    found = [*_followers(pairs, outcomes, modules)]
    for one, other in _equal(pairs, found):
        _mark(pairs, outcomes, one, other)


def _followers(
    pairs: Sequence[Pair], outcomes: Sequence[Outcome], modules: Mapping[str, str]
) -> Iterator[tuple[int, int]]:
    """Removed pairs, each with the added one that has its name in the renamed module."""
    kinds = [outcome.kind for outcome in outcomes]
    lengths = frozenset(map(len, modules))
    added = {_key(pair, pair.parameter): at for at, pair in enumerate(pairs) if kinds[at] is Kind.ADDED}
    for place, pair in enumerate(pairs):
        if kinds[place] is Kind.REMOVED and pair.parameter is not None:
            name = pair.parameter
            begins = (begin for begin in _begins(name, lengths) if begin in modules)
            keys = (_key(pair, modules[begin] + name[len(begin) :]) for begin in begins)
            partner = next((added[key] for key in keys if key in added), None)
            if partner is not None and not outcomes[partner].is_absorbed:
                yield place, partner


def _key(pair: Pair, name: str | None) -> object:
    return pair.section, pair.optimizer, pair.key, name


def _without_common_end(one: str, other: str) -> tuple[str, str]:
    """Both names without the parts that they end in alike: ("fc.weight", "head.weight") gives ("fc", "head")."""
    ours, theirs = one.split("."), other.split(".")
    while len(ours) > 1 and len(theirs) > 1 and ours[-1] == theirs[-1]:
        ours.pop()
        theirs.pop()
    return ".".join(ours), ".".join(theirs)


def _begins(name: str, lengths: frozenset[int]) -> Iterator[str]:
    """What a name begins with up to a dot, itself first, the longest next: of these lengths only."""
    end = len(name)
    while end >= 0:
        if end in lengths:
            yield name[:end]
        end = name.rfind(".", 0, end)


def _equal(pairs: Sequence[Pair], found: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Those pairs of places whose left and right contents are equal."""
    read: list[tuple[int, int]] = []
    refs: list[RefPair] = []
    for one, other in found:
        left, right = pairs[one].left, pairs[other].right
        if is_same(left, right):
            yield one, other
        elif _readable(left) and _readable(right):
            assert left is not None and right is not None and left.ref is not None and right.ref is not None
            if left.ref.spec == right.ref.spec:
                read.append((one, other))
                refs.append((left.ref, right.ref))
    unequal = find_unequal(refs)
    yield from (places for at, places in enumerate(read) if at not in unequal)


def _readable(entry: Entry | None) -> bool:
    return entry is not None and entry.ref is not None
