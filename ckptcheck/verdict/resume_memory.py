"""What memory a load of a checkpoint takes, against a run that starts anew. Bytes; no gradients, no activations."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ckptcheck.finding import Json
from ckptcheck.optimizers.table import KEPT_BESIDE
from ckptcheck.rules.bloat import used_bytes
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTensor, RawTree, Storage, tensors_in
from ckptcheck.state.training_state import Entry, Optimizer

_SECTIONS: Final = {"ema": "averaged weights", "extra": "other tensors"}
_MAPPED: Final = frozenset({"safetensors", "safetensors-sharded", "dcp"})
"""Containers of which a load reads tensor by tensor, and keeps none of the file."""


def memory_part(checkpoint: Checkpoint) -> Json:
    """What a load holds at its peak, what a fresh run holds after its first step, and what the file holds twice.

    `fresh_bytes`: weights, buffers and optimizer state. `loaded_bytes`: what the largest single `torch.load` of the
    checkpoint's files brings into memory, all of its storages. `peak_bytes`: that beside a built model, and beside the
    optimizer state where it lies in another file. `extra_bytes`: the peak beyond the fresh run. `devices`: bytes by
    the device that tensors were saved from, where `torch.load` puts them unless `map_location` says otherwise.
    """
    state = checkpoint.state
    weights = _bytes_of(_of_model(checkpoint))
    optimizer = sum(_bytes_of(_of_optimizer(one)) for one in state.optimizers)
    masters = _bytes_of(_masters(state.optimizers))
    storages = _storages(checkpoint.raw)
    loaded = max(_loads(checkpoint.raw, storages).values(), default=0)
    devices: Counter[str] = Counter()
    for storage, device in storages.items():
        devices[device] += storage.nbytes
    fresh = weights + optimizer
    peak = max(weights + loaded, fresh)
    duplicates: list[Json] = [{"what": what, "bytes": size} for what, size in _duplicates(checkpoint, masters) if size]
    return {
        "weights_bytes": weights,
        "optimizer_bytes": optimizer,
        "fresh_bytes": fresh,
        "loaded_bytes": loaded,
        "peak_bytes": peak,
        "extra_bytes": peak - fresh,
        "duplicates": duplicates,
        "devices": {device: size for device, size in devices.items() if device},
    }


def _of_model(checkpoint: Checkpoint) -> Iterator[Entry]:
    yield from (one.entry for one in checkpoint.state.parameters.values())
    yield from checkpoint.state.buffers.values()


def _of_optimizer(optimizer: Optimizer) -> Iterator[Entry]:
    yield from (entry for kept in optimizer.state.values() for entry in kept.values())


def _masters(optimizers: Iterable[Optimizer]) -> Iterator[Entry]:
    """The float32 weights that mixed precision keeps beside the moments."""
    for one in optimizers:
        yield from (entry for kept in one.state.values() for key, entry in kept.items() if key in KEPT_BESIDE)


def _bytes_of(entries: Iterable[Entry]) -> int:
    """Bytes of the tensors among them, those that are the same elements of one storage once."""
    seen: set[object] = set()
    total = 0
    for entry in entries:
        place = entry.ref.place if isinstance(entry.ref, RawTensor) else None
        if place is None or place not in seen:
            total += entry.nbytes
        seen.add(place)
    return total


def _loads(raw: RawTree, storages: Iterable[Storage]) -> Mapping[str, int]:
    """Bytes that each file brings into memory where it is loaded; files that are read tensor by tensor bring none."""
    mapped = {*_mapped(raw, "")}
    found: dict[str, int] = defaultdict(int)
    for storage in storages:
        if not any(path in ("", storage.file) or storage.file.startswith(f"{path}/") for path in mapped):
            found[storage.file] += storage.nbytes
    return found


def _mapped(tree: RawTree, path: str, *, inside: bool = False) -> Iterator[str]:
    """Paths of the files that are read tensor by tensor, those of their shards with them."""
    is_mapped = inside or tree.container in _MAPPED
    if is_mapped:
        yield path
    for label, inner in tree.files.items():
        yield from _mapped(inner, label, inside=is_mapped)


def _storages(raw: RawTree) -> Mapping[Storage, str]:
    """Every storage, and the device that it was saved from, "" where the file does not say."""
    found: dict[Storage, str] = {}
    for one in tensors_in(raw.root):
        if one.storage is not None:
            found.setdefault(one.storage, one.device)
    return found


def _duplicates(checkpoint: Checkpoint, masters: int) -> Iterator[tuple[str, int]]:
    """What a file holds beside one copy of weights and state, in words, with its bytes."""
    state = checkpoint.state
    own = {entry.ref.place for entry in _of_model(checkpoint) if isinstance(entry.ref, RawTensor)} - {None}
    for section, said in _SECTIONS.items():
        entries = state.sections.get(section, {}).values()
        apart = [one for one in entries if not (isinstance(one.ref, RawTensor) and one.ref.place in own)]
        yield said, _bytes_of(apart)
    yield "float32 copies of the weights", masters
    yield "a second state of the same parameters", _twice(state.optimizers)
    yield "unused by any tensor", sum(one.nbytes - used for one, used in used_bytes(checkpoint.raw).items())


def _twice(optimizers: Iterable[Optimizer]) -> int:
    """Bytes of state that a parameter has in a further optimizer."""
    seen: set[str] = set()
    total = 0
    for one in optimizers:
        named = {name: kept for name, kept in one.state.items() if not name.startswith(("#", "<"))}
        total += sum(entry.nbytes for name, kept in named.items() if name in seen for entry in kept.values())
        seen.update(named)
    return total
