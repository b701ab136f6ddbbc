"""Which sections of a training state differ right after a load, as sections that can be put back."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ckptcheck.comparison.states import EntryDifference, StateDiff
from ckptcheck.experiment.sections import OBJECTS, Section

FEW: Final = 3
"""Up to so many parts of a section are looked at one by one."""
_KIND_OF: Final[Mapping[str, str]] = {
    "param": "parameters", "buffer": "buffers", "grad": "gradients", "state": "state", "hyper": "hyperparameters",
    "rng": "generator",
}  # fmt: skip
"""Section of a state to the kind of what is put back; the others keep their names."""


def sections_apart(load: StateDiff, kept: Sequence[Section]) -> dict[Section, tuple[Section, ...]]:
    """Each kept section that differs, narrowed down to what differs of it, with its differing parts.

    What is equal right after the load cannot explain anything and is not here. Parts are told where they are few,
    and less than all that the section has.
    """
    inner: dict[Section, list[Section]] = {one: [] for one in _structure(load)}
    for one in load.entries:
        for section in _sections_of(one, kept):
            outer = next((whole for whole in kept if whole.covers(section)), None)
            if outer is not None:
                inner.setdefault(outer, []).append(section)
    return dict(_narrowed(outer, parts, load) for outer, parts in inner.items() if outer in kept)


def _structure(load: StateDiff) -> Iterator[Section]:
    """What differs beside entries: ties, groups, what is trained, modes and switches."""
    if load.untied or load.tied:
        yield Section("ties")
    if load.unfrozen or load.frozen:
        yield Section("requires_grad")
    for place, left, right, match in load.optimizers:
        stale = any(
            right_name is None and left_name is not None
            for one, other in zip(left.groups, right.groups, strict=False)
            for left_name, right_name in zip(one.members, other.members, strict=False)
        )
        if stale or not (match.same_members and match.same_order):
            yield Section("groups", str(place))
    if load.left.modes != load.right.modes:
        yield Section("modes")
    if load.left.flags != load.right.flags:
        yield Section("flags")


def _sections_of(one: EntryDifference, kept: Sequence[Section]) -> Iterator[Section]:
    kind = _KIND_OF.get(one.section, one.section)
    if kind in ("state", "hyperparameters"):
        yield Section(kind, str(one.optimizer or 0), one.key, one.name)
    elif kind == "generator":
        yield Section(kind, one.name)
    elif kind in OBJECTS:
        # A path begins with the object's place where there are several, in `extra` with its name.
        objects = [section for section in kept if section.kind == kind]
        found = [section for section in objects if one.name.startswith((f"[{section.of}]", section.of))]
        yield from found if len(objects) > 1 and found else objects
    else:
        yield Section(kind, name=one.name)


def _narrowed(outer: Section, differing: Sequence[Section], load: StateDiff) -> tuple[Section, tuple[Section, ...]]:
    keys, names = ({getattr(one, field): None for one in differing} for field in ("key", "name"))
    key = next(iter(keys)) if len(keys) == 1 else ""
    name = next(iter(names)) if len(names) == 1 else ""
    section = outer._replace(key=key, name=name)
    all_keys, all_names = _all_parts(outer, load)
    if 1 < len(keys) <= FEW and len(keys) < all_keys:
        return section, tuple(section._replace(key=one) for one in keys)
    if 1 < len(names) <= FEW and len(names) < all_names:
        return section, tuple(section._replace(name=one) for one in names)
    return section, ()


def _all_parts(outer: Section, load: StateDiff) -> tuple[int, int]:
    """How many keys and how many names a section has on the left."""
    if outer.kind not in ("state", "hyperparameters"):
        return 0, len(load.left.buffers if outer.kind == "buffers" else load.left.parameters)
    optimizer = load.left.optimizers[int(outer.of)]
    if outer.kind == "state":
        return len({key for entries in optimizer.state.values() for key in entries}), len(optimizer.state)
    return len({key for group in optimizer.groups for key in group.hyperparameters}), 0
