"""Makes sure that a raw value is finite: cycles are broken, and what expands beyond our bounds is refused."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.pickle.pickle_machine import Pending, is_crowded
from ckptcheck.readers.reach import reach_of
from ckptcheck.state.raw import MAX_RAW_DEPTH, MAX_RAW_VALUES, Foreign, Named, Raw, RawTensor
from ckptcheck.state.tree import MAX_SPLIT

CYCLE: Final = "<cycle>"
"""Class name of what stands where a value contains itself: a module that refers to its parent."""
_NUMBERS: Final = frozenset({int, float, bool})
_LEAVES: Final = frozenset({str, Named, int, float, bool, bytes, complex, type(None)})
_LONG_SHARE: Final = 4
"""So many numbers of a long list count as one value: a data order has millions."""
_CROWDED: Final = 128
"""So many values count for a key whose hash the file can choose: a dict with many is slow each time it is copied."""
_FIXED: Final = object()
"""Place of what cannot be replaced: a key, an element of a set."""


@dataclass(slots=True, eq=False)
class _Visit:
    """A container being walked, at `place` of its parent; `changed` is what replaces a tuple's values, by place."""

    container: Raw
    place: Any
    children: Iterator[tuple[Any, Raw]]
    values: int
    text_bytes: int
    tensor_bytes: int
    depth: int = 1
    changed: dict[int, Raw] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Done:
    """A container after its walk, and what stands for it; `container` keeps its id from being used again."""

    container: Raw
    stands: Raw
    values: int
    text_bytes: int
    tensor_bytes: int
    depth: int


@dataclass(frozen=True, slots=True)
class Finite:
    """A finite value, and the bytes behind it, counted as often as they are reached.

    Attributes:
        value: the value.
        text_bytes: of texts, large integers and arrays in the pickle, and of the paths that lead to values.
        tensor_bytes: of tensors, their logical bytes.
    """

    value: Raw
    text_bytes: int
    tensor_bytes: int


def finite(root: Raw, where: str) -> Finite:
    """The same value with `Foreign("<cycle>")` where it contains itself; takes time linear in what is stored.

    CheckpointError where it has more than `MAX_RAW_VALUES` values, counted as often as they are reached, is deeper
    than `MAX_RAW_DEPTH`, or has a cycle through a set or a dict's key.
    """
    text_bytes, tensor_bytes = reach_of((root,))
    if _is_leaf(root):
        return Finite(root, text_bytes, tensor_bytes)
    done: dict[int, _Done] = {}
    visits = [_begun(root, None)]
    open_ids = {id(root)}
    while True:
        visit = visits[-1]
        place, child = next(visit.children, (None, visits))
        if child is visits:  # no more children
            visits.pop()
            open_ids.discard(id(visit.container))
            ended = done[id(visit.container)] = _ended(visit, where)
            if not visits:
                return Finite(ended.stands, text_bytes + ended.text_bytes, tensor_bytes + ended.tensor_bytes)
            _account(visits[-1], visit.place, ended, where)
        elif id(child) in open_ids:
            _replace(visit, place, Foreign(CYCLE), where)
        elif (flat := _flat_values(child)) > 0:
            _account_flat(visit, place, child, flat, where)
        elif id(child) in done:
            _account(visit, place, done[id(child)], where)
        else:
            if len(visits) >= MAX_RAW_DEPTH:
                raise _too_deep(where)
            visits.append(_begun(child, place))
            open_ids.add(id(child))


def _is_leaf(value: Raw) -> bool:
    return type(value) in _LEAVES or (isinstance(value, RawTensor) and not value.attributes)


def _flat_values(container: Raw) -> int:
    """Values of a container of nothing but numbers, texts and the like, its own included; 0 for any other value.

    In a list of more than `MAX_SPLIT` numbers, which is one value to its users, `_LONG_SHARE` numbers count for one.
    """
    if isinstance(container, list) or type(container) is tuple:
        kinds = set(map(type, container))
        if not kinds <= _LEAVES:
            return 0
        count = len(container)
        return 1 + (count // _LONG_SHARE if count > MAX_SPLIT and kinds <= _NUMBERS else count)
    if type(container) is dict and not container:
        return 1
    return 0


def _begun(container: Raw, place: Any) -> _Visit:
    count = _flat_values(container) - 1
    if count < 0:
        count = len(container) if isinstance(container, dict | list | tuple | set | frozenset) else 0
    if isinstance(container, dict | set | frozenset):
        count += _CROWDED * sum(map(is_crowded, container))
    return _Visit(container, place, _children(container), 1 + count, *_reach(container))


def _reach(container: Raw) -> tuple[int, int]:
    """The bytes of what is in a container and no container itself."""
    if isinstance(container, dict):
        texts, tensors = reach_of(container.values())
        return texts + reach_of(container.keys())[0], tensors
    if isinstance(container, list | tuple | set | frozenset):
        return reach_of(container)
    if isinstance(container, Foreign):
        texts, tensors = reach_of((container.state,))
        return texts + len(container.class_name), tensors
    return (0, container.spec.nbytes) if isinstance(container, Pending) else (0, 0)


def _account_bytes(visit: _Visit, place: Any, values: int, texts: int, tensors: int) -> None:
    """A key is a part of the path of each of the values below it."""
    is_key = isinstance(place, str) and isinstance(visit.container, dict)
    visit.text_bytes += texts + (len(place) * values if is_key else 0)
    visit.tensor_bytes += tensors


def _children(container: Raw) -> Iterator[tuple[Any, Raw]]:
    """The containers in a container, each with its place."""
    if isinstance(container, dict):
        yield from ((_FIXED, key) for key in container if not _is_leaf(key))
        pairs: Iterable[tuple[Any, Raw]] = container.items()
    elif isinstance(container, list | tuple):
        pairs = enumerate(container)
    elif isinstance(container, Foreign):
        pairs = (("arguments", container.arguments), ("state", container.state), ("items", container.items))
    elif isinstance(container, RawTensor):
        pairs = ((_FIXED, container.attributes),)
    elif isinstance(container, Pending):
        pairs = ()
    else:
        pairs = ((_FIXED, value) for value in container)
    for place, value in pairs:
        if type(value) not in _LEAVES and not _is_leaf(value):
            yield place, value


def _ended(visit: _Visit, where: str) -> _Done:
    if visit.values > MAX_RAW_VALUES:
        raise _too_many(where)
    stands = visit.container.settled() if isinstance(visit.container, Pending) else visit.container
    if visit.changed:
        stands = tuple(visit.changed.get(place, value) for place, value in enumerate(stands))
    return _Done(visit.container, stands, visit.values, visit.text_bytes, visit.tensor_bytes, visit.depth)


def _account(visit: _Visit, place: Any, child: _Done, where: str) -> None:
    _account_bytes(visit, place, child.values, child.text_bytes, child.tensor_bytes)
    # That it is there was counted with its place; an object's parts have none.
    visit.values += child.values - isinstance(visit.container, dict | list | tuple)
    visit.depth = max(visit.depth, child.depth + 1)
    if visit.values > MAX_RAW_VALUES:
        raise _too_many(where)
    if visit.depth > MAX_RAW_DEPTH:
        raise _too_deep(where)
    if child.stands is not child.container:
        _replace(visit, place, child.stands, where)


def _account_flat(visit: _Visit, place: Any, child: Raw, values: int, where: str) -> None:
    _account_bytes(visit, place, values, *reach_of(child))
    visit.values += values - 1  # that it is there was counted with its place
    visit.depth = max(visit.depth, 2)
    if visit.values > MAX_RAW_VALUES:
        raise _too_many(where)


def _too_many(where: str) -> CheckpointError:
    return CheckpointError(f"{where}: unfolds to more than {MAX_RAW_VALUES} values: not read")


def _too_deep(where: str) -> CheckpointError:
    return CheckpointError(f"{where}: is nested deeper than {MAX_RAW_DEPTH}: not read")


def _replace(visit: _Visit, place: Any, stands: Raw, where: str) -> None:
    container = visit.container
    if place is _FIXED:
        raise CheckpointError(f"{where}: has a set or a dict's key that contains itself: not read")
    if isinstance(container, tuple):
        visit.changed[place] = stands
    elif isinstance(container, Foreign):
        setattr(container, place, stands)
    else:
        container[place] = stands
