"""MosaicML Composer: one file of `state` and `rng`, or the same as a distributed checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ckptcheck.conventions.files import keeps_order
from ckptcheck.conventions.groups import is_optimizer
from ckptcheck.conventions.parts import Parts, checkpoint, put
from ckptcheck.conventions.progress import number_of
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTree

STATE: Final = "state"
RNG: Final = "rng"
OPTIMIZERS: Final = "optimizers"
TIMESTAMP: Final = "timestamp"
_WITHIN: Final = ("_in_epoch", "_in_iteration")
"""Endings of the counters that say where in an epoch, and so in the data, the training stands."""
_COUNTERS: Final = frozenset({"iteration", "epoch", "batch", "sample", "token"})
_AVERAGES: Final = ("ema_model", "swa_model")
"""Keys of averaged weights in the states of algorithms."""
_EXPLAINED: Final = frozenset(
    {"algorithms", "callbacks", "rank_zero_seed", "train_metrics", "eval_metrics", "run_name", "integrations",
     "metadata", "is_model_ddp"}
)  # fmt: skip
_SKIPS: Final = (
    "keeps no state of the data but its place in the epoch: at a resume Composer draws as many batches again and skips "
    "them"
)


class Composer:
    """Told by its timestamp, or by what it notes beside a model, under `state`."""

    name = "composer"

    def claims(self, raw: RawTree) -> bool:
        """Whether `state` holds Composer's own keys."""
        if raw.container in ("folder", "zip", "tar", "store") or not isinstance(raw.root, Mapping):
            return False
        state = raw.root.get(STATE)
        if not isinstance(state, Mapping) or "param_groups" in raw.root:
            return False
        has_time = {"batch", "sample_in_epoch"} <= set(_timestamp(state))
        is_noted = isinstance(state.get("model"), Mapping) and isinstance(state.get("metadata"), Mapping)
        return has_time or (is_noted and "composer_env_info" in state["metadata"])

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Optimizers and schedules stand under their class, generators in a list with one for each rank."""
        state = raw.root[STATE]
        parts = Parts(model=state.get("model"), ordered=keeps_order(raw, ""), step=None, recorded_step="")
        for key, value in state.items():
            if key != "model":
                _sort(key, value, parts)
        _add_time(_timestamp(state), parts)
        _add_generators(raw.root.get(RNG), parts)
        for key, value in raw.root.items():
            if key not in (STATE, RNG):
                parts.unrecognised.append(put(parts.extra, str(key), value))
        for label, tree in raw.files.items():
            parts.unrecognised.append(put(parts.extra, label, tree.root))
        metadata = state.get("metadata")
        told = number_of(metadata.get("world_size")) if isinstance(metadata, Mapping) else None
        parts.world_size = told or len(parts.generators) or None
        if not parts.optimizers and not parts.progress:
            parts.notes.append("holds the weights alone, as Composer saves them with weights_only")
        return _with_classes(checkpoint(raw, self.name, parts, names), parts)


def _with_classes(found: Checkpoint, parts: Parts) -> Checkpoint:
    """Each optimizer with the class that it stands under."""
    kinds = [path.removeprefix(f"{OPTIMIZERS}.") for path in parts.optimizers]
    named = tuple(replace(one, class_name=kind) for one, kind in zip(found.state.optimizers, kinds, strict=True))
    return replace(found, state=replace(found.state, optimizers=named))


def _timestamp(state: Mapping[Any, Raw]) -> Mapping[Any, Raw]:
    """The counters, which stand under their class in newer versions."""
    found = state.get(TIMESTAMP)
    if isinstance(found, Mapping) and isinstance(found.get("Timestamp"), Mapping):
        found = found["Timestamp"]
    return found if isinstance(found, Mapping) else {}


def _add_time(counters: Mapping[Any, Raw], parts: Parts) -> None:
    for key, value in counters.items():
        if str(key).endswith(_WITHIN):
            put(parts.data, f"{TIMESTAMP}.{key}", value)
        else:
            put(parts.progress if key in _COUNTERS else parts.extra, f"{TIMESTAMP}.{key}", value)
    step = number_of(counters.get("batch"))
    if step is not None:
        parts.step, parts.recorded_step = step, f"timestamp.batch {step}"


def _add_generators(value: Raw, parts: Parts) -> None:
    if isinstance(value, list | tuple):
        parts.generators.update({rank: [one] for rank, one in enumerate(value)})
    elif value is not None:
        put(parts.extra, RNG, value)


def _sort(key: Any, value: Raw, parts: Parts) -> None:
    """One attribute of Composer's state."""
    if key == TIMESTAMP:
        counters = _timestamp({TIMESTAMP: value})
        rest = {inner: one for inner, one in value.items() if one is not counters} if counters else value
        if counters is not value and (rest or not counters):
            put(parts.extra, f"{STATE}.{TIMESTAMP}", rest)
    elif key == OPTIMIZERS and isinstance(value, Mapping):
        _add_optimizers(value, parts)
    elif key == "schedulers" and isinstance(value, Mapping):
        _add_each(key, value, parts.schedulers)
    elif key == "scaler" and isinstance(value, Mapping):
        _add_each(key, value, parts.scalers)
    elif key == "dataset_state":
        _add_data(value, parts)
    elif key == "algorithms":
        _add_algorithms(value, parts)
    else:
        path = put(parts.extra, f"{STATE}.{key}", value)
        if key not in _EXPLAINED:
            parts.unrecognised.append(path)


def _add_optimizers(value: Mapping[Any, Raw], parts: Parts) -> None:
    for kind, one in value.items():
        path = f"{OPTIMIZERS}.{kind}"
        if is_optimizer(one):
            put(parts.optimizers, path, one)
        else:
            parts.unrecognised.append(put(parts.extra, path, one))


def _add_each(key: str, value: Mapping[Any, Raw], into: dict[str, Raw]) -> None:
    """Objects by their class; without any, a run had none."""
    for kind, one in value.items():
        put(into, f"{key}.{kind}", one)


def _add_data(value: Raw, parts: Parts) -> None:
    """The state of a dataset that has one; one that has none is written as None."""
    train = value.get("train") if isinstance(value, Mapping) else value
    if train is not None:
        put(parts.data, "dataset_state", value)
        return
    put(parts.extra, f"{STATE}.dataset_state", value)
    parts.notes.append(_SKIPS)


def _add_algorithms(value: Raw, parts: Parts) -> None:
    """A list of names and states, with averaged weights among them."""
    items = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(items, list | tuple):
        put(parts.extra, f"{STATE}.algorithms", value)
        return
    for place, item in enumerate(items):
        is_pair = isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)
        kind, held = item if is_pair else (f"[{place}]", item)
        if isinstance(held, Mapping):
            for key in _AVERAGES:
                if isinstance(held.get(key), Mapping):
                    put(parts.ema, f"algorithms.{kind}.{key}", held[key])
                    put(parts.models, "ema" if "ema" not in parts.models else f"{kind}.{key}", held[key])
            held = {key: one for key, one in held.items() if not (key in _AVERAGES and isinstance(one, Mapping))}
        put(parts.extra, f"{STATE}.algorithms.{kind}", held)
