"""What an object of a script holds, looked at without running any code of its class."""

from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any, Final
from weakref import ref

_NUMBERS: Final = (bool, int, float)


def fields_of(one: Any) -> dict[str, Any]:
    """The attributes of an object, in slots or not; properties are left alone."""
    try:
        fields = object.__getattribute__(one, "__dict__")
    except AttributeError:
        fields = {}
    own = fields if isinstance(fields, dict) else {}
    slots = {name: slot for kind in reversed(type(one).__mro__) for name, slot in vars(kind).items()
             if isinstance(slot, MemberDescriptorType)}  # fmt: skip
    return {**_set(slots, one), **own} if slots else own


def _set(slots: dict[str, MemberDescriptorType], one: Any) -> dict[str, Any]:
    found = {}
    for name, slot in slots.items():
        try:
            found[name] = slot.__get__(one)
        except AttributeError:  # nothing was ever put in it
            continue
    return found


def has(kind: type, name: str) -> bool:
    """Whether a class or one that it is derived from defines a name."""
    return any(name in vars(one) for one in kind.__mro__)


def is_setting(value: Any) -> bool:
    """Whether a value is a number or a tuple of numbers, as learning rates, betas and counters are."""
    return isinstance(value, _NUMBERS) or (
        isinstance(value, tuple) and bool(value) and all(isinstance(one, _NUMBERS) for one in value)
    )


def weakly(one: Any, gone: Callable[[Any], Any] | None) -> Callable[[], Any] | None:
    """A weak reference; None where the class of the object allows none."""
    try:
        return ref(one, gone)
    except TypeError:
        return None
