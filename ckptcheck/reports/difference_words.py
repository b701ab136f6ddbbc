"""One difference of two checkpoints in words: which tensor or value, from what to what, and how far."""

from typing import Final

from ckptcheck.finding import Json
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry

_ORDER: Final = "param_groups"
_MEMBERSHIPS: Final = ("group", _ORDER)
"""Keys of entries that say where parameters stand in an optimizer's groups."""


def changed(one: Entry) -> tuple[str, str]:
    """Return which tensor or value changed, and from what to what, or how far."""
    lead = f"{name(one)}: "
    if one.get("section") == "rng" and one.get("differing") is not None:  # a generator's state has no magnitude
        return lead, _generator(one)
    if not is_tensor(one):
        return lead, f"{_value(one.get('left'))} -> {_value(one.get('right'))}"
    said = [f"{one.get('left_dtype')} -> {one.get('right_dtype')}"] if one.get("kind") == "dtype" else []
    values = [words.number(one.get(side), one.get(f"{side}_dtype")) for side in ("left", "right")]
    if one.get("left") is not None and one.get("right") is not None and values[0] != values[1]:
        return lead, ", ".join([*said, f"{values[0]} -> {values[1]}", *_beyond(one)])
    return lead, ", ".join(said + measured(one)) or "differs"


def _value(value: Json) -> str:
    return "None" if value is None else words.exact(value)


def _generator(one: Entry) -> str:
    noun = "bytes" if is_tensor(one) else "words"
    said = f"{one.get('differing')} of {one.get('numel')} {noun} differ"
    left, right = one.get("left"), one.get("right")
    return f"{said}, {left} -> {right}" if left != right and left is not None and right is not None else said


def _beyond(one: Entry) -> list[str]:
    return ["beyond the tolerance"] if one.get("beyond") else []


def reshaped(one: Entry) -> tuple[str, str]:
    """Return which tensor has another shape, and both shapes."""
    sides = (words.spec(one.get(f"{side}_dtype"), one.get(f"{side}_shape")) for side in ("left", "right"))
    return f"{name(one)}: ", " -> ".join(sides)


def measured(one: Entry) -> list[str]:
    """Return how far two tensors are apart: counts, places and distances, as far as they were measured."""
    said = []
    is_one = one.get("numel") == 1
    if (differing := one.get("differing")) is not None and not is_one:
        first = f", first at {words.scalar(one.get('first_at'))}" if one.get("first_at") is not None else ""
        said.append(f"{differing} of {one.get('numel')} differ{first}")
    if (max_abs := one.get("max_abs")) is not None:
        at = one.get("max_abs_at")
        said.append(f"max abs {words.scalar(max_abs)}" + (f" at {words.scalar(at)}" if at and not is_one else ""))
    for key, label in (("rel_l2", "rel L2"), ("max_ulp", "max ULP"), ("median_ulp", "median ULP")):
        # Of nothing but NaN there is no distance.
        if one.get(key) is not None and max_abs is not None and not (key == "median_ulp" and is_one):
            said.append(f"{label} {words.scalar(one.get(key))}")
    for key, noun in (("sign_flips", "sign flip"), ("signed_zeros", "signed zero")):
        said += [words.counted(number, noun)] if isinstance(number := one.get(key), int) and number else []
    for key, label in (
        ("nan", "NaN"),
        ("inf", "inf"),
        ("nan_payloads", "NaN of other bits"),
        ("beyond", "beyond the tolerance"),
    ):
        said += [f"{one.get(key)} {label}"] if one.get(key) else []
    if one.get("rounded_through"):
        said.append(f"as if rounded through {one.get('rounded_through')}")
    return said


def name(one: Entry) -> str:
    """Return which tensor or value: "fc.weight / exp_avg", "group 0 lr", "optimizer optim_D, group 0 lr"."""
    told = words.thing(one.get("parameter"), one.get("key"))
    if one.get("parameter") is None and one.get("group") is not None:
        told = f"group {one.get('group')} {told}"
    which = optimizer(one)
    return f"{which}, {told}" if which else told


def optimizer(one: Entry, *, always: bool = False) -> str:
    """Return which optimizer an entry is about, by the file's word for it.

    "" for a first one without a name, unless its number is wanted `always`.
    """
    called = one.get("label") or one.get("optimizer")
    if isinstance(called, str) and called.startswith("optimizer"):
        return called
    return f"optimizer {called or 0}" if called or always else ""


def is_membership(one: Entry) -> bool:
    """Tell whether an entry is about param groups, and not about what a tensor or value is."""
    return one.get("kind") == "moved" and one.get("key") in _MEMBERSHIPS and not is_tensor(one)


def is_order(one: Entry) -> bool:
    """Tell whether an entry is about the order of param groups or of their members."""
    return is_membership(one) and one.get("parameter") is None and one.get("key") == _ORDER


def is_size(one: Entry) -> bool:
    """Tell whether an entry is about how many param groups there are, or how many members they have."""
    return one.get("kind") == "changed" and one.get("parameter") is None and one.get("key") == _ORDER


def moved(one: Entry) -> str:
    """Return from where to where content went; the key is told on both sides."""
    other, key = words.scalar(one.get("other")), one.get("key")
    is_place = other.startswith((f"{one.get('section')}/", "optimizer "))
    if is_place:
        parts = other.split("/")
        other = " / ".join(parts if parts[0] != one.get("section") else parts[1:])
    elif key is not None:
        other = f"{other} / {key}"
    return f"{name(one)} -> {other}"


def is_tensor(one: Entry) -> bool:
    """Tell whether either side is a tensor."""
    return one.get("left_dtype") is not None or one.get("right_dtype") is not None
