"""What several rules over a dry-run ask of it."""

from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.comparison.bindings import Binding, bindings, regrouped
from ckptcheck.comparison.groups import match_groups
from ckptcheck.finding import Place
from ckptcheck.optimizers.row import Row
from ckptcheck.optimizers.table import TORCH
from ckptcheck.rules.loads.dry_run import DryRun, Paired
from ckptcheck.state.stages import LOAD
from ckptcheck.state.training_state import Entry, Optimizer

RATES: Final = frozenset(
    {
        "lr",
        "initial_lr",
        "min_lr",
        "max_lr",
        "base_lr",
        "swa_lr",
        "momentum",
        "base_momentum",
        "max_momentum",
        "betas[0]",
    }
)
"""Hyperparameters that a schedule sets."""
BOOKKEEPING: Final = frozenset(
    {"initial_lr", "min_lr", "max_lr", "base_momentum", "max_momentum", "swa_lr", "lr_scale"}
)
"""Of a group, what schedules and trainers keep in it and no update reads."""


COUNTED_IN_GROUPS: Final = frozenset(
    {
        "step",
        "k",
        "n_iter",
        "num_updates",
        "weight_sum",
        "lr_max",
        "scheduled_lr",
        "train_mode",
        "d",
        "d_max",
        "d_hat",
        "d_numerator",
        "d_denom",
        "gsq_weighted",
        "numerator_weighted",
    }
)
"""What schedule-free, Prodigy and D-Adaptation optimizers count and estimate in their groups as they go."""


def at(**place: object) -> Place:
    """A place right after the load, whatever step the file is of."""
    return Place(stage=LOAD, **place)  # type: ignore[arg-type]


def bound(dry: DryRun) -> Iterator[tuple[Paired, Binding]]:
    """How the load bound the state of each optimizer that it could take as a whole."""
    if dry.load is None or dry.loaded_optimizers is None:
        return
    for one in bindings(dry.load):
        pair = dry.pairs[one.optimizer]
        if pair.file is not None and not refused(dry, pair):
            yield pair, one


def sizes(optimizer: Optimizer) -> list[int]:
    """How many parameters each group has."""
    return [len(group.members) for group in optimizer.groups]


def refused(dry: DryRun, pair: Paired) -> bool:
    """Whether torch cannot take the file's groups: another number of them, or of parameters in one.

    A load of the target's own that came to its end has found a way.
    """
    if pair.file is None or not pair.by_position or (dry.loaded_optimizers is not None and dry.raised is None):
        return False
    return sizes(pair.file) != sizes(pair.live)


def came(dry: DryRun, section: str) -> bool:
    """Whether the load changed anything in a section."""
    if dry.loaded is None:
        return False
    return not _alike(dry.built.sections.get(section, {}), dry.loaded.sections.get(section, {}))


def state_came(dry: DryRun, place: int) -> bool:
    """Whether the load changed any state of a live optimizer."""
    if dry.loaded is None or place >= len(dry.loaded.optimizers):
        return False
    before, after = dry.built.optimizers[place].state, dry.loaded.optimizers[place].state
    return before.keys() != after.keys() or not all(_alike(one, after[name]) for name, one in before.items())


def _alike(left: Mapping[str, Entry], right: Mapping[str, Entry]) -> bool:
    return left.keys() == right.keys() and all(one.digest == right[key].digest for key, one in left.items())


def rows_of(optimizer: Optimizer) -> tuple[Row, ...]:
    """The row of a live optimizer's class, none for a class that torch does not have."""
    return tuple(row for row in TORCH if row.name == optimizer.class_name)


def moved(pair: Paired) -> dict[str, tuple[int, int]]:
    """Parameters that are in another group in the target than in the file: (file's group, live group)."""
    if pair.file is None or not pair.named:
        return {}
    match = match_groups([one.members for one in pair.file.groups], [one.members for one in pair.live.groups])
    return regrouped(pair.file, pair.live, match)


def displaced(pair: Paired) -> dict[str, str]:
    """Live parameters whose place in the file is that of another one: live name to the file's name."""
    if pair.file is None or not pair.named or not pair.by_position or sizes(pair.file) != sizes(pair.live):
        return {}
    pairs = zip(members_by_place(pair.live), members_by_place(pair.file), strict=True)
    return {name: was for name, was in pairs if name is not None and was is not None and name != was}


def members_by_place(optimizer: Optimizer) -> list[str | None]:
    """Members in order, None for a tensor that the model does not hold."""
    return [name for group in optimizer.groups for name in group.members]


def was_scheduled(dry: DryRun) -> bool:
    """Whether a schedule set the file's rates: it is there, or has left its mark in a group."""
    groups = [group for pair in dry.pairs if pair.file is not None for group in pair.file.groups]
    return "schedule" in dry.checkpoint.state.sections or any("initial_lr" in one.hyperparameters for one in groups)


def file_names(dry: DryRun) -> set[str]:
    """Every name of a tensor of the file's model."""
    state = dry.checkpoint.state
    return {*state.parameters, *state.buffers, *(name for one in state.parameters.values() for name in one.aliases)}
