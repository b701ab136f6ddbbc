"""From an optimizer's indices to parameter names, by the best source there is, and how sure it is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ckptcheck.conventions.partitions import Shape, partitions
from ckptcheck.conventions.weights import Weights
from ckptcheck.conventions.wrappers import Stripper
from ckptcheck.optimizers.shapes import ShapeTest, Signature
from ckptcheck.state.checkpoint import NameSource, Naming, numbered

MAX_DIGITS: Final = 18
"""A longer text of digits is a name."""
Key: TypeAlias = Any
"""What stands in `params` and keys the state: an index, or a name."""


@dataclass(frozen=True, slots=True)
class Members:
    """The param groups of an optimizer as the file has them.

    `groups` holds the keys of each group's parameters; `param_names` the names that the groups list, None where
    they list none; `signatures` what the state of each key says about its parameter's shape.
    """

    groups: tuple[tuple[Key, ...], ...]
    param_names: tuple[tuple[str, ...], ...] | None
    signatures: Mapping[Key, Signature]

    @property
    def keys(self) -> list[Key]:
        """All keys, group after group."""
        return [key for group in self.groups for key in group]


@dataclass(frozen=True, slots=True)
class Named:
    """The name of each key, and how it was found."""

    names: Mapping[Key, str]
    naming: Naming


def name_members(members: Members, model: Weights, test: ShapeTest, names: Sequence[str] | None = None) -> Named:
    """Name an optimizer's parameters: by its own names, by the names that the user gives, or by the model's order."""
    keys = members.keys
    if members.param_names is not None:
        given = [name for group in members.param_names for name in group]
        return _named(keys, given, model, NameSource.PARAM_NAMES, "the groups list param_names")
    held = keys or list(members.signatures)
    if held and not any(is_index(key) for key in held):
        return _named(keys, keys, model, NameSource.KEYS, "the groups and the state are keyed by name")
    if names is not None and len(names) == len(keys):
        return _named(keys, names, model, NameSource.USER, "named by the list that was given")
    wrong = f"the list that was given has {len(names)} names for {len(keys)} parameters; " if names is not None else ""
    found, reason = _infer(members, model, test)
    if found is None:
        naming = Naming(NameSource.NONE, certain=False, reason=f"{wrong}{reason}")
        return Named({key: numbered(key) for key in keys}, naming)
    return Named(found, Naming(NameSource.MODEL_ORDER, certain=False, reason=f"{wrong}{reason}"))


def _named(keys: Sequence[Key], given: Sequence[str], model: Weights, source: NameSource, reason: str) -> Named:
    names = [model.name_of(name) for name in given]
    if not any(name in model.shapes for name in names):  # the optimizer was made of the wrapped model, or is alone
        own = Stripper(given)
        bare = [model.name_of(own.strip(name)) for name in given]
        names = bare if not model.shapes or any(name in model.shapes for name in bare) else names
    return Named(dict(zip(keys, names, strict=True)), Naming(source, certain=True, reason=reason))


def is_index(key: Key) -> bool:
    """Whether a key is a parameter's number, or the text of one in a format that knows text only."""
    return isinstance(key, int) or (isinstance(key, str) and key.isdecimal() and len(key) <= MAX_DIGITS)


def _infer(members: Members, model: Weights, test: ShapeTest) -> tuple[dict[Key, str] | None, str]:
    """The only assignment of model parameters that fits, or None; and the reason in one sentence."""
    keys, shapes = members.keys, model.shapes
    if not keys:
        return None, "the groups list no parameters"
    if not shapes:
        return None, "no model lies beside the optimizer, so its indices cannot be named"
    if len(keys) > len(shapes):
        return None, f"{len(keys)} indices do not fit the model's {len(shapes)} parameters"
    found = _by_order(members, shapes, test) if model.ordered else _by_shape(keys, members.signatures, shapes, test)
    distinct: dict[tuple[str, ...], str] = {}
    for names, label in found:
        distinct.setdefault(names, label)
    if len(distinct) == 1 and () not in distinct:
        names, label = next(iter(distinct.items()))
        return dict(zip(keys, names, strict=True)), _reason(members, shapes, label)
    if not distinct:
        return (
            None,
            f"{len(keys)} indices fit the model's {len(shapes)} parameters in no known grouping, by their shapes",
        )
    if not model.ordered:
        return None, "the model's file does not keep the parameters' order, and several have the same shape"
    return None, "more than one assignment of the model's parameters fits the order and the shapes"


def _by_order(members: Members, shapes: Mapping[str, Shape], test: ShapeTest) -> list[tuple[tuple[str, ...], str]]:
    """Each assignment that keeps the model's order within the groups of a known rule; () for an ambiguous one."""
    keys = members.keys
    at_places = _by_place(keys, members.signatures, shapes, test)
    if at_places:
        return [(at_places, "their places in the model")]
    found: list[tuple[tuple[str, ...], str]] = []
    for label, lists in partitions(shapes, [len(group) for group in members.groups]):
        groups = [tuple(keys)] if len(lists) == 1 else members.groups
        parts = [
            _embed([members.signatures.get(key, ()) for key in group], names, shapes, test)
            for group, names in zip(groups, lists, strict=True)
        ]
        if any(part is None for part in parts):
            continue
        sure = all(part or not group for part, group in zip(parts, groups, strict=True))
        found.append((tuple(name for part in parts for name in part or ()) if sure else (), label))
    return found


def _by_place(
    keys: Sequence[Key], signatures: Mapping[Key, Signature], shapes: Mapping[str, Shape], test: ShapeTest
) -> tuple[str, ...]:
    """Names where indices are places in the model, frozen parameters counted (FSDP); () where they are not."""
    names = list(shapes)
    places = [int(key) for key in keys if is_index(key)]
    if len(places) < len(keys) or places == list(range(len(keys))):
        return ()
    if min(places) < 0 or max(places) >= len(names):
        return ()
    assigned = tuple(names[place] for place in places)
    fit = all(test.fits(signatures.get(key, ()), shapes[name]) for key, name in zip(keys, assigned, strict=True))
    return assigned if fit else ()


def _embed(
    wanted: Sequence[Signature], names: Sequence[str], shapes: Mapping[str, Shape], test: ShapeTest
) -> tuple[str, ...] | None:
    """The only way to find `wanted` among `names` in order; None where there is none, () where there are several.

    The leftmost and the rightmost way are the same exactly where there is one way only.
    """
    left = _leftmost(wanted, names, shapes, test)
    if left is None:
        return None
    right = _leftmost(wanted[::-1], names[::-1], shapes, test) or []
    return tuple(left) if left == right[::-1] else ()


def _leftmost(
    wanted: Sequence[Signature], names: Sequence[str], shapes: Mapping[str, Shape], test: ShapeTest
) -> list[str] | None:
    found: list[str] = []
    for name in names:
        if len(found) < len(wanted) and test.fits(wanted[len(found)], shapes[name]):
            found.append(name)
    return found if len(found) == len(wanted) else None


def _by_shape(
    keys: Sequence[Key], signatures: Mapping[Key, Signature], shapes: Mapping[str, Shape], test: ShapeTest
) -> list[tuple[tuple[str, ...], str]]:
    """The assignment that shapes alone force: each index fits one parameter only, and no two the same."""
    of_shape: dict[Shape, list[str]] = {}
    for name, shape in shapes.items():
        of_shape.setdefault(shape, []).append(name)
    names_of: dict[Signature, list[str]] = {}
    for signature in {signatures.get(key, ()) for key in keys}:
        possible = test.shapes_for(signature)
        among = of_shape if possible is None else possible & of_shape.keys()
        names_of[signature] = [name for shape in among if test.fits(signature, shape) for name in of_shape[shape]]
    choices = [names_of[signatures.get(key, ())] for key in keys]
    if not all(choices):
        return []
    forced = tuple(choice[0] for choice in choices)
    sure = all(len(choice) == 1 for choice in choices) and max(Counter(forced).values()) == 1
    return [(forced if sure else (), "shape alone")]


def _reason(members: Members, shapes: Mapping[str, Shape], label: str) -> str:
    keys = members.keys
    spoken = sum(1 for key in keys if members.signatures.get(key))
    evidence = f"and the shapes of {spoken} with state" if spoken else "in number; no state tells their shapes"
    of = f"{len(keys)} indices" if len(keys) == len(shapes) else f"{len(keys)} indices of {len(shapes)} parameters"
    if label == "shape alone":
        return f"each of {of} has a shape that one parameter of the model alone has"
    if label == "order":
        return f"{of} {evidence} fit the model's parameters in order"
    return f"{of} {evidence} fit the model's parameters grouped by {label}"
