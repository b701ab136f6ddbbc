"""Methods of classes with something told before or after them, and back to what they were."""

from collections.abc import Callable
from functools import wraps
from types import CodeType
from typing import Any, TypeVar
from weakref import ref

import torch

from ckptcheck.trace.script.apart import APART

_Method = TypeVar("_Method")


def tell_after(owner: Any, name: str, tell: Callable[[Any], None]) -> Callable[[], None]:
    """Call `tell` with the object after a method of it has returned; returns what undoes it.

    What torch.compile traces is not told of, so that graphs stay whole.
    """
    original = getattr(owner, name)
    telling = [tell]

    @wraps(original)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if not torch.compiler.is_compiling() and telling:
            APART.tell(telling[0], self)
        return result

    return in_place(owner, name, method, telling)


def tell_before(owner: Any, name: str, tell: Callable[..., None]) -> Callable[[], None]:
    """Call `tell` with the object and the arguments before a method of it; returns what undoes it.

    What torch.compile traces is not told of, so that graphs stay whole.
    """
    original = getattr(owner, name)
    telling = [tell]

    @wraps(original)
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and telling:
            APART.tell(telling[0], self, *args, **kwargs)
        return original(self, *args, **kwargs)

    return in_place(owner, name, method, telling)


def in_place(owner: Any, name: str, method: Any, telling: list[Any]) -> Callable[[], None]:
    """Put a method in place of what an owner has; returns what undoes it.

    Undoing clears `telling`, so that where somebody has wrapped the method meanwhile it stays, and only passes on.
    """
    unlisted(method)
    APART.skip(code_of(method))
    own = vars(owner).get(name)
    if isinstance(owner, type):
        # A pickle tells a function by its name: under it, ours is found here, and the original without us.
        method.__module__, method.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
    setattr(owner, name, method)
    known = ref(owner)

    def undo() -> None:
        telling.clear()
        owner = known()
        if owner is None or vars(owner).get(name) is not method:
            return
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)

    return undo


def unlisted(method: _Method) -> _Method:
    """The function, as one whose frame python's warnings pass over where they look for the line to blame.

    They do so for the frames of the import system, which they tell by the name of the file.
    """
    code = code_of(method)
    vars_of: Any = method
    vars_of.__code__ = code.replace(co_filename=f"{code.co_filename} (as importlib._bootstrap)")
    return method


def code_of(function: Any) -> CodeType:
    """The code of a function written in python."""
    code: CodeType = function.__code__
    return code
