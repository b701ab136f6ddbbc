"""What each value of a training script's own dict is, told by its key and its content."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ckptcheck.conventions import groups, progress, rng
from ckptcheck.conventions.bulk import Bulk, gathered
from ckptcheck.conventions.flat_optimizer import is_flat, is_surely_flat
from ckptcheck.conventions.labels import OPTIMIZER_KEYS
from ckptcheck.conventions.parts import Parts, put
from ckptcheck.conventions.weights import is_module
from ckptcheck.conventions.words import is_number
from ckptcheck.state.raw import Foreign, Raw, RawTensor
from ckptcheck.state.tree import join

MODEL_KEYS: Final = (
    "model", "state_dict", "model_state_dict", "module", "net", "network", "model_state", "weights", "params",
    "net_state_dict", "network_state_dict", "model_dict", "policy", "module_state_dict", "pytorch_model",
)  # fmt: skip
"""Keys of the model that is trained; the first one that holds tensors is it."""
EMA_KEYS: Final = frozenset(
    {
        "ema", "state_dict_ema", "ema_state_dict", "model_ema", "ema_model", "ema_model_state_dict", "ema_state",
        "model_ema_state_dict", "shadow", "shadow_params", "averaged_model", "swa_model", "ema_weights", "net_ema",
        "swa_state_dict", "ema_params", "params_ema",
    }
)  # fmt: skip
SCHEDULER_KEYS: Final = frozenset(
    {
        "scheduler", "lr_scheduler", "schedulers", "lr_schedulers", "scheduler_state_dict", "lr_scheduler_state_dict",
        "param_schedulers", "sched", "lr_sched", "opt_param_scheduler", "scheduler_state", "warmup_scheduler",
        "schedule",
    }
)  # fmt: skip
SCALER_KEYS: Final = frozenset(
    {"scaler", "grad_scaler", "scaler_state_dict", "amp_scaler", "amp", "grad_scaler_state_dict", "loss_scaler"}
)
DATA_KEYS: Final = frozenset(
    {
        "dataloader", "sampler", "data", "data_loader", "train_dataloader", "dataloader_state_dict", "train_loader",
        "sampler_state_dict", "train_iterator", "dataset_state", "data_state", "dataloader_state", "data_sampler",
    }
)  # fmt: skip
RNG_KEYS: Final = frozenset(
    {"rng", "rng_state", "rng_states", "random_states", "random_state", "rngs", "random", "generator_state"}
)
PROGRESS_HOLDERS: Final = frozenset(
    {
        "progress", "prog", "train_state", "trainer_state", "training_state", "meta", "extra_state", "timestamp",
        "counters", "trainer_progress", "state",
    }
)  # fmt: skip
"""Keys of a dict that has counters in it, beside other things. Not "config": its "step" may be a setting."""
_SCALER_FIELDS: Final = frozenset({"scale", "growth_factor", "backoff_factor", "growth_interval"})
_SCHEDULE_FIELDS: Final = ("base_lrs", "_schedulers", "_last_lr", "num_bad_epochs")
_EXTRA_STATE: Final = "_extra_state"
"""What `Module.get_extra_state` gives stands under this key."""
_MODULE_NAMES: Final = frozenset({"weight", "bias"})
_MAX_NESTING: Final = 4
"""How deep below the root parts are looked for: `{"app": {"model": ...}}` is 2."""


def sort_dict(root: Mapping[Any, Raw], *, ordered: bool = True, model: Raw = None) -> Parts:
    """Sort a dict of parts; `ordered` tells whether the file keeps the order of a dict's keys.

    `model` is the one that trains, where its writer is known to keep it elsewhere: any in the dict is one beside it.
    """
    parts = Parts(ordered=ordered)
    models: dict[str, Raw] = {}
    stands = gathered(root)
    if isinstance(stands, Bulk):
        return Parts(model=model, extra={"root": stands}, unrecognised=["root"], ordered=ordered)
    _sort((root, stands), "", parts, models, _MAX_NESTING)
    if model is None:
        _choose_model(parts, models)
    else:
        parts.model = model
        _put_beside(parts, models)
    return parts


def is_state_dict(value: Raw) -> bool:
    """Whether this is a model's state_dict: tensors by name, hardly anything else.

    A dict of 0-d tensors alone is one of metrics.
    """
    if is_module(value):
        return True
    if not isinstance(value, Mapping) or not value or not all(isinstance(key, str) for key in value):
        return False
    tensors = {key: one for key, one in value.items() if is_tensor(one)}
    has_extent = any(one.spec is not None and one.spec.shape for one in tensors.values())
    counted = len(value) - _bystanders(value, tensors)
    return 2 * len(tensors) > counted and has_extent and not rng.is_generators(value)


def is_optimizer(value: Raw) -> bool:
    """Whether this is an optimizer's state_dict, nested or flattened."""
    return groups.is_optimizer(value) or is_surely_flat(value)


def is_tensor(value: Raw) -> bool:
    """Whether this is a tensor, or one of several parts. A scalar of numpy's is a number."""
    if isinstance(value, RawTensor):
        return not is_number(value)
    return isinstance(value, Foreign) and value.spec is not None


def _bystanders(value: Mapping[str, Raw], tensors: Mapping[str, Raw]) -> int:
    """How many values stand in a module's state_dict and are no tensors: its own extra state, and numbers.

    Numbers only where a tensor has a name as a module gives it, and no counters: a sampler has a tensor and numbers.
    """
    own = {key for key in value if key not in tensors and key.rpartition(".")[2] == _EXTRA_STATE}
    if not any("." in key or key in _MODULE_NAMES for key in tensors):
        return len(own)
    numbers = {key for key, one in value.items() if is_number(one) and not progress.is_counter(key, one)}
    return len(own | numbers)


def is_scheduler(value: Raw) -> bool:
    """Whether this is a learning rate scheduler's state_dict, told by its keys."""
    return isinstance(value, Mapping) and any(
        key in value and ("last_epoch" in value or key in ("_schedulers", "num_bad_epochs")) for key in _SCHEDULE_FIELDS
    )


def is_scaler(value: Raw) -> bool:
    """Whether this is a gradient scaler's state_dict, told by its keys. A disabled one is empty and tells nothing."""
    return isinstance(value, Mapping) and set(value) >= _SCALER_FIELDS


def _sort(trees: tuple[Raw, Raw], path: str, parts: Parts, models: dict[str, Raw], depth: int) -> None:
    """Sort the values of a dict, which is given beside what `gathered` makes of it."""
    root, stands = trees
    for key, value in root.items():
        here = join(path, key)
        word = key.lower() if isinstance(key, str) else ""
        if isinstance(stands[key], Bulk):
            _put_bulk(here, word, value, stands[key], parts)
            continue
        if _known(here, word, value, parts, models):
            continue
        if depth and isinstance(value, Mapping) and (_holds_parts(value, depth - 1) or _holds_counters(word, value)):
            _sort((value, stands[key]), here, parts, models, depth - 1)
        else:
            parts.unrecognised.append(put(parts.extra, here, value))


def _put_bulk(here: str, word: str, value: Raw, bulk: Bulk, parts: Parts) -> None:
    """What has no tensor and too many values to ask each of them what it is; only its own form and key tell."""
    if is_optimizer(value):
        put(parts.optimizers, here, value)
    elif is_scheduler(value) or word in SCHEDULER_KEYS:
        put(parts.schedulers, here, bulk)
    elif word in DATA_KEYS:
        put(parts.data, here, bulk)
    elif word in RNG_KEYS:
        parts.generators.setdefault(0, []).append(value)
    else:
        parts.unrecognised.append(put(parts.extra, here, bulk))


def _known(here: str, word: str, value: Raw, parts: Parts, models: dict[str, Raw]) -> bool:
    """Put a value into the part that it belongs to; False where none claims it."""
    for is_kind, keys, into in (
        (is_optimizer, OPTIMIZER_KEYS, parts.optimizers),
        (is_scheduler, SCHEDULER_KEYS, parts.schedulers),
        (is_scaler, SCALER_KEYS, parts.scalers),
    ):
        if _put_objects(here, value, is_kind, into) or (word in keys and _put_known(here, value, keys, into, parts)):
            return True
    if word in EMA_KEYS and isinstance(value, Mapping | Foreign | list):
        put(parts.models, "ema" if not parts.ema else here, value)
        put(parts.ema, here, value)
        return True
    if is_state_dict(value) or (word in MODEL_KEYS and _holds_models(value)):
        put(models, here, value)
    elif _is_generators(value) or (word in RNG_KEYS and value is not None):
        parts.generators.setdefault(0, []).append(value)
    elif rng.kind_of(word, value):
        parts.generators.setdefault(0, []).append({word: value})
    elif progress.is_counter(word, value):
        put(parts.progress, here, value)
    elif word in DATA_KEYS and isinstance(value, Mapping | list | Foreign):
        put(parts.data, here, value)
    else:
        return False
    return True


def _is_generators(value: Raw) -> bool:
    """Whether this is a dict of generators' states, and not a whole checkpoint with one of them in it."""
    return rng.is_generators(value) and not (isinstance(value, Mapping) and _holds_parts(value, 0))


def _put_objects(here: str, value: Raw, is_kind: Callable[[Raw], bool], into: dict[str, Raw]) -> bool:
    """One object of a kind, or a list or dict of nothing but such."""
    if is_kind(value):
        put(into, here, value)
        return True
    items: list[tuple[Any, Raw]] = []
    if isinstance(value, Mapping):
        items = [(join(here, key), one) for key, one in value.items()]
    elif isinstance(value, list | tuple):
        items = [(f"{here}[{place}]", one) for place, one in enumerate(value)]
    if not items or not all(is_kind(one) for _, one in items):
        return False
    for path, one in items:
        put(into, path, one)
    return True


def _put_known(here: str, value: Raw, keys: frozenset[str], into: dict[str, Raw], parts: Parts) -> bool:
    """A value under a known key that its content does not tell: a disabled scaler, a user's own schedule."""
    if value is None:
        put(parts.extra, here, None)
        return True
    if keys is OPTIMIZER_KEYS and is_flat(value):
        put(into, here, value)
        return True
    if keys is OPTIMIZER_KEYS or not isinstance(value, Mapping | list):
        return False
    if isinstance(value, Mapping) and not _holds_parts(value, 1):
        put(into, here, value)
        return True
    if not value:
        put(parts.extra, here, value)
        return True
    return False


def _holds_models(value: Raw) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(is_state_dict(one) for one in value.values())


def _holds_parts(value: Mapping[Any, Raw], depth: int) -> bool:
    """Whether a dict has a model or an optimizer in it, so that it is a folder of parts."""
    return any(
        is_optimizer(one)
        or is_state_dict(one)
        or is_scheduler(one)
        or (depth > 0 and isinstance(one, Mapping) and _holds_parts(one, depth - 1))
        for one in value.values()
    )


def _holds_counters(word: str, value: Mapping[Any, Raw]) -> bool:
    return word in PROGRESS_HOLDERS and any(progress.is_counter(key, one) for key, one in value.items())


def _choose_model(parts: Parts, models: dict[str, Raw]) -> None:
    """One model has no prefix; of several without a chief each has its key for a prefix, as live models have."""
    by_word = {path.rpartition(".")[2].lower(): path for path in reversed(list(models))}
    chief = next((by_word[word] for word in MODEL_KEYS if word in by_word), None)
    if chief is None and len(models) == 1:
        chief = next(iter(models))
    if chief is None:
        parts.model = models or None
    else:
        parts.model = models.pop(chief)
        _put_beside(parts, models)
        return
    parts.models.update(models)


def _put_beside(parts: Parts, models: dict[str, Raw]) -> None:
    """Models beside the chief."""
    for path, value in models.items():
        put(parts.extra, path, value)
    parts.models.update(models)
