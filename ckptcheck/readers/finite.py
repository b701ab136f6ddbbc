"""Makes sure that a raw value is finite: cycles are broken, and what expands beyond our bounds is refused."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.pickle_machine import Pending
from ckptcheck.state.raw import MAX_RAW_DEPTH, MAX_RAW_VALUES, Foreign, Named, Raw, RawTensor

CYCLE: Final = "<cycle>"
"""Class name of what stands where a value contains itself: a module that refers to its parent."""
_LEAVES: Final = frozenset({str, Named, int, float, bool, bytes, complex, type(None)})


_FIXED: Final = object()
"""Place of what cannot be replaced: a key, an element of a set."""


@dataclass(slots=True, eq=False)
class _Visit:
    """A container being walked, at `place` of its parent; `changed` is what replaces a tuple's values, by place."""

    container: Raw
    place: Any
    children: Iterator[tuple[Any, Raw]]
    values: int
    depth: int = 1
    changed: dict[int, Raw] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Done:
    """A container after its walk, and what stands for it; `container` keeps its id from being used again."""

    container: Raw
    stands: Raw
    values: int
    depth: int


def make_finite(root: Raw, where: str) -> Raw:
    """The same value with `Foreign("<cycle>")` where it contains itself; takes time linear in what is stored.

    CheckpointError where it has more than `MAX_RAW_VALUES` values, counted as often as they are reached, is deeper
    than `MAX_RAW_DEPTH`, or has a cycle through a set or a dict's key.
    """
    if _is_leaf(root):
        return root
    done: dict[int, _Done] = {}
    visits = [_begun(root, None)]
    open_ids = {id(root)}
    while True:
        visit = visits[-1]
        place, child = next(visit.children, (None, visits))
        if child is visits:  # no more children
            visits.pop()
            open_ids.discard(id(visit.container))
            ended = done[id(visit.container)] = _ended(visit)
            if not visits:
                return ended.stands
            _account(visits[-1], visit.place, ended, where)
        elif id(child) in open_ids:
            _replace(visit, place, Foreign(CYCLE), where)
        elif id(child) in done:
            _account(visit, place, done[id(child)], where)
        else:
            if len(visits) >= MAX_RAW_DEPTH:
                raise _too_deep(where)
            visits.append(_begun(child, place))
            open_ids.add(id(child))


def _is_leaf(value: Raw) -> bool:
    return type(value) in _LEAVES or (isinstance(value, RawTensor) and not value.attributes)


def _begun(container: Raw, place: Any) -> _Visit:
    count = len(container) if isinstance(container, dict | list | tuple | set | frozenset) else 0
    return _Visit(container, place, _children(container), 1 + count)


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


def _ended(visit: _Visit) -> _Done:
    stands = visit.container.settled() if isinstance(visit.container, Pending) else visit.container
    if visit.changed:
        stands = tuple(visit.changed.get(place, value) for place, value in enumerate(stands))
    return _Done(visit.container, stands, visit.values, visit.depth)


def _account(visit: _Visit, place: Any, child: _Done, where: str) -> None:
    visit.values += child.values
    visit.depth = max(visit.depth, child.depth + 1)
    if visit.values > MAX_RAW_VALUES:
        raise CheckpointError(f"{where}: unfolds to more than {MAX_RAW_VALUES} values: not read")
    if visit.depth > MAX_RAW_DEPTH:
        raise _too_deep(where)
    if child.stands is not child.container:
        _replace(visit, place, child.stands, where)


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
