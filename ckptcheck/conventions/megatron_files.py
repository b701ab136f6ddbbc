"""Which file of a Megatron-LM checkpoint is which, and what lies in a distributed one under flat keys."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.conventions.files import files_of
from ckptcheck.state.raw import Foreign, Raw, RawTensor, RawTree

_RANK_FILE: Final = re.compile(
    r"(?:.+/)?(?P<rank>mp_rank_\d{2,6}(?:_\d{1,6}){0,2})/(?P<what>model_optim_rng|model_rng|distrib_optim|"
    r"layer_wise_optimizer_\d{1,6}|train_dataloader_dprank\d{1,6})\.pt"
)
_STATE: Final = re.compile(
    r"(?:chained_\d+\.)?optimizer\.state\.(?P<key>exp_avg|exp_avg_sq|fp32_param|momentum_buffer|param|step|master_param)\."
    r"(?P<name>.+)"
)
"""State of a distributed checkpoint: the state's key stands before the parameter's name."""
_BUCKET: Final = re.compile(
    r"(?:chained_\d+\.)?optimizer\.distributed\.dp_group_idx_(?P<group>\d+)\."
    r"(?P<bucket>gbuf_idx_\d+\..+)\.(?P<key>[a-z0-9_]+)"
)
_OBJECT: Final = re.compile(r"(?P<key>.+)/shard_[\d.]+_[\d.]+")
_OF_GROUP: Final = re.compile(r"(?:chained_\d+\.)?optimizer\.distributed\.dp_group_idx_\d+\.(?P<key>[a-z0-9_]+)")
COMMON: Final = "common.pt"
COMMON_OBJECT: Final = "common_state"
BACKEND: Final = "metadata.json"
VERSION: Final = "checkpoint_version"


@dataclass(slots=True)
class RankState:
    """What one model-parallel rank saved.

    Attributes:
        label: the rank's folder, "" where one file or a distributed checkpoint holds all.
        root: the dict of model, optimizer, arguments and the rest.
        buckets: what the distributed optimizer keeps, by bucket and state key, or as its file has it.
        beside: other files of the rank, by name.
        notes: what a reader should know, one sentence each.
    """

    label: str = ""
    root: Mapping[Any, Raw] = field(default_factory=dict)
    buckets: Raw = None
    beside: dict[str, Raw] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def is_root(value: Raw) -> bool:
    """Whether a dict is what Megatron saves in one file, told by its version beside model and progress."""
    if not isinstance(value, Mapping) or VERSION not in value:
        return False
    return ("model" in value or "model0" in value) and ("iteration" in value or "args" in value)


def is_distributed(raw: RawTree) -> bool:
    """Whether a distributed checkpoint is Megatron's: its own mark beside the slices, or its keys."""
    beside = {label.rpartition("/")[2]: tree.root for label, tree in raw.files.items()}
    backend = beside.get(BACKEND)
    if isinstance(backend, Mapping) and "sharded_backend" in backend:
        return True
    return is_root(raw.root) or any(
        isinstance(key, str) and (_STATE.fullmatch(key) or _BUCKET.fullmatch(key)) for key in raw.root
    )


def rank_files(raw: RawTree) -> dict[str, tuple[str, str]]:
    """The files of ranks by path: the rank's folder, and what the file is."""
    matches = {path: _RANK_FILE.fullmatch(path) for path in files_of(raw)}
    return {path: (match["rank"], match["what"]) for path, match in matches.items() if match}


def ranks_of(raw: RawTree) -> list[RankState]:
    """Each rank's state, in the order of ranks."""
    found: dict[str, RankState] = {}
    for path, (label, what) in sorted(rank_files(raw).items()):
        rank = found.setdefault(label, RankState(label))
        value = files_of(raw)[path]
        if what in ("model_optim_rng", "model_rng") and isinstance(value, Mapping) and not rank.root:
            rank.root = value
        elif what == "distrib_optim" and rank.buckets is None:
            rank.buckets = value
        else:
            rank.beside[what] = value
    return list(found.values())


def distributed_state(raw: RawTree) -> RankState:
    """The flat keys of a distributed checkpoint as one rank's state."""
    beside = {label.rpartition("/")[2]: tree.root for label, tree in raw.files.items()}
    common = beside.pop(COMMON, None)
    root: dict[Any, Raw] = dict(common) if isinstance(common, Mapping) else {}
    rank = RankState(beside={BACKEND: beside[BACKEND]} if BACKEND in beside else {})
    rank.beside.update({name: value for name, value in beside.items() if name != BACKEND})
    if common is not None and not root:
        rank.beside[COMMON] = common
    flat = _Flat(rank, root)
    for key, value in raw.root.items():
        flat.put(key, value)
    rank.root = flat.done()
    return rank


@dataclass(slots=True)
class _Flat:
    """Flat keys being sorted into the dict that one file would have."""

    rank: RankState
    root: dict[Any, Raw]
    model: dict[str, Raw] = field(default_factory=dict)
    state: dict[str, dict[str, Raw]] = field(default_factory=dict)
    buckets: dict[str, dict[str, Raw]] = field(default_factory=dict)
    parts: dict[str, Raw] = field(default_factory=dict)
    generators: list[Raw] = field(default_factory=list)

    def put(self, key: Any, value: Raw) -> None:
        text = str(key)
        thing = _OBJECT.fullmatch(text)
        if thing is not None:
            self.object(thing["key"], text, value)
        elif match := _STATE.fullmatch(text):
            self.keep(self.state.setdefault(match["name"], {}), match["key"], text, value)
        elif match := _BUCKET.fullmatch(text):
            name = f"group {match['group']}, {match['bucket']}"
            self.keep(self.buckets.setdefault(name, {}), match["key"], text, value)
        elif isinstance(value, RawTensor) and not text.startswith("optimizer."):
            self.model[text] = value
        elif key in self.root or text.startswith("optimizer."):
            self.rank.beside[text] = value
        else:
            self.root[key] = value

    def keep(self, kept: dict[str, Raw], key: str, text: str, value: Raw) -> None:
        """State under its key; of two chained optimizers that have the same, the later one lies beside."""
        if key in kept:
            self.rank.beside[text] = value
        else:
            kept[key] = value

    def object(self, key: str, text: str, value: Raw) -> None:
        """A value that is no tensor, or what one rank keeps of it."""
        match = _OF_GROUP.fullmatch(key)
        if key == COMMON_OBJECT and isinstance(value, Mapping):
            for inner, one in value.items():
                if inner in self.root:
                    self.rank.beside[f"{text}.{inner}"] = one
                else:
                    self.root[inner] = one
        elif key.endswith("rng_state") and isinstance(value, list | tuple):
            self.generators += value
        elif match is not None and match["key"] not in self.parts:
            self.parts[match["key"]] = value
        else:
            self.rank.beside[text] = value

    def done(self) -> dict[Any, Raw]:
        """The dict, with model and optimizer in their places."""
        own = self.root.pop("optimizer", None)
        inner = {key: one for key, one in self.parts.items() if key != "param_state"}
        if inner and not isinstance(own, Mapping | None):
            self.rank.beside["optimizer"] = own
            own = None
        optimizer = {**(own or {}), **inner} if inner else own
        if self.generators:
            if "rng_state" in self.root:
                self.rank.beside["rng_state"] = self.root["rng_state"]
            self.root["rng_state"] = self.generators
        self.rank.buckets = self.parts.get("param_state", self.buckets or None)
        if "param_state" in self.parts:
            self.rank.beside.update(self.buckets)
        found = {**self.root, **({"optimizer": optimizer} if optimizer is not None else {})}
        if self.model:
            if "model" in found:
                self.rank.beside["model"] = found["model"]
            found["model"] = self.model
        if self.state:
            found["optimizer_state_by_name"] = self.state
        return found


def arguments(value: Raw) -> Mapping[Any, Raw]:
    """The attributes of the run's arguments; none where there are none."""
    held = value.state if isinstance(value, Foreign) else value
    return held if isinstance(held, Mapping) else {}
