"""Parameters without optimizer state beside others that have some: lost, or never trained?

An optimizer makes state for a parameter at its first step with a gradient, so a frozen or unused one never has any.
That strikes whole modules, or every module of a kind in the same way. Lost state strikes anything.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_STANDARD: Final = ("weight", "bias", "in_proj")
"""Beginnings of names that the parameters of torch's own modules have: these are trained together."""
_DIGITS: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Lost:
    """A parameter whose state surely is missing: `beside` is the one that shows it, as it would be trained with it."""

    name: str
    beside: str


@dataclass(frozen=True, slots=True)
class Idle:
    """Parameters that may never have been trained: a whole module, one of a kind in each, or a lone one.

    `what` says in words which they are; `is_lone` whether it is one parameter that stands for itself.
    """

    names: tuple[str, ...]
    what: str
    is_lone: bool


def told_apart(missing: Sequence[str], having: Collection[str]) -> tuple[list[Lost], list[Idle]]:
    """The parameters without state, by name: those that are lost, and the rest in units."""
    torn = dict(_torn(missing, having))
    kinds = _alike(torn, having)
    lost = [Lost(name, beside) for name, beside in torn.items() if name not in kinds]
    rest = [name for name in missing if name not in torn]
    if len(missing) == 1 and rest and (beside := _odd(rest[0], having)):
        return [Lost(rest[0], beside)], []
    idle = [*_units(rest, [*having, *torn])]
    by_leaf: dict[str, list[str]] = defaultdict(list)
    for name in (one for one in torn if one in kinds):
        by_leaf[_leaf(name)].append(name)
    idle += [Idle(tuple(names), f"every {leaf} of modules of a kind", False) for leaf, names in by_leaf.items()]
    return lost, idle


def runs_of(missing: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Runs of neighbouring indices, ascending, for parameters without names."""
    run: list[int] = []
    for index in sorted(missing):
        if run and index != run[-1] + 1:
            yield tuple(run)
            run = []
        run.append(index)
    if run:
        yield tuple(run)


def _torn(missing: Iterable[str], having: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each parameter of which another of the same module has state, with that one."""
    trained: dict[str, str] = {}
    for name in having:
        if _leaf(name).startswith(_STANDARD):
            trained.setdefault(_module(name), name)
    for name in missing:
        if _leaf(name).startswith(_STANDARD) and _module(name) in trained:
            yield name, trained[_module(name)]


def _alike(torn: Collection[str], having: Collection[str]) -> set[str]:
    """Torn parameters whose kind of module is torn in the same way everywhere, as where all biases are frozen."""
    leaves: dict[str, set[str]] = defaultdict(set)
    gone: dict[str, set[str]] = defaultdict(set)
    for name in having:
        leaves[_module(name)].add(_leaf(name))
    for name in torn:
        leaves[_module(name)].add(_leaf(name))
        gone[_module(name)].add(_leaf(name))
    by_kind: dict[frozenset[str], list[str]] = defaultdict(list)
    for module, own in leaves.items():
        by_kind[frozenset(own)].append(module)
    same: set[str] = set()
    for modules in by_kind.values():
        if len(modules) > 1 and len({frozenset(gone[module]) for module in modules}) == 1:
            same.update(modules)
    return {name for name in torn if _module(name) in same}


def _odd(name: str, having: Collection[str]) -> str | None:
    """One of the layers' counterparts, where all have state, as the rest of its own layer has."""
    numbers = [*_DIGITS.finditer(name)]
    if not numbers:
        return None
    layer = f"{name[: numbers[-1].end()]}."
    pattern = _DIGITS.sub("*", name)
    counterpart = next((one for one in having if _DIGITS.sub("*", one) == pattern), None)
    return counterpart if name.startswith(layer) and any(one.startswith(layer) for one in having) else None


def _units(missing: Sequence[str], others: Sequence[str]) -> Iterator[Idle]:
    """The largest modules of which nothing has state; what is in none stands for itself."""
    alive = {""} | {prefix for name in others for prefix in _modules(name)}
    units: dict[str, list[str]] = defaultdict(list)
    for name in missing:
        units[next((one for one in _modules(name) if one not in alive), name)].append(name)
    for unit, names in units.items():
        is_lone = len(names) == 1
        yield Idle(tuple(names), names[0] if is_lone else unit, is_lone)


def _modules(name: str) -> Iterator[str]:
    """The modules that a parameter is in, the outermost first."""
    for place, character in enumerate(name):
        if character == ".":
            yield name[:place]


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
