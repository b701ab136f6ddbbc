"""`load_state_dict` seen as it happens: told before anything is overwritten, and when it has returned or raised.

nn.Module is listened to at its own method, through which every override that loads by torch passes. An optimizer,
a schedule or a scaler may override it without calling torch's, so that their overrides are told too, those of classes
that are defined later as well. An override that calls torch's method is told twice, of what it was given and of what
it passes on; the last counts.
"""

from collections.abc import Callable, Iterator
from functools import partial, wraps
from operator import itemgetter
from types import FunctionType
from typing import Any, Final, Protocol
from weakref import ref

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from ckptcheck.trace.script.guard import GUARD
from ckptcheck.trace.script.wrapping import unlisted

_METHOD: Final = "load_state_dict"
_OWNERS: Final = ((Optimizer, "optimizer"), (LRScheduler, "schedule"), (GradScaler, "scaler"))


class LoadListener(Protocol):
    """Who hears of a load."""

    def before_load(self, section: str, loaded: Any, given: Any, options: dict[str, Any]) -> None:
        """An object of a section (model, optimizer, schedule, scaler) is about to load what it is given.

        `options` holds "strict" and "assign" of a module.
        """

    def after_load(self, loaded: Any, returned: Any) -> None:
        """A load has come to its end."""

    def load_raised(self, loaded: Any, error: BaseException) -> None:
        """A load has raised; the script's exception goes on."""


def listen(loading: LoadListener) -> Callable[[], None]:
    """Tell of every `load_state_dict`; returns what undoes it."""
    telling = [loading]
    undo = [_in_place(nn.Module, _METHOD, _telling(nn.Module.__dict__[_METHOD], telling, "model"))]
    for owner, section in _OWNERS:
        undo.append(_in_place(owner, _METHOD, _telling(owner.__dict__[_METHOD], telling, section)))
        overrides = _Overrides(telling, section)
        for known in _below(owner):
            overrides.tell_of(known)
        undo += [_in_place(owner, "__init_subclass__", _on_subclass(owner, overrides)), overrides.undo]

    def leave() -> None:
        telling.clear()  # a class may have wrapped ours meanwhile, and keeps it
        for one in reversed(undo):
            one()
        undo.clear()

    return leave


def _telling(original: Any, telling: list[LoadListener], section: str) -> Any:
    @wraps(original)
    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not telling:
            return original(self, *args, **kwargs)
        loading = telling[0]
        named = dict(zip(("state_dict", "strict", "assign"), args, strict=False)) | kwargs
        given = named.pop("state_dict", None)
        GUARD.run(loading.before_load, section, self, given, named)
        del given, named
        try:
            returned = original(self, *args, **kwargs)
        except BaseException as error:
            GUARD.run(loading.load_raised, self, error)
            raise
        GUARD.run(loading.after_load, self, returned)
        return returned

    return unlisted(load_state_dict)


class _Told:
    """An overriding method that tells. Who pickles its class by value, as cloudpickle does, gets the original."""

    def __init__(self, original: FunctionType, telling: Any) -> None:
        self.original = original
        self.telling = telling

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.telling.__get__(instance, owner)

    def __reduce__(self) -> Any:
        return itemgetter(0), ((self.original,),)


class _Overrides:
    """The overrides of one section's classes."""

    def __init__(self, telling: list[LoadListener], section: str) -> None:
        self._telling = partial(_telling, telling=telling, section=section)
        self._over = False
        self._undo: list[Callable[[], None]] = []

    def tell_of(self, owner: Any) -> None:
        """Tell of the loads of a class that has a method of its own."""
        original = owner.__dict__.get(_METHOD)
        if not self._over and isinstance(original, FunctionType):
            self._undo.append(_in_place(owner, _METHOD, _Told(original, self._telling(original))))

    def undo(self) -> None:
        """Give every class its own method back."""
        self._over = True
        for one in self._undo:
            one()
        self._undo.clear()


def _below(owner: Any) -> Iterator[Any]:
    seen: set[Any] = set()
    waiting = [*owner.__subclasses__()]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            yield one
            waiting += one.__subclasses__()


def _on_subclass(owner: Any, overrides: _Overrides) -> Any:
    before = owner.__dict__.get("__init_subclass__")

    def on_subclass(cls: Any, /, **kwargs: Any) -> None:
        if before is None:
            super(owner, cls).__init_subclass__(**kwargs)
        else:
            before.__get__(None, cls)(**kwargs)
        overrides.tell_of(cls)

    return classmethod(unlisted(on_subclass))


def _in_place(owner: Any, name: str, put: Any) -> Callable[[], None]:
    before = owner.__dict__.get(name)
    setattr(owner, name, put)
    known = ref(owner)

    def undo() -> None:
        owner = known()
        if owner is None or owner.__dict__.get(name) is not put:  # somebody has wrapped ours
            return
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return undo
