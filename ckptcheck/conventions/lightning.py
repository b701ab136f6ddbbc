"""The `.ckpt` files of PyTorch Lightning."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ckptcheck.conventions.parts import Parts, checkpoint, put
from ckptcheck.conventions.progress import number_of
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTree

VERSION: Final = "pytorch-lightning_version"
SCALERS: Final = ("MixedPrecision", "MixedPrecisionPlugin", "native_amp_scaling_state", "amp_scaling_state")
CURRENT: Final = "current_model_state"
AVERAGING: Final = "averaging_state"
"""What the callback `WeightAveraging` keeps: the model itself, and what the average has beside the weights."""
_METADATA: Final = "internal_optimizer_metadata"
EXPLAINED: Final = frozenset(
    {VERSION, "callbacks", "hparams_name", "hyper_parameters", "hparams_type", "datamodule_hyper_parameters",
     "datamodule_hparams_name", "datamodule_hparams_type"}
)  # fmt: skip
"""Keys that are no state of the training but belong to the format."""


class Lightning:
    """Told by its version's key at the root."""

    name = "lightning"

    def claims(self, raw: RawTree) -> bool:
        """Whether the root holds Lightning's version."""
        return isinstance(raw.root, Mapping) and VERSION in raw.root

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """The optimizers are keyed by index, each from 0, in the order of `configure_optimizers`."""
        return checkpoint(raw, self.name, lightning_parts(raw.root), names)


def lightning_parts(root: Mapping[Any, Raw]) -> Parts:
    """The parts of a Lightning checkpoint's dict."""
    parts = Parts(model=root.get("state_dict"))
    is_averaged = isinstance(root.get(CURRENT), Mapping) and isinstance(root.get("state_dict"), Mapping)
    if is_averaged:
        _add_average(parts, root)
    for key, value in root.items():
        if key == "state_dict" or (is_averaged and key in (CURRENT, AVERAGING)):
            continue
        if key == "optimizer_states" and isinstance(value, list):
            parts.optimizers.update(_numbered(key, _with_names(value, root.get("callbacks"))))
        elif key == "lr_schedulers" and isinstance(value, list):
            parts.schedulers.update(_numbered(key, value))
        elif key in SCALERS:
            parts.scalers[key] = value
        elif key in ("epoch", "global_step", "loops"):
            parts.progress[key] = value
        else:
            put(parts.extra, str(key), value)
            if key not in EXPLAINED:
                parts.unrecognised.append(str(key))
    step = number_of(root.get("global_step"))
    if step is not None:
        parts.step, parts.recorded_step = _steps(root, step, len(parts.optimizers)), f"global_step {step}"
    return parts


def _add_average(parts: Parts, root: Mapping[Any, Raw]) -> None:
    """With averaged weights the model that trains stands under a key of its own, and the average in its place."""
    average, beside = root["state_dict"], root.get(AVERAGING)
    parts.model = root[CURRENT]
    parts.models["ema"] = average
    parts.ema["state_dict"] = {**average, **(beside if isinstance(beside, Mapping) else {})}


def _with_names(optimizers: list[Raw], callbacks: Raw) -> list[Raw]:
    """The optimizers with the names that the callback `BaseFinetuning` keeps of each group's parameters."""
    held = [one.get(_METADATA) for one in callbacks.values() if isinstance(one, Mapping)] if isinstance(
        callbacks, Mapping) else []  # fmt: skip
    metadata = [one for one in held if isinstance(one, Mapping)]
    if len(metadata) != 1:
        return optimizers
    return [_named(one, metadata[0].get(place)) for place, one in enumerate(optimizers)]


def _named(optimizer: Raw, told: Raw) -> Raw:
    """One optimizer with the names; as it is where it has its own, or other groups than those that are told."""
    groups = optimizer.get("param_groups") if isinstance(optimizer, Mapping) else None
    if not isinstance(groups, list) or not isinstance(told, list) or len(groups) != len(told):
        return optimizer
    named: list[Raw] = []
    for group, one in zip(groups, told, strict=True):
        members, names = (each.get("params") if isinstance(each, Mapping) else None for each in (group, one))
        if not isinstance(members, list) or not isinstance(names, list) or len(members) != len(names):
            return optimizer
        if "param_names" in group or not all(isinstance(name, str) for name in names):
            return optimizer
        named.append({**group, "param_names": names})
    return {**optimizer, "param_groups": named}


def _numbered(key: str, values: list[Raw]) -> dict[str, Raw]:
    return {f"{key}[{place}]": value for place, value in enumerate(values)}


def _steps(root: Mapping[Any, Raw], global_step: int, optimizers: int) -> int | None:
    """Completed batches: Lightning's global step counts the updates of all optimizers together."""
    if optimizers <= 1:
        return global_step
    found: Raw = root.get("loops")
    for key in ("fit_loop", "epoch_loop.state_dict", "_batches_that_stepped"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return number_of(found)
