"""The parts that a checkpoint is sorted into, and the one way in which they become a training state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from ckptcheck.conventions import groups, rng
from ckptcheck.conventions.entries import entries, merge
from ckptcheck.conventions.flat_optimizer import is_flat, take_apart
from ckptcheck.conventions.labels import item_places, optimizer_labels
from ckptcheck.conventions.module_attributes import DESCRIPTION, module_entries
from ckptcheck.conventions.progress import step_of
from ckptcheck.conventions.weights import Weights, is_module, weights
from ckptcheck.conventions.wrappers import Stripper
from ckptcheck.errors import UsageError
from ckptcheck.state.checkpoint import Checkpoint, Naming
from ckptcheck.state.raw import Raw, RawTree
from ckptcheck.state.training_state import Entry, Optimizer, TrainingState
from ckptcheck.state.tree import flatten

PROGRESS: Final = "progress"
"""The section of epochs and steps: beside those that live objects have."""


@dataclass(slots=True)
class Parts:
    """A checkpoint's raw values by what they are, still under the file's own names.

    Attributes:
        model: the state_dict of the model, or several under their names; None without one.
        ordered: whether the file keeps the model's registration order.
        optimizers: state_dicts by a label, in the run's order.
        schedulers, scalers, data: state_dicts by a label.
        ema: by a label.
        generators: states of random generators, by the rank that saved them.
        progress: counters by their path.
        extra: everything else by path.
        models: further weights by name.
        step, recorded_step: completed steps, and the same in the file's own words; where the words are None, both are
            taken from `progress`.
        unrecognised: paths of `extra` that nobody explains.
    """

    model: Raw = None
    ordered: bool = True
    optimizers: dict[str, Raw] = field(default_factory=dict)
    schedulers: dict[str, Raw] = field(default_factory=dict)
    scalers: dict[str, Raw] = field(default_factory=dict)
    data: dict[str, Raw] = field(default_factory=dict)
    ema: dict[str, Raw] = field(default_factory=dict)
    generators: dict[int, list[Raw]] = field(default_factory=dict)
    progress: dict[str, Raw] = field(default_factory=dict)
    extra: dict[str, Raw] = field(default_factory=dict)
    models: dict[str, Raw] = field(default_factory=dict)
    step: int | None = None
    recorded_step: str | None = None
    world_size: int | None = None
    unrecognised: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def put(part: dict[str, Raw], path: str, value: Raw) -> str:
    """Keep a value under its path, marked where a key with a dot in it spelt another's path; returns the path."""
    while path in part:
        path = f"{path} (2)"
    part[path] = value
    return path


def checkpoint(
    raw: RawTree,
    convention: str,
    parts: Parts,
    names: Sequence[str] | None = None,
    *,
    optimizers: tuple[tuple[Optimizer, ...], tuple[Naming, ...]] | None = None,
    model: Weights | None = None,
) -> Checkpoint:
    """Everything named and put together.

    `names` are the user's for the optimizers' indices, all optimizers' one after the other. A writer whose optimizers
    or model are not state_dicts passes them ready made.
    """
    _set_aside_strangers(parts)
    held = model or model_of(parts)
    extra = entries_of(parts.extra)
    merge(extra, {f"model.{path}": one for path, one in held.rest.items()})
    described = (DESCRIPTION,) if is_module(parts.model) else ()
    if described:
        merge(extra, module_entries(parts.model))
    ready, namings = optimizers or _optimizers(parts, held, names, extra)
    states, strange = _generators(parts)
    merge(extra, strange)
    sections = {
        "schedule": _objects(parts.schedulers),
        "scaler": _objects(parts.scalers),
        "ema": _objects(parts.ema),
        "data": entries_of(parts.data),
        PROGRESS: entries_of(parts.progress),
        "extra": extra,
    }
    step, words = step_of(parts.progress) if parts.recorded_step is None else (parts.step, parts.recorded_step)
    state = TrainingState(
        source=f"{convention} checkpoint {raw.path}",
        step=step,
        parameters=held.parameters,
        buffers=held.buffers,
        optimizers=ready,
        sections={key: found for key, found in sections.items() if found},
        rng=states,
    )
    return Checkpoint(
        raw=raw,
        convention=convention,
        state=state,
        namings=namings,
        optimizer_labels=_labels(parts, len(ready)),
        stripped=_stripped(parts, held),
        recorded_step=words,
        world_size=parts.world_size,
        unrecognised=tuple(parts.unrecognised),
        descriptions=described,
        notes=tuple(parts.notes),
        models=parts.models,
    )


def model_of(parts: Parts) -> Weights:
    """The model, with what its optimizers name taken for parameters."""
    optimized = {name for one in parts.optimizers.values() for name in groups.names_in(one)}
    found = weights(parts.model, ordered=parts.ordered, optimized=optimized)
    further = {key: dict(flatten(one)) for key, one in parts.models.items() if isinstance(one, Mapping)}
    beside = {*(name for names in further.values() for name in names)}
    return replace(found, beside=beside | {f"{key}.{name}" for key, names in further.items() for name in names})


def entries_of(trees: Mapping[str, Raw]) -> dict[str, Entry]:
    """Entries of several trees, each under its own key."""
    found: dict[str, Entry] = {}
    for key, tree in trees.items():
        merge(found, entries(tree, key))
    return found


def _set_aside_strangers(parts: Parts) -> None:
    """What lies in an optimizer's place and is no state_dict of torch's form is kept as it is."""
    strangers = [key for key, one in parts.optimizers.items() if not (groups.is_optimizer(one) or is_flat(one))]
    for key in strangers:
        parts.unrecognised.append(put(parts.extra, key, parts.optimizers.pop(key)))


def _stripped(parts: Parts, model: Weights) -> tuple[str, ...]:
    """The wrapper prefixes that were found in the model's names, and in those of its optimizers."""
    own = [Stripper(groups.names_in(one)).found for one in parts.optimizers.values()]
    return tuple(dict.fromkeys((*model.strip.found, *(part for found in own for part in found))))


def _labels(parts: Parts, count: int) -> tuple[str, ...]:
    return optimizer_labels(parts.optimizers) if len(parts.optimizers) == count else ("",) * count


def _objects(trees: Mapping[str, Raw]) -> dict[str, Entry]:
    """Entries of one object by path; of several with their key in front, those of one list with their place.

    The store has places, too.
    """
    places = item_places(trees)
    found: dict[str, Entry] = {}
    for key, tree in trees.items():
        merge(found, entries(tree, places.get(key, key) if len(trees) > 1 else ""))
    return found


def names_of_each(parts: Parts, names: Sequence[str] | None) -> dict[str, Sequence[str] | None]:
    """The user's names that are each optimizer's, by its label. UsageError where they are too many or too few."""
    counts = {key: groups.member_count(one) for key, one in parts.optimizers.items() if groups.is_optimizer(one)}
    if names is None or not counts:
        return dict.fromkeys(parts.optimizers)
    if len(names) != sum(counts.values()):
        raise UsageError(
            f"{len(names)} parameter names were given and the optimizers hold {sum(counts.values())} parameters: "
            "give one name for each, in the order of the param groups"
        )
    ends = list(accumulate(counts.values()))
    given = {key: names[end - counts[key] : end] for key, end in zip(counts, ends, strict=True)}
    return {key: given.get(key) for key in parts.optimizers}


def _optimizers(
    parts: Parts, model: Weights, names: Sequence[str] | None, extra: dict[str, Entry]
) -> tuple[tuple[Optimizer, ...], tuple[Naming, ...]]:
    found: list[tuple[Optimizer, Naming]] = []
    given = names_of_each(parts, names)
    for key, one in parts.optimizers.items():
        if is_flat(one):
            found.append(_flat_optimizer(key, one, parts, model, extra))
            continue
        done = groups.explain_optimizer(one, model, given[key])
        parts.notes.extend(f"{key} {said}" for said in done.notes)
        found.append((done.optimizer, done.naming))
        merge(extra, entries_of({f"{key}.{path}": value for path, value in done.rest.items()}))
    return tuple(optimizer for optimizer, _ in found), tuple(naming for _, naming in found)


def _flat_optimizer(
    key: str, value: Mapping[str, Raw], parts: Parts, model: Weights, extra: dict[str, Entry]
) -> tuple[Optimizer, Naming]:
    apart = take_apart(value, model)
    strange = {f"{key}.{path}": one for path, one in apart.rest.items()}
    merge(extra, entries_of(strange))
    parts.unrecognised.extend(strange)
    if apart.regrouped:
        parts.notes.append(
            f"{key} keeps hyperparameters for each parameter and no groups: parameters whose hyperparameters are equal "
            "stand as one group"
        )
    return apart.optimizer, apart.naming


def _generators(parts: Parts) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """States by generator, and what lay with them. With one process its rank is not said."""
    found: dict[str, Entry] = {}
    strange: dict[str, Entry] = {}
    for rank, trees in sorted(parts.generators.items()):
        label = f"rank {rank}" if rank else ""
        for tree in trees:
            states, rest = rng.generators(tree, label)
            merge(found, states)
            merge(
                strange, entries_of({f"rng.{label}.{key}" if label else f"rng.{key}": one for key, one in rest.items()})
            )
    return found, strange
