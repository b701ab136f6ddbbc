"""Folders whose save did not end: a part that the writer adds last, or that every rank adds, is not there."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.folders.folder_files import DCP_METADATA, DCP_SUFFIX, SHARD
from ckptcheck.readers.folders.sidecar import note
from ckptcheck.readers.folders.trackers import MEGATRON, tracked
from ckptcheck.readers.reader import Listing
from ckptcheck.readers.reading import Reading
from ckptcheck.state.raw import Flaw, RawTree

_HF_WEIGHTS: Final = re.compile(r"(model|pytorch_model|adapter_model)(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?")
_PER_RANK: Final = re.compile(r"(rng_state_|random_states_)(\d{1,6})\.(?:pth|pkl)")
_ZERO: Final = re.compile(
    r"(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d{1,6})_mp_rank_(?P<mp>\d{1,6})_(?P<what>optim|model)_states\.pt"
)
_MODEL_STATES: Final = re.compile(r"(?:zero_pp_rank_\d{1,6}_)?mp_rank_(?P<mp>\d{1,6})_model_states\.pt")

_BESIDE_DEEPSPEED: Final = frozenset({"zero_to_fp32.py", "trainer_state.json", "random_states_0.pkl"})
"""What stands beside a `latest` that is DeepSpeed's."""


def check_saved_whole(listing: Listing, files: Mapping[str, RawTree], reading: Reading) -> None:
    """Tell `reading.damaged` of every part that is missing; `files` are those that were read."""
    for file, said in (
        *_trainer(listing),
        *_ranks(listing),
        *_zero(listing, files),
        *_unindexed(listing),
    ):
        reading.damaged(Flaw.INCOMPLETE, file, said)
    _check_tracker(listing, reading)


def lacks_end(listing: Listing) -> str:
    """What the folder's layout writes last and is not there, in words; "" where nothing is missing by the names."""
    for _, said in _trainer(listing):
        return said
    if any(label.endswith(DCP_SUFFIX) for label in listing.files) and DCP_METADATA not in listing.files:
        return f"{DCP_METADATA} is not there, which is written last"
    return "" if listing.files else "it is empty"


def _trainer(listing: Listing) -> Iterator[tuple[str, str]]:
    """HF's Trainer: weights and arguments, optimizer, generators, and trainer_state.json last.

    A final model beside its training_args.bin has no optimizer and is whole.
    """
    names = listing.files
    is_step = re.fullmatch(r"checkpoint-\d+", listing.path.name) is not None
    begun = "training_args.bin" in names and any(map(_HF_WEIGHTS.fullmatch, names))
    if begun and ("optimizer.pt" in names or is_step) and "trainer_state.json" not in names:
        yield "", "trainer_state.json is not there, which the Trainer writes last: the save was cut short"


def _ranks(listing: Listing) -> Iterator[tuple[str, str]]:
    found: dict[str, set[int]] = {}
    for label in listing.files:
        match = _PER_RANK.fullmatch(label)
        if match:
            found.setdefault(match[1], set()).add(int(match[2]))
    for name, ranks in found.items():
        for rank in [] if _is_one_node(ranks) else _gaps(ranks, max(ranks) + 1):
            yield "", f"{name}{rank} is not there, though rank {max(ranks)} has its own"


def _is_one_node(ranks: set[int]) -> bool:
    """Whether these are the ranks of one later node, where each node keeps its own: 8 to 15."""
    return len(ranks) > 1 and max(ranks) - min(ranks) + 1 == len(ranks) and min(ranks) % len(ranks) == 0


def _gaps(ranks: set[int], count: int) -> list[int]:
    """The first missing ranks, at most eight: a count in a damaged file may be anything."""
    return [rank for rank in range(min(count, len(ranks) + 8)) if rank not in ranks][:8]


def _zero(listing: Listing, files: Mapping[str, RawTree]) -> Iterator[tuple[str, str]]:
    """DeepSpeed's ZeRO: each data-parallel rank writes its part of the optimizer, under stage 3 also of the model."""
    held: dict[tuple[str, str, str], set[int]] = {}
    states: dict[tuple[str, str], Any] = {}
    for label in listing.files:
        folder, _, name = label.rpartition("/")
        match = _ZERO.fullmatch(name)
        if match:
            held.setdefault((folder, match["mp"], match["what"]), set()).add(int(match["rank"]))
        model = _MODEL_STATES.fullmatch(name)
        if model and label in files:
            states.setdefault((folder, model["mp"]), files[label].root)
    universal = _universal_folders(listing)
    for (folder, mp), root in states.items():
        if _stage(root) > 0 and folder not in universal:
            held.setdefault((folder, mp, "optim"), set())
    for (folder, mp, what), ranks in held.items():
        world = _world(states.get((folder, mp))) or (max(ranks) + 1 if ranks else 0)
        for rank in _gaps(ranks, world):
            yield folder, f"the {what} states of rank {rank} of {world} (mp_rank {mp}) are not there"


def _universal_folders(listing: Listing) -> set[str]:
    """Folders whose optimizer was converted to a folder a parameter, `zero/<name>/fp32.pt`, which has no ranks."""
    parts = (label.split("/") for label in listing.files if label.endswith("/fp32.pt"))
    return {"/".join(one[:-3]) for one in parts if len(one) > 2 and one[-3] == "zero"}


def _stage(root: Any) -> int:
    config = root.get("ds_config") if isinstance(root, Mapping) else None
    zero = config.get("zero_optimization") if isinstance(config, Mapping) else None
    stage = zero.get("stage", 0) if isinstance(zero, Mapping) else 0
    return stage if isinstance(stage, int) else 0


def _world(root: Any) -> int:
    world = root.get("dp_world_size") if isinstance(root, Mapping) else None
    return world if isinstance(world, int) and 0 < world < 10**6 else 0


def _unindexed(listing: Listing) -> Iterator[tuple[str, str]]:
    """Shards of one set whose index, written after them, is not there, or of which some are not there."""
    found: dict[tuple[str, str, str, int], set[int]] = {}
    for label in listing.files:
        folder, _, name = label.rpartition("/")
        match = SHARD.fullmatch(name)
        if match and not name.startswith("shard-"):
            found.setdefault((folder, match["stem"], match["kind"], int(match["count"])), set()).add(
                int(match["number"])
            )
    indices = (label.rpartition("/") for label in listing.files if label.endswith(".index.json"))
    indexed = {(folder, name.removesuffix(".index.json").rpartition(".")[2]) for folder, _, name in indices}
    for (folder, stem, kind, count), numbers in found.items():
        if count > 1 and (folder, kind) not in indexed:
            lacking = count - len(numbers)
            said = (
                f"{lacking} of {count} shards of {stem}.{kind} are not there"
                if lacking > 0
                else f"{stem}.{kind}.index.json is not there, which says what its {count} shards hold"
            )
            yield folder, said


def _check_tracker(listing: Listing, reading: Reading) -> None:
    """DeepSpeed's tracker within a checkpoint, where it points nowhere. Other writers' trackers stand beside theirs."""
    if "latest" not in listing.files or MEGATRON in listing.files or _BESIDE_DEEPSPEED.isdisjoint(listing.files):
        return
    try:
        tracked(listing)
    except DamagedCheckpointError as trouble:
        note(reading, trouble, "latest")
    except CheckpointError as trouble:
        note(reading, DamagedCheckpointError(str(trouble), Flaw.INCOMPLETE), "latest")
