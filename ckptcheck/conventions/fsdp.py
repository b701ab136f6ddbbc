"""Files of FullyShardedDataParallel: whole, sharded, local, and its optimizer's raw state in each rank's file.

The raw state is keyed by index; each tensor is the rank's 1-D slice of a flattened parameter, and only parameters of
which the rank has a slice have any.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ckptcheck.conventions.files import by_stem, files_of, keeps_order
from ckptcheck.conventions.groups import is_optimizer
from ckptcheck.conventions.naming import is_index
from ckptcheck.conventions.parts import Parts, checkpoint, put
from ckptcheck.conventions.piece_notes import FLAT_PARAMETER
from ckptcheck.conventions.plain import sort_root
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTensor, RawTree, Shard, tensors_in

_SHARDED: Final = "torch.distributed._shard.sharded_tensor.api.ShardedTensor"
_DTENSORS: Final = frozenset({"torch.distributed.tensor.DTensor", "torch.distributed._tensor.api.DTensor"})
_WITH_ATTRIBUTES: Final = "torch._tensor._rebuild_from_type_v2"
_CLONED: Final = "_has_been_cloned"
"""What FSDP notes on each tensor of a whole state_dict."""
_SLICED: Final = frozenset(
    {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg", "sum", "exp_inf",
     "acc_delta"}
)  # fmt: skip
"""State keys of optimizers that keep tensors of the parameter's own shape."""
_RANK: Final = re.compile(r"(?:.*[^a-z])?rank[._-]?(?P<rank>\d{1,6})(?:\D.*)?", re.IGNORECASE)
_FOLDERS: Final = frozenset({"folder", "zip", "tar"})
_FILES: Final = frozenset({"torch-zip", "torch-legacy", "torch-tar"})


class Fsdp:
    """Told by the classes and notes that FSDP's tensors carry, or by 1-D slices in files that name their rank."""

    name = "fsdp"

    def claims(self, raw: RawTree) -> bool:
        """Whether pieces, or notes, are those that FSDP makes."""
        if raw.container not in _FOLDERS | _FILES:
            return False
        named = {one.name for one in raw.globals}
        if _SHARDED in named or _has_flat_parameter(raw.root):
            return True
        if _WITH_ATTRIBUTES in named and any(_CLONED in (one.attributes or ()) for one in tensors_in(raw.root)):
            return True
        return bool(named & _DTENSORS and _cut_by_rows(raw)) or any(True for _ in _sliced(raw))

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Sort by keys and content, as any script's own files; what the slices cannot say is said."""
        files = files_of(raw)
        ordered = all(keeps_order(raw, path) for path in files) if files else keeps_order(raw, "")
        sliced = {id(one) for one in _sliced(raw)}
        parts = sort_root(by_stem(files) if files else raw.root, ordered=ordered)
        for key, value in list(parts.optimizers.items()):
            if id(value) in sliced:
                _keep_own(key, value, parts)
        parts.world_size = _world_size(raw)
        return checkpoint(raw, self.name, parts, names)


def _roots(raw: RawTree) -> list[tuple[str, Raw]]:
    """Each file's value by its name."""
    files = files_of(raw)
    return list(files.items()) if files else [(raw.path.name, raw.root)]


def _has_flat_parameter(root: Raw, depth: int = 3) -> bool:
    """Whether a tensor is called as FSDP calls parameters that lie end to end."""
    if not isinstance(root, Mapping):
        return False
    return any(
        (isinstance(key, str) and key.rpartition(".")[2] == FLAT_PARAMETER and isinstance(value, RawTensor))
        or (depth > 0 and _has_flat_parameter(value, depth - 1))
        for key, value in root.items()
    )


def _cut_by_rows(raw: RawTree) -> bool:
    """Whether there are pieces, and all are cut along the first dimension; tensor parallelism cuts others, too."""
    trees = [inner for tree in (raw.files.values() or [raw]) for inner in (tree.files.values() or [tree])]
    shards = [(one, one.shard) for tree in trees for one in tensors_in(tree.root) if one.shard is not None]
    return bool(shards) and all(_is_rows(one, shard) for one, shard in shards)


def _is_rows(piece: RawTensor, shard: Shard) -> bool:
    whole = shard.whole_shape
    return not piece.spec.numel or (piece.spec.shape[1:] == whole[1:] and not any(shard.offsets[1:]))


def _sliced(raw: RawTree) -> Iterator[Mapping[Any, Raw]]:
    """The optimizers whose state is a rank's slices, told by the weights beside them or by a file's name."""
    for name, root in _roots(raw):
        held = {"": root} if is_optimizer(root) else root
        if not isinstance(held, Mapping):
            continue
        shapes = [one.spec.shape for key, value in held.items() if not is_optimizer(value) for one in _weights(value)]
        for value in held.values():
            if is_optimizer(value) and _is_flattened(value) and _cannot_be_whole(value, shapes, name):
                yield value


def _weights(value: Raw) -> list[RawTensor]:
    """The tensors of a state_dict; of anything else none."""
    return [one for one in value.values() if isinstance(one, RawTensor)] if isinstance(value, Mapping) else []


def _is_flattened(optimizer: Mapping[Any, Raw]) -> bool:
    """Whether state is keyed by index, and every tensor in it has one dimension where a parameter's shape is kept."""
    state = optimizer.get("state", {})
    kept = [one for one in state.values() if isinstance(one, Mapping)]
    if not kept or len(kept) < len(state) or not all(is_index(key) for key in state):
        return False
    tensors = [
        tensor
        for one in kept
        for key, tensor in one.items()
        if key in _SLICED and isinstance(tensor, RawTensor) and not (key == "step" and tensor.spec.numel == 1)
    ]
    return (
        bool(tensors) and all(set(one) <= _SLICED for one in kept) and all(len(one.spec.shape) == 1 for one in tensors)
    )


def _cannot_be_whole(optimizer: Mapping[Any, Raw], shapes: list[tuple[int, ...]], name: str) -> bool:
    """Whether slices are no whole parameters: some parameter has more dimensions, and a length is no vector's.

    Without weights to compare with, the file must name its rank.
    """
    if not shapes:
        return _RANK.fullmatch(name.rpartition("/")[2]) is not None
    vectors = {shape[0] for shape in shapes if len(shape) == 1}
    lengths = {tensor.spec.shape[0] for one in optimizer["state"].values() for tensor in _weights(one)
               if tensor.spec.shape}  # fmt: skip
    return len(optimizer["state"]) > 1 and any(len(shape) > 1 for shape in shapes) and not lengths <= vectors


def _keep_own(key: str, optimizer: Mapping[Any, Raw], parts: Parts) -> None:
    """Leave in the groups those of which this rank has a slice; the groups' own lists are kept beside."""
    own = {str(one) for one in optimizer["state"]}
    groups = []
    for place, group in enumerate(optimizer["param_groups"]):
        listed = group.get("params")
        if isinstance(listed, list | tuple) and not all(str(one) in own for one in listed):
            put(parts.extra, f"{key}.param_groups[{place}].params", list(listed))
            groups.append({**group, "params": [one for one in listed if str(one) in own]})
        else:
            groups.append(group)
    parts.optimizers[key] = {**optimizer, "param_groups": groups}
    parts.notes.append(
        f"{key} keeps one rank's 1-D slices of flattened parameters, as a raw optimizer.state_dict() of FSDP is: only "
        "as many ranks as wrote it can load it, each its own file, and no parameter can be named; "
        "FSDP.optim_state_dict(model, optimizer) saves what can"
    )


def _world_size(raw: RawTree) -> int | None:
    """How many ranks' files were read."""
    joined = [tree.facts.get("ranks") for tree in raw.files.values()]
    counts = [one for one in joined if type(one) is int]
    matches = [_RANK.fullmatch(name.rpartition("/")[2]) for name, _ in _roots(raw)] if files_of(raw) else []
    ranks = {int(match["rank"]) for match in matches if match}
    return max([*counts, len(ranks)], default=0) or None
