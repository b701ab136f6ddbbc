"""Methods of torch's classes with something told before or after them, and back to what they were."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def tell_after(owner: Any, name: str, tell: Callable[[Any], None]) -> Callable[[], None]:
    """Call `tell` with the object after a method of it has returned; returns what undoes it."""
    original = getattr(owner, name)

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        tell(self)
        return result

    return _in_place(owner, name, original, method)


def tell_before(owner: Any, name: str, tell: Callable[..., None]) -> Callable[[], None]:
    """Call `tell` with the object and the arguments before a method of it; returns what undoes it."""
    original = getattr(owner, name)

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        tell(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    return _in_place(owner, name, original, method)


def _in_place(owner: Any, name: str, original: Any, method: Any) -> Callable[[], None]:
    setattr(owner, name, method)

    def undo() -> None:
        if getattr(owner, name) is method:  # else somebody has wrapped ours
            setattr(owner, name, original)

    return undo
