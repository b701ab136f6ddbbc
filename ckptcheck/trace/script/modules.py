"""The modules of a script: every one that is made is known, and the roots among them are named."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from weakref import ref

import torch
from torch import nn

from ckptcheck.trace.script.wrapping import tell_after


class Modules:
    """Knows every module made since `listen`, without keeping any alive."""

    def __init__(self) -> None:
        self._made: dict[int, ref[nn.Module]] = {}
        self._called: dict[int, ref[nn.Module]] = {}

    def listen(self) -> Callable[[], None]:
        """Know every module that is made from here on; returns what undoes it."""
        undo = [tell_after(nn.Module, "__init__", self._add), tell_after(nn.Module, "__setstate__", self._add)]
        return lambda: [one() for one in undo] and None

    def _add(self, module: nn.Module) -> None:
        # A module's own class may define == without a hash, so that it can be no key itself.
        key = id(module)
        self._made[key] = ref(module, lambda _: self._made.pop(key, None))

    def called(self, module: nn.Module) -> None:
        """Note a module that was entered from outside of any other."""
        if id(module) not in self._called:
            self._called[id(module)] = ref(module)

    def roots(self, trained: Iterable[torch.Tensor]) -> dict[str, nn.Module]:
        """The modules that no other one holds, by prefix, of those that hold a trained parameter or were called.

        The one that holds trained parameters has no prefix where it is the only one; others have that of their class.
        """
        alive = [module for one in list(self._made.values()) if (module := one()) is not None]
        held = {
            id(child) for module in alive for child in getattr(module, "_modules", {}).values() if child is not None
        }
        wanted = {id(tensor) for tensor in trained}
        called = {id(module) for one in self._called.values() if (module := one()) is not None}
        tops = [module for module in alive if id(module) not in held and "_parameters" in module.__dict__]
        training = [one for one in tops if any(id(parameter) in wanted for parameter in one.parameters())]
        chosen = {id(one) for one in training}
        beside = [one for one in tops if id(one) not in chosen and id(one) in called and _holds_any(one)]
        named = [("", training[0])] if len(training) == 1 else list(_by_class(training))
        return dict([*named, *_by_class(beside)])


def _holds_any(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None or next(module.buffers(), None) is not None


def _by_class(modules: list[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    """Prefixes by class name; several of one class are numbered in the order in which they were made."""
    counts = Counter(type(one).__name__ for one in modules)
    seen: Counter[str] = Counter()
    for one in modules:
        name = type(one).__name__
        seen[name] += 1
        yield (name if counts[name] == 1 else f"{name}#{seen[name]}"), one
