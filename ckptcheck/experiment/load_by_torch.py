"""What `load_state_dict` of torch makes of a checkpoint of any format, whose bytes our own readers read.

For targets that have no load of their own: models by name, optimizers by position, as torch does it, or by name where
the file keys its optimizers by name; schedules, scalers and averages by place. No pickle is executed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.sorting import is_scaler, is_scheduler
from ckptcheck.errors import CheckpointError
from ckptcheck.experiment.raised import one_line
from ckptcheck.experiment.raw_values import NotPlainError, optimizer_dict, tensor_of, to_python
from ckptcheck.experiment.run import Run
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from ckptcheck.state.naming import LiveNames, resolve, roots_of
from ckptcheck.state.raw import Raw, RawTensor
from ckptcheck.trace.subjects import as_list

MAX_DEPTH = 6
"""How deep in a checkpoint schedules and scalers are looked for."""
Told: TypeAlias = tuple[list[str], list[str]]


def load_state_dicts(path: Path, run: Run) -> Told:
    """Load what the checkpoint has for the model, the optimizers, the schedules, the scalers and the average.

    Returns what torch refused, one line each, and what was not tried. What torch refuses as a whole it is asked for
    in part: a model is then filled with what fits.
    """
    raw = read_raw(path, strict=False)
    checkpoint = explain(raw)
    troubles: list[str] = []
    left_out: list[str] = []
    names = resolve(run.model)
    _load_model(checkpoint, run, names, (troubles, left_out))
    _load_optimizers(checkpoint, run, names, (troubles, left_out))
    for word, live, found in (
        ("scheduler", as_list(run.scheduler), [*_found(raw.root, is_scheduler)]),
        ("scaler", as_list(run.scaler), [*_found(raw.root, is_scaler)]),
        ("EMA", as_list(run.ema), [one for key, one in checkpoint.models.items() if key == "ema"]),
    ):
        if live and len(live) == len(found):
            for one, state in zip(live, found, strict=True):
                _try(word, one.load_state_dict, partial(to_python, state), (troubles, left_out))
        elif live:
            left_out.append(f"{word}: the target has {len(live)}, {len(found)} found in the file")
    left_out += (
        ["random generators"] + (["data"] if run.data is not None else []) + [f"extra {key}" for key in run.extra]
    )
    return troubles, left_out


def _try(word: str, load: Callable[[Any], object], make: Callable[[], Any], told: Told) -> None:
    """Load what `make` makes of the file; what it cannot make is not tried."""
    try:
        state = make()
    except (NotPlainError, CheckpointError) as error:
        told[1].append(f"{word}: {error}")
        return
    try:
        load(state)
    except Exception as error:  # noqa: BLE001  a load_state_dict may be the user's own, and raise anything
        told[0].append(f"{word}: {one_line(error)}")


def _load_model(checkpoint: Checkpoint, run: Run, names: LiveNames, told: Told) -> None:
    stored = dict(_stored_tensors(checkpoint))
    if not stored:
        told[1].append("model: the file has no weights that can be told")
        return
    used: set[str] = set()
    for prefix, module in roots_of(run.model).items():
        word = f"model {prefix}".strip()
        try:
            filled = _state_dict_for(module, prefix, names, stored, used)
        except (NotPlainError, CheckpointError) as error:
            told[1].append(f"{word}: {error}")
            continue
        _load_module(module, word, filled, told)
    surplus = sorted(set(stored) - used)
    if surplus:
        told[0].append(f"model: unexpected keys {', '.join(surplus[:8])}" + (" ..." if len(surplus) > 8 else ""))


def _stored_tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, RawTensor]]:
    for name, one in checkpoint.state.parameters.items():
        for alias in (name, *one.aliases):
            if isinstance(one.entry.ref, RawTensor):
                yield alias, one.entry.ref
    for name, buffer in checkpoint.state.buffers.items():
        if isinstance(buffer.ref, RawTensor):
            yield name, buffer.ref


def _state_dict_for(
    module: Any, prefix: str, names: LiveNames, stored: Mapping[str, RawTensor], used: set[str]
) -> dict[str, Any]:
    """The file's tensors under the module's own keys, wrapper prefixes and all."""
    by_id: dict[int, list[str]] = {}
    for name, tensor in (*names.parameters.items(), *names.buffers.items()):
        by_id.setdefault(id(tensor), []).extend((name, *names.aliases.get(name, ())))
    filled: dict[str, Any] = {}
    for key, value in module.state_dict(keep_vars=True).items():
        if not isinstance(value, torch.Tensor):
            filled[key] = value  # a module's own extra state stays as it is
            continue
        own = f"{prefix}.{key}" if prefix else key
        known = [one for one in (own, *by_id.get(id(value), ())) if one in stored]
        if known:
            used.update(known)
            filled[key] = tensor_of(stored[known[0]])
    return filled


def _load_module(module: Any, word: str, filled: dict[str, Any], told: Told) -> None:
    try:
        module.load_state_dict(filled, strict=True)
    except RuntimeError as error:
        told[0].append(f"{word}: {one_line(error)}")
        live = module.state_dict()
        fits = {
            key: one for key, one in filled.items() if getattr(one, "shape", None) == getattr(live[key], "shape", None)
        }
        module.load_state_dict(fits, strict=False)


def _load_optimizers(checkpoint: Checkpoint, run: Run, names: LiveNames, told: Told) -> None:
    live, stored = as_list(run.optimizer), checkpoint.state.optimizers
    if live and len(live) != len(stored):
        told[1].append(f"optimizer: the target has {len(live)}, {len(stored)} found in the file")
        return
    for place, (one, optimizer) in enumerate(zip(live, stored, strict=False)):
        by_name = checkpoint.namings[place].source in (NameSource.KEYS, NameSource.SLICES)
        word = f"optimizer {place}" + (", by name" if by_name else "")
        members = None
        if by_name:
            members = [[names.name_of(tensor) for tensor in group["params"]] for group in one.param_groups]
        make = partial(optimizer_dict, checkpoint.raw.root, place, optimizer, len(stored), members)
        _try(word, one.load_state_dict, make, told)


def _found(value: Raw, is_kind: Callable[[Raw], bool], depth: int = MAX_DEPTH) -> Iterator[Raw]:
    """Every outermost value of a kind, in the file's order."""
    if is_kind(value):
        yield value
    elif depth:
        for inner in _inside(value):
            yield from _found(inner, is_kind, depth - 1)


def _inside(value: Raw) -> Iterable[Raw]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) and len(value) < 64 else ()
