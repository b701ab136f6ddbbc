"""Which parameters of a model a list of indices can be, by the shapes that the indices' state tells."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ckptcheck.optimizers.shapes import ShapeTest, Signature

Shape: TypeAlias = tuple[int, ...]


def names_by_shape(shapes: Mapping[str, Shape]) -> dict[Shape, list[str]]:
    """The parameters of each shape, in the model's order."""
    found: dict[Shape, list[str]] = {}
    for name, shape in shapes.items():
        found.setdefault(shape, []).append(name)
    return found


def fitting(signature: Signature, of_shape: Mapping[Shape, Sequence[str]], test: ShapeTest) -> list[str]:
    """Every parameter that state of this signature can belong to."""
    possible = test.shapes_for(signature)
    among = of_shape if possible is None else possible & of_shape.keys()
    return [name for shape in among if test.fits(signature, shape) for name in of_shape[shape]]


def embed(
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


def by_group(
    groups: Sequence[Sequence[Any]],
    signatures: Mapping[Any, Signature],
    shapes: Mapping[str, Shape],
    test: ShapeTest,
) -> tuple[tuple[str, ...], str]:
    """The names of all groups' members where shapes force who is in which group, else () and why not.

    Within a group parameters keep the model's order; how a model is split into groups is anybody's choice. So no
    parameter may fit indices of two groups, and indices whose state tells no shape may stand in one group only, for
    which the other groups leave the rest.
    """
    candidates = _candidates(groups, signatures, shapes, test)
    if candidates is None:
        return (), f"the shapes of {sum(map(len, groups))} indices do not fit the model's {len(shapes)} parameters"
    open_groups = [place for place, group in enumerate(groups) if any(not signatures.get(key) for key in group)]
    if len(open_groups) > 1:
        return (), "several groups have parameters without state, and nothing else tells which group a parameter is in"
    told = [name for place, names in enumerate(candidates) if place not in open_groups for name in names]
    if len(set(told)) < len(told) or (open_groups and not candidates[open_groups[0]].isdisjoint(told)):
        return (), "parameters of one shape stand in several groups"
    if open_groups:
        if len(told) > sum(len(group) for place, group in enumerate(groups) if place not in open_groups):
            return (), "more than one assignment of the model's parameters fits the groups and the shapes"
        candidates[open_groups[0]] = shapes.keys() - set(told)
    found: list[str] = []
    for group, possible in zip(groups, candidates, strict=True):
        names = embed([signatures.get(key, ()) for key in group], [n for n in shapes if n in possible], shapes, test)
        if not names and group:
            said = "do not fit" if names is None else "fit in more than one way"
            return (), f"the shapes of a group's indices {said} the model's parameters in order"
        found.extend(names or ())
    return tuple(found), ""


def _candidates(
    groups: Sequence[Sequence[Any]],
    signatures: Mapping[Any, Signature],
    shapes: Mapping[str, Shape],
    test: ShapeTest,
) -> list[set[str]] | None:
    """The parameters that each group's indices with state fit; None where one fits none."""
    of_shape = names_by_shape(shapes)
    found: list[set[str]] = []
    for group in groups:
        possible: set[str] = set()
        for signature in {signatures[key] for key in group if signatures.get(key)}:
            names = fitting(signature, of_shape, test)
            if not names:
                return None
            possible.update(names)
        found.append(possible)
    return found


def _leftmost(
    wanted: Sequence[Signature], names: Sequence[str], shapes: Mapping[str, Shape], test: ShapeTest
) -> list[str] | None:
    found: list[str] = []
    for name in names:
        if len(found) < len(wanted) and test.fits(wanted[len(found)], shapes[name]):
            found.append(name)
    return found if len(found) == len(wanted) else None
