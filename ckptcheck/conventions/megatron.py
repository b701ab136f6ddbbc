"""Megatron-LM: a file for each model-parallel rank, or a distributed checkpoint.

Ranks hold tensors and layers under the same names, each its own part: with several ranks every name has its rank's
folder in front.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ckptcheck.conventions.entries import entries
from ckptcheck.conventions.files import files_of, stem
from ckptcheck.conventions.groups import is_optimizer
from ckptcheck.conventions.megatron_files import (
    BACKEND,
    RankState,
    arguments,
    distributed_state,
    is_distributed,
    is_root,
    rank_files,
    ranks_of,
)
from ckptcheck.conventions.megatron_optimizer import SOME_LAYERS, Kept, by_name, explained, kept_optimizers
from ckptcheck.conventions.parts import Parts, checkpoint, model_of, names_of_each, put
from ckptcheck.conventions.progress import number_of
from ckptcheck.conventions.weights import Weights
from ckptcheck.state.checkpoint import Checkpoint, Naming
from ckptcheck.state.raw import Foreign, Raw, RawTree
from ckptcheck.state.training_state import Optimizer

LAYER_WISE: Final = "layer_wise_optimizer_"
BY_NAME: Final = "optimizer_state_by_name"
_SCHEDULERS: Final = ("opt_param_scheduler", "lr_scheduler")
_STEPS: Final = ("iteration", "total_iters")
_GENERATORS: Final = ("random_rng_state", "np_rng_state", "torch_rng_state", "cuda_rng_state", "rng_tracker_states")
_POSITION: Final = ("consumed_train_samples", "skipped_train_samples", "consumed_valid_samples")
"""Arguments that say where in the data the training stands."""
_EXPLAINED: Final = frozenset(
    {"args", "checkpoint_version", "num_floating_point_operations_so_far", "rerun_state_machine", "content_metadata"}
)
_FILES: Final = frozenset({"torch-zip", "torch-legacy", "torch-tar"})
_LOCAL: Final = (
    "each of {count} model-parallel ranks holds its own part under the same names, and pipeline stages count their "
    "layers from 0: names have the rank's folder in front"
)
_NO_BACKEND: Final = (
    f"{BACKEND} is not there, which Megatron writes last: it would not take the folder for one of its own format"
)


class Megatron:
    """Told by the files of ranks, by the version that Megatron notes, or by its marks in a distributed checkpoint."""

    name = "megatron"

    def claims(self, raw: RawTree) -> bool:
        """Whether a rank's file, or what it would hold, is there."""
        if raw.container == "dcp":
            return isinstance(raw.root, Mapping) and is_distributed(raw)
        if raw.container in _FILES:
            return is_root(raw.root)
        return any(what in ("model_optim_rng", "distrib_optim") for _, what in rank_files(raw).values())

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Model and optimizers of every rank; arguments, progress and schedule of the first."""
        if raw.container == "dcp" and not is_root(raw.root):
            ranks = [distributed_state(raw)]
            if BACKEND not in ranks[0].beside:
                ranks[0].notes.append(_NO_BACKEND)
        elif raw.container == "dcp" or raw.container in _FILES:
            ranks = [RankState(root=raw.root, beside={label: tree.root for label, tree in raw.files.items()})]
        else:
            ranks = ranks_of(raw)
        work = _Ranks(raw, names, ranks)
        work.parts.notes += [note for rank in ranks for note in rank.notes]
        return work.checkpoint(self.name)


@dataclass(slots=True)
class _Ranks:
    """The ranks of one checkpoint on their way into parts."""

    raw: RawTree
    names: Sequence[str] | None
    ranks: list[RankState]
    parts: Parts = field(default_factory=Parts)
    kept: list[tuple[RankState, list[Kept]]] = field(default_factory=list)

    def checkpoint(self, name: str) -> Checkpoint:
        models = {rank.label: model for rank in self.ranks if (model := _model(rank.root)) is not None}
        is_alone = len(self.ranks) == 1
        self.parts.model = next(iter(models.values()), None) if is_alone else models or None
        self.parts.ordered = self.raw.container != "dcp"
        for place, rank in enumerate(self.ranks):
            self.add(rank, "" if is_alone else rank.label, is_first=place == 0)
        self.add_others()
        if not is_alone:
            self.parts.notes.append(_LOCAL.format(count=len(self.ranks)))
        model = model_of(self.parts)
        ready = self.optimizers(model, is_alone=is_alone)
        return checkpoint(self.raw, name, self.parts, self.names, optimizers=ready, model=model)

    def add(self, rank: RankState, label: str, *, is_first: bool) -> None:
        """Everything of one rank but its model; of later ranks what is unlike the first's."""
        prefix = f"{label}." if label else ""
        first = self.ranks[0].root
        for key, value in rank.root.items():
            if _is_model_key(key) or key in ("optimizer", BY_NAME):
                continue
            if key == "rng_state" or key in _GENERATORS:
                continue
            if not is_first and key in first and _same(value, first[key]):
                continue
            self.add_part(key, value, "" if is_first else prefix)
        self.add_generators(rank, prefix)
        self.add_optimizers(rank, prefix)
        for path, value in rank.beside.items():
            if not path.startswith(LAYER_WISE):
                is_data = path.startswith("train_dataloader")
                put(self.parts.data if is_data else self.parts.extra, f"{prefix}{path}", value)

    def add_optimizers(self, rank: RankState, prefix: str) -> None:
        """The rank's optimizers, those of its data-parallel ranks' own files among them."""
        kept, strange = kept_optimizers(f"{prefix}optimizer", rank.root.get("optimizer"), rank.buckets)
        for path, value in rank.beside.items():
            if path.startswith(LAYER_WISE):
                more, rest = kept_optimizers(f"{prefix}{path}", value, None)
                kept += [replace(one, reason=SOME_LAYERS) for one in more]
                strange |= rest
        self.kept.append((rank, kept))
        for path, value in (*strange.items(), *((path, one) for each in kept for path, one in each.beside.items())):
            put(self.parts.extra, path, value)
        for one in kept:
            if one.scaler is not None:
                put(self.parts.scalers, f"{one.label}.grad_scaler", one.scaler)

    def add_part(self, key: Any, value: Raw, prefix: str) -> None:
        path = f"{prefix}{key}"
        if key in _SCHEDULERS and isinstance(value, Mapping):
            put(self.parts.schedulers, path, value)
        elif key in _STEPS and number_of(value) is not None:
            put(self.parts.progress, path, value)
            if not prefix and self.parts.recorded_step is None:
                self.parts.step, self.parts.recorded_step = number_of(value), f"{key} {number_of(value)}"
        elif key == "args":
            self.add_arguments(value, path)
        else:
            put(self.parts.extra, path, value)
            if key not in _EXPLAINED:
                self.parts.unrecognised.append(path)

    def add_arguments(self, value: Raw, path: str) -> None:
        """The run's arguments, of which some say how far it had come."""
        held = arguments(value)
        position = {key: held[key] for key in _POSITION if number_of(held.get(key)) is not None}
        for key, one in position.items():
            put(self.parts.data, f"{path}.{key}", one)
        rest: Raw = {key: one for key, one in held.items() if key not in position}
        put(
            self.parts.extra, path, replace(value, state=rest) if isinstance(value, Foreign) and held else rest or value
        )
        size = number_of(held.get("world_size"))
        if size is not None and size > 0:
            self.parts.world_size = size

    def add_generators(self, rank: RankState, prefix: str) -> None:
        """One state, or one for each data-parallel rank; numbered in the order in which they are found."""
        value = rank.root.get("rng_state")
        if isinstance(value, Mapping) and value and all(isinstance(one, list | tuple) for one in value.values()):
            value = [one for states in value.values() for one in states]
        own = {key: rank.root[key] for key in _GENERATORS if key in rank.root}
        states = [*(value if isinstance(value, list | tuple) else ()), *([own] if own else [])]
        for one in states:
            self.parts.generators[len(self.parts.generators)] = [one]
        if value is not None and not isinstance(value, list | tuple):
            put(self.parts.extra, f"{prefix}rng_state", value)

    def add_others(self) -> None:
        """Files of the folder that are no rank's."""
        used = rank_files(self.raw)
        for path, value in files_of(self.raw).items():
            if path not in used:
                self.parts.unrecognised.append(put(self.parts.extra, stem(path), value))

    def optimizers(self, model: Weights, *, is_alone: bool) -> tuple[tuple[Optimizer, ...], tuple[Naming, ...]]:
        held = {one.label: one.inner for _, kept in self.kept for one in kept}
        self.parts.optimizers = {label: inner for label, inner in held.items() if is_optimizer(inner)}
        given = names_of_each(self.parts, self.names)
        done: list[tuple[Optimizer, Naming]] = []
        for rank, kept in self.kept:
            state = rank.root.get(BY_NAME)
            if isinstance(state, Mapping):
                done.append(self.by_name(kept, state, model))
                continue
            own = model if is_alone else _of_rank(model, rank.label)
            for one in kept:
                optimizer, naming, rest, notes = explained(one, own, given.get(one.label))
                done.append((optimizer, naming))
                self.parts.extra.update(rest)
                self.parts.notes += notes
        return tuple(one for one, _ in done), tuple(one for _, one in done)

    def by_name(self, kept: list[Kept], state: Mapping[str, Any], model: Weights) -> tuple[Optimizer, Naming]:
        """The one optimizer of a distributed checkpoint; a step that all share is progress."""
        for one in kept:
            rest = {key: held for key, held in one.inner.items() if key not in ("state", "param_groups")}
            shared = one.inner.get("state", {})
            for key, held in shared.items():
                put(self.parts.progress if key == "common_step" else self.parts.extra, f"{one.label}.state.{key}", held)
            for key, held in (*rest.items(), *one.buckets.items()):
                put(self.parts.extra, f"{one.label}.{key}", held)
        optimizer, naming, notes = by_name("optimizer", kept, state, model)
        self.parts.notes += notes
        self.parts.optimizers = {"optimizer": {"state": {}, "param_groups": [{}]}}
        return optimizer, naming


def _model(root: Mapping[Any, Raw]) -> Raw:
    """The rank's model, or the parts of it that a rank of several stages holds."""
    found = {key: value for key, value in root.items() if _is_model_key(key)}
    return found["model"] if set(found) == {"model"} else found or None


def _is_model_key(key: Any) -> bool:
    return isinstance(key, str) and (key == "model" or (key.startswith("model") and key[5:].isdecimal()))


def _of_rank(model: Weights, label: str) -> Weights:
    """One rank's part of the model."""
    shapes = {name: shape for name, shape in model.shapes.items() if name.startswith(f"{label}.")}
    return replace(model, shapes=shapes)


def _same(one: Raw, other: Raw) -> bool:
    """Whether two plain values are the same in every leaf."""
    left, right = entries(one), entries(other)
    told = {path: (entry.digest, entry.spec) for path, entry in left.items()}
    is_plain = all(entry.digest is not None for entry in left.values())
    return is_plain and told == {path: (entry.digest, entry.spec) for path, entry in right.items()}
