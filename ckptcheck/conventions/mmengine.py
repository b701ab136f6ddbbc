"""Files of MMEngine's runner, which all OpenMMLab trainers share.

Source: mmengine 0.10.7, `Runner.save_checkpoint`, `OptimWrapper`, `EMAHook`.
"""

from collections.abc import Mapping
from typing import Any, Final

from ckptcheck.conventions.groups import is_optimizer
from ckptcheck.conventions.parts import Parts, put
from ckptcheck.conventions.progress import is_counter, number_of
from ckptcheck.conventions.single_file import Root, SingleFile, leave, sorted_beside
from ckptcheck.state.raw import Raw
from ckptcheck.state.tree import join

META: Final = "meta"
VERSION: Final = "mmengine_version"
SCALER: Final = "loss_scaler"
AVERAGED: Final = "module."
"""Before each name of the model in `ema_state_dict`."""
TAKEN: Final = (META, "state_dict", "ema_state_dict", "optimizer", "param_schedulers")
DESCRIBED: Final = ("message_hub",)
"""Logs and what hooks told each other; the runner's own counters in it are copies."""


def _wrote(root: Root, _: str) -> bool:
    """Its version stands in `meta`."""
    meta = root.get(META)
    return isinstance(meta, Mapping) and VERSION in meta and isinstance(root.get("state_dict"), Mapping)


def _sort(root: Root) -> Parts:
    """Of all its counters `meta.iter` is the one that a resume takes: completed steps."""
    parts = sorted_beside(root, described=DESCRIBED, taken=TAKEN, model=root["state_dict"])
    if "ema_state_dict" in root:
        _add_average(root["state_dict"], root["ema_state_dict"], parts)
    if "optimizer" in root:
        _add_optimizers(root["optimizer"], parts)
    if "param_schedulers" in root:
        _add_schedulers(root["param_schedulers"], parts)
    meta = root[META]
    counters = {key: value for key, value in meta.items() if is_counter(key, value)}
    parts.progress.update({f"{META}.{key}": value for key, value in counters.items()})
    put(parts.extra, META, {key: value for key, value in meta.items() if key not in counters})
    step = number_of(counters.get("iter"))
    if step is not None:
        parts.step, parts.recorded_step = step, f"{META}.iter {step}"
    return parts


def _add_average(weights: Mapping[Any, Raw], average: Raw, parts: Parts) -> None:
    """`EMAHook` writes the average where the model stands, and the model under the average's names.

    So the file that a release takes holds averaged weights; a resume swaps them back.
    """
    if not isinstance(average, Mapping):
        leave(parts, "ema_state_dict", average)
        return
    trained = {key.removeprefix(AVERAGED): value for key, value in average.items() if _is_weight(key)}
    if not trained:
        parts.models["ema"] = parts.ema["ema_state_dict"] = average
        return
    averages = {key: value for key, value in weights.items() if key in trained}
    parts.model = {**weights, **trained}
    parts.models["ema"] = averages
    parts.ema["state_dict"] = held = dict(averages)
    for key, value in average.items():
        if not _is_weight(key):
            put(held, str(key), value)
    parts.notes.append("state_dict holds the averaged weights, and ema_state_dict those that train")


def _is_weight(key: Any) -> bool:
    return isinstance(key, str) and key.startswith(AVERAGED)


def _add_optimizers(value: Raw, parts: Parts) -> None:
    """One optimizer, or several by name; the scaler of mixed precision lies inside."""
    several = isinstance(value, Mapping) and bool(value) and all(map(is_optimizer, value.values()))
    for path, one in (
        [(join("optimizer", key), one) for key, one in value.items()] if several else [("optimizer", value)]
    ):
        if not is_optimizer(one):
            leave(parts, path, one)
            continue
        put(parts.optimizers, path, {name: part for name, part in one.items() if name != SCALER})
        if SCALER in one:
            put(parts.scalers, f"{path}.{SCALER}", one[SCALER])


def _add_schedulers(value: Raw, parts: Parts) -> None:
    """A list of schedules of learning rate or momentum, or one for each of several optimizers."""
    here = "param_schedulers"
    lists = [(join(here, key), one) for key, one in value.items()] if isinstance(value, Mapping) else [(here, value)]
    for path, one in lists:
        if isinstance(one, list) and one and all(isinstance(schedule, Mapping) for schedule in one):
            for place, schedule in enumerate(one):
                put(parts.schedulers, f"{path}[{place}]", schedule)
        elif one == []:
            put(parts.extra, path, one)
        else:
            leave(parts, path, one)


MMENGINE: Final = SingleFile("mmengine", _wrote, _sort)
