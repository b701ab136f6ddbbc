"""Files that each rank wrote for itself, `..._rank0.pt`, `..._rank1.pt`: pieces of the same tensors, read as one.

Only files with pieces in them are joined. What ranks hold alike is taken once; a value that differs between ranks,
as the state of a generator, is kept for each under its key and the rank.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ckptcheck.readers.pickle.rank_pieces import pieces_in
from ckptcheck.readers.reading import Reading
from ckptcheck.state.pieces import Box, join_boxes
from ckptcheck.state.raw import Flaw, Foreign, Raw, RawTensor, RawTree, StateDict, Storage, tensors_in
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.tree import canonical

_RANK: Final = re.compile(r"(?P<stem>.*?)[._-]?rank[._-]?(?P<rank>\d{1,6})(?:[._-]?of[._-]?\d{1,6})?(?P<rest>[^/]*)")
"""A rank's file: what stands before its rank, and behind it, is the same for all."""
MAX_COMPARED_BYTES: Final = 1 << 16
"""States of generators up to this size are compared between ranks."""


def join_rank_files(files: Mapping[str, RawTree], reading: Reading) -> dict[str, RawTree]:
    """The files of a folder with each set of rank files replaced by one, named without the rank.

    Pieces that do not make up a tensor are told to `reading.damaged`; that tensor is left out.
    """
    found: dict[str, RawTree] = {}
    sets: dict[str, dict[int, str]] = {}
    for label, tree in files.items():
        match = _RANK.fullmatch(label)
        if match and next(pieces_in(tree.root), None) is not None:
            sets.setdefault(_without_rank(match["stem"], match["rest"]), {})[int(match["rank"])] = label
        else:
            found[label] = tree
    for name, labels in sets.items():
        trees = {rank: files[label] for rank, label in sorted(labels.items())}
        joining = _Joining(reading, name, {rank: labels[rank] for rank in trees})
        root = joining.join({rank: tree.root for rank, tree in trees.items()}, "")
        found[name if name not in files else next(iter(labels.values()))] = replace(
            trees[min(trees)],
            root=root,
            nbytes=sum(tree.nbytes for tree in trees.values()),
            files={labels[rank]: tree for rank, tree in trees.items()},
            members=tuple(one for tree in trees.values() for one in tree.members),
            globals=tuple(one for tree in trees.values() for one in tree.globals),
            facts={**trees[min(trees)].facts, "ranks": len(trees)},
        )
    return dict(sorted(found.items()))


def _without_rank(stem: str, rest: str) -> str:
    """The name of the whole: "optimizer.pt" of "rank0-of-2-optimizer.pt"."""
    return stem + (rest.lstrip("._-") if not stem or stem.endswith("/") else rest)


class _Joining:
    """One set of rank files; `labels` are their paths by rank."""

    def __init__(self, reading: Reading, name: str, labels: Mapping[int, str]) -> None:
        self.reading = reading
        self.name = name
        self.labels = labels
        self.told: set[Flaw] = set()

    def join(self, values: Mapping[int, Raw], path: str) -> Raw:
        """What the ranks hold at a path, as one value: of the first rank where they are alike."""
        first = next(iter(values.values()))
        if isinstance(first, RawTensor) and first.shard:
            return self.tensor(values, path)
        if isinstance(first, Mapping) and all(isinstance(one, Mapping) for one in values.values()):
            return self.mapping(values, path)
        if isinstance(first, list | tuple) and all(_is_as_long(one, first) for one in values.values()):
            items = [
                self.join({rank: one[place] for rank, one in values.items()}, f"{path}[{place}]")
                for place in range(len(first))
            ]
            return type(first)(items)
        return first

    def mapping(self, values: Mapping[int, Mapping[Any, Raw]], path: str) -> dict[Any, Raw]:
        first = next(iter(values.values()))
        found: dict[Any, Raw] = StateDict() if isinstance(first, StateDict) else {}
        if isinstance(found, StateDict) and isinstance(first, StateDict):
            found.metadata = first.metadata
        for key in dict.fromkeys(key for one in values.values() for key in one):
            held = {rank: one[key] for rank, one in values.items() if key in one}
            joined = self.join(held, f"{path}.{key}" if path else str(key))
            if joined is not None or None in held.values():
                found[key] = joined
            lead = next(iter(held.values()))
            found.update({f"{key} (rank {rank})": one for rank, one in held.items() if _differ(lead, one)})
        return found

    def tensor(self, values: Mapping[int, Raw], path: str) -> RawTensor | None:
        """A tensor from its pieces; replicas of a piece count once."""
        pieces: dict[tuple[int, ...], RawTensor] = {}
        for one in values.values():
            if isinstance(one, RawTensor) and one.shard and one.spec.numel:
                pieces.setdefault(one.shard.offsets, one)
        first = next(one for one in values.values() if isinstance(one, RawTensor) and one.shard)
        wholes = {(one.spec.dtype, one.shard.whole_shape if one.shard else ()) for one in pieces.values()}
        spec = TensorSpec(first.spec.dtype, first.shard.whole_shape if first.shard else ())
        if wholes - {(spec.dtype, spec.shape)}:
            self.broken(Flaw.SHARD_SET, f"{path} is of another dtype or shape on another rank")
            return None
        boxes = [Box(offsets, one.spec.shape, one.read_into) for offsets, one in pieces.items()]
        try:
            read_into = join_boxes(spec, boxes)
        except ValueError as trouble:
            is_short = sum(one.spec.numel for one in pieces.values()) < spec.numel
            self.broken(Flaw.INCOMPLETE if is_short else Flaw.SHARD_SET, f"{path}: {trouble}")
            return None
        storage = Storage("", f"{self.name}:{path}", spec.nbytes)
        return replace(first, spec=spec, read_into=read_into, storage=storage, offset=0, stride=None, shard=None)

    def broken(self, flaw: Flaw, said: str) -> None:
        """Tell of the first tensor that cannot be joined: what is wrong with one is wrong with most."""
        if flaw not in self.told:
            self.told.add(flaw)
            ranks = ", ".join(map(str, self.labels))
            what = "files of other ranks are missing" if flaw is Flaw.INCOMPLETE else "they are of different saves"
            self.reading.damaged(
                flaw, next(iter(self.labels.values())), f"with the files of ranks {ranks}, {said}: {what}"
            )


def _is_as_long(value: Raw, other: Raw) -> bool:
    return type(value) is type(other) and len(value) == len(other)


def _differ(one: Raw, other: Raw) -> bool:
    """Whether two ranks' values surely differ: plain ones, and states of generators; tensors are taken for replicas."""
    if one is other or isinstance(one, Mapping | Foreign) or isinstance(other, Mapping | Foreign):
        return False
    if isinstance(one, RawTensor) and isinstance(other, RawTensor):
        is_state = one.shard is None and one.spec.dtype == "uint8" and one.spec.nbytes <= MAX_COMPARED_BYTES
        return is_state and other.shard is None and (one.spec != other.spec or one.fetch() != other.fetch())
    has_tensors = any(True for _ in tensors_in((one, other)))
    return not has_tensors and canonical(one) != canonical(other)
