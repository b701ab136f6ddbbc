"""The modules of a script: every one that is made is known, and the roots among them are named."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final
from weakref import ref

import torch
from torch import nn

from ckptcheck.state.naming import resolve
from ckptcheck.trace.script.averages import averaged
from ckptcheck.trace.script.living import objects
from ckptcheck.trace.script.wrapping import tell_after

_SEARCHES: Final = 3
"""How often everything alive is gone through for modules that were made in some other way than most."""
_FRAMES: Final = 12
"""So many calls there are at most between one that restores a module and our being told of it."""
_NEEDED: Final = frozenset({"_parameters", "_buffers", "_modules"})
_TOLD: Final = frozenset({1, 8, 64, 512, 4096})


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class _Known:
    """One module; `read` says that it was read from a file, as `torch.load` of a whole module does."""

    module: "ref[nn.Module]"
    read: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """The roots found last, and what they were found from. Keeps no module alive."""

    structure: list[int]
    wanted: set[int]
    called: int
    training: "dict[str, ref[nn.Module]]"
    beside: "dict[str, ref[nn.Module]]"
    averages: "list[ref[nn.Module]]"


class Modules:
    """Knows every module made since `listen`, without keeping any alive.

    `changes` counts how often one was added. `tell_called` hears of each module that is entered for the first time,
    `tell_made` of a few of those that are made, the first one among them.
    """

    def __init__(self) -> None:
        self.changes = 0
        self.tell_called: Callable[[nn.Module], None] = lambda _: None
        self.tell_made: Callable[[], None] = _nothing
        self._known: dict[int, _Known] = {}
        self._called: dict[int, ref[nn.Module]] = {}
        self._found: _Found | None = None
        self._stands = -1
        """`changes` when what was found last was looked at; -1 where it is to be looked at again."""
        self._searched: set[int] = set()
        self._searches = 0

    def listen(self) -> Callable[[], None]:
        """Know every module that is made from here on; returns what undoes it."""
        undo = [tell_after(nn.Module, "__init__", self._add), tell_after(nn.Module, "__setstate__", self._restored)]

        def stop() -> None:
            for one in undo:
                one()

        return stop

    def _add(self, module: nn.Module, read: bool = False) -> None:
        # A module's own class may define == without a hash, so that it can be no key itself.
        key = id(module)
        self.changes += 1
        if self.changes in _TOLD:
            self.tell_made()
        self._known[key] = _Known(ref(module, lambda _: self._known.pop(key, None)), read)

    def _restored(self, module: nn.Module) -> None:
        self._add(module, read=not _is_copied())

    def called(self, module: nn.Module) -> None:
        """Note a module that was entered from outside of any other."""
        known = self._called.get(id(module))
        if known is None or known() is not module:
            self._called[id(module)] = ref(module)
            if id(module) not in self._known:
                self._add(module)  # neither made nor restored in any usual way
            self.tell_called(module)

    @property
    def calls(self) -> int:
        """How many modules were noted as entered."""
        return len(self._called)

    def look_again(self) -> None:
        """Modules may have been put in place of others: what was found stands no longer."""
        self._stands = -1

    def contents(self) -> list[Any]:
        """Which tensors and modules each module holds under which names, by identity: equal where none has changed.

        Identities are told apart only as long as what was there is kept alive, or `changes` is the same.
        """
        contents: list[Any] = [self.changes]
        for module in self.alive():
            fields = module.__dict__
            contents.append(id(module))
            for kind in ("_modules", "_parameters", "_buffers"):
                held = fields[kind]
                if held:
                    contents.extend(held)
                    contents.extend(map(id, held.values()))
        return contents

    def alive(self) -> list[nn.Module]:
        """Every known module, in the order in which they were made."""
        found = [module for one in list(self._known.values()) if (module := one.module()) is not None]
        return [module for module in found if module.__dict__.keys() >= _NEEDED]

    def parameters(self) -> Iterator[tuple[nn.Module, str, torch.Tensor]]:
        """(module, own name, parameter) of every known module; one that is shared comes several times."""
        for module in self.alive():
            for name, parameter in module.__dict__["_parameters"].items():
                if parameter is not None:
                    yield module, name, parameter

    def roots(self, trained: Iterable[torch.Tensor]) -> dict[str, nn.Module]:
        """The modules that no other one holds, by prefix, of those that hold a trained parameter or were called.

        The one that holds trained parameters has no prefix where it is the only one; others have that of their class.
        """
        found = self._find({id(tensor) for tensor in trained})
        return _living({**found.training, **found.beside})

    def training(self, trained: Iterable[torch.Tensor]) -> dict[str, nn.Module]:
        """The roots that hold a trained parameter."""
        return _living(self._find({id(tensor) for tensor in trained}).training)

    def averages(self, trained: Iterable[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        """What averages of training roots hold, in the order in which they were made: names as in that root."""
        found = self._find({id(tensor) for tensor in trained})
        training = list(_living(found.training).values())
        return [averaged(module, training) for one in found.averages if (module := one()) is not None]

    def _find(self, wanted: set[int]) -> _Found:
        known = self._found
        if known and self._stands == self.changes and (known.wanted, known.called) == (wanted, len(self._called)):
            return known
        self._stands = self.changes
        structure = self._structure()
        if known and (known.structure, known.wanted, known.called) == (structure, wanted, len(self._called)):
            return known
        training = _covering(self._tops(), wanted)
        missing = wanted - {one for top in training for one in _held(top)}
        if missing - self._searched and self._search():
            structure = self._structure()
            training = _covering(self._tops(), wanted)
        self._searched = missing
        self._found = self._name(training, structure, wanted)
        return self._found

    def _structure(self) -> list[int]:
        """Which module holds which: equal where nothing was put in place of anything."""
        structure: list[int] = []
        for module in self.alive():
            structure.append(id(module))
            structure.extend(map(id, module.__dict__["_modules"].values()))
        return structure

    def _tops(self) -> list[nn.Module]:
        """The modules that no other one holds."""
        alive = self.alive()
        held = {id(child) for module in alive for child in module.__dict__["_modules"].values()}
        return [module for module in alive if id(module) not in held]

    def _search(self) -> bool:
        """Look through everything that is alive for modules that were made in some other way than most."""
        before = self.changes
        self._searches += 1
        if self._searches > _SEARCHES:
            return False
        for one in objects(lambda kind: issubclass(kind, nn.Module)):
            if id(one) not in self._known and not _is_replica(one):
                self._add(one)
        return self.changes > before

    def _name(self, training: list[nn.Module], structure: list[int], wanted: set[int]) -> _Found:
        chosen = {id(one) for one in training}
        inside = set().union(*map(_tensors, training))
        others = [one for one in self._tops() if id(one) not in chosen and not _tensors(one) <= inside]
        averages = [one for one in others if not self._known[id(one)].read and averaged(one, training)]
        chosen = {id(one) for one in averages}
        called = {id(module) for one in self._called.values() if (module := one()) is not None}
        beside = [one for one in others if id(one) not in chosen and not called.isdisjoint(_parts(one))]
        seen: Counter[str] = Counter()
        alone = {"": training[0]} if len(training) == 1 else _by_class(training, seen)
        return _Found(
            structure, wanted, len(self._called),
            training=_kept(alone), beside=_kept(_by_class(beside, seen)),
            averages=list(map(ref, averages)),
        )  # fmt: skip


def _kept(modules: dict[str, nn.Module]) -> "dict[str, ref[nn.Module]]":
    return {prefix: ref(module) for prefix, module in modules.items()}


def _living(modules: "dict[str, ref[nn.Module]]") -> dict[str, nn.Module]:
    return {prefix: module for prefix, one in modules.items() if (module := one()) is not None}


def _covering(tops: list[nn.Module], wanted: set[int]) -> list[nn.Module]:
    """The fewest tops that hold all wanted parameters, those that hold the most first taken, in their own order."""
    held = [(top, wanted & _held(top)) for top in tops]
    covered: set[int] = set()
    chosen: set[int] = set()
    for top, found in sorted(held, key=lambda one: -len(one[1])):
        if not found <= covered:
            chosen.add(id(top))
            covered |= found
    return [top for top in tops if id(top) in chosen]


def _held(module: nn.Module) -> set[int]:
    return {id(parameter) for parameter in resolve(module).parameters.values()}


def _by_class(modules: list[nn.Module], seen: Counter[str]) -> dict[str, nn.Module]:
    """Prefixes by class name; several of one class are numbered in the order in which they were made.

    `seen` counts the names given so far.
    """
    counts = Counter(type(one).__name__ for one in modules)
    taken = set(seen)
    named = {}
    for one in modules:
        name = type(one).__name__
        seen[name] += 1
        named[name if counts[name] == 1 and name not in taken else f"{name}#{seen[name]}"] = one
    return named


def _tensors(module: nn.Module) -> set[int]:
    names = resolve(module)
    return {id(tensor) for tensor in (*names.parameters.values(), *names.buffers.values())}


def _parts(module: nn.Module) -> set[int]:
    return set(resolve(module).names_of_modules)


def _is_replica(module: nn.Module) -> bool:
    """Whether nn.DataParallel made it for one of its threads."""
    return bool(module.__dict__.get("_is_replica"))


def _is_copied() -> bool:
    """Whether `copy.deepcopy` is what restores a module, and not the reading of a file."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame is not None and frame.f_globals.get("__name__") == "copy":
            return True
        frame = frame.f_back if frame is not None else None
    return False
