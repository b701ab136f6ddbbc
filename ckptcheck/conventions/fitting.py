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
    return [name for shape in _fitting_shapes(signature, of_shape, test) for name in of_shape[shape]]


def _fitting_shapes(signature: Signature, of_shape: Mapping[Shape, Sequence[str]], test: ShapeTest) -> list[Shape]:
    possible = test.shapes_for(signature)
    among = of_shape if possible is None else possible & of_shape.keys()
    return [shape for shape in among if test.fits(signature, shape)]


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
    of_shape = names_by_shape(shapes)
    candidates = _candidates(groups, signatures, of_shape, test)
    if candidates is None:
        return (), f"the shapes of {sum(map(len, groups))} indices do not fit the model's {len(shapes)} parameters"
    open_groups = [place for place, group in enumerate(groups) if any(not signatures.get(key) for key in group)]
    if len(open_groups) > 1:
        return (), "several groups have parameters without state, and nothing else tells which group a parameter is in"
    told = [shape for place, fitted in enumerate(candidates) if place not in open_groups for shape in fitted]
    if len(set(told)) < len(told) or (open_groups and not candidates[open_groups[0]].isdisjoint(told)):
        return (), "parameters of one shape stand in several groups"
    if open_groups:
        held = sum(len(group) for place, group in enumerate(groups) if place not in open_groups)
        if sum(len(of_shape[shape]) for shape in told) > held:
            return (), "more than one assignment of the model's parameters fits the groups and the shapes"
        candidates[open_groups[0]] = of_shape.keys() - set(told)
    places = {name: place for place, name in enumerate(shapes)}
    found: list[str] = []
    for group, possible in zip(groups, candidates, strict=True):
        fitted = sorted((name for shape in possible for name in of_shape[shape]), key=places.__getitem__)
        names = embed([signatures.get(key, ()) for key in group], fitted, shapes, test)
        if not names and group:
            said = "do not fit" if names is None else "fit in more than one way"
            return (), f"the shapes of a group's indices {said} the model's parameters in order"
        found.extend(names or ())
    return tuple(found), ""


def _candidates(
    groups: Sequence[Sequence[Any]],
    signatures: Mapping[Any, Signature],
    of_shape: Mapping[Shape, Sequence[str]],
    test: ShapeTest,
) -> list[set[Shape]] | None:
    """The shapes that each group's indices with state fit, of those that the model has; None where one fits none."""
    known: dict[Signature, list[Shape]] = {}
    found: list[set[Shape]] = []
    for group in groups:
        possible: set[Shape] = set()
        for signature in {signatures[key] for key in group if signatures.get(key)}:
            if signature not in known:
                known[signature] = _fitting_shapes(signature, of_shape, test)
            if not known[signature]:
                return None
            possible.update(known[signature])
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
