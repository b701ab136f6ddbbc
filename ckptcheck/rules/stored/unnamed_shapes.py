"""CK304 for an optimizer whose parameters have no names: state whose shape no parameter of the model can have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ckptcheck.conventions.target_names import signatures
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.optimizers.guessing import Guess
from ckptcheck.optimizers.row import Kind
from ckptcheck.optimizers.shapes import ShapeTest, Signature
from ckptcheck.rules.rule import Evidence, Unjudged, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored.shapes import own_shapes
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.rules.words import KEPT, count, names
from ckptcheck.state.checkpoint import NameSource
from ckptcheck.state.training_state import Optimizer

Shape: TypeAlias = tuple[int, ...]
_TRAINED: Final = ("weight", "bias", "in_proj")
"""Beginnings of names that parameters of torch's own modules have, and buffers have not."""
_FEW: Final = 4
"""Of whose indices at most one in so many does not fit, an optimizer surely has the model's order."""


@also(runs.state_shape_mismatch)
def state_of_no_parameters_shape(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """State of an index without a name fits no parameter, or not the one whose place it has in the model's order."""
    state, namings = stored.checkpoint.state, stored.checkpoint.namings
    for place, (optimizer, naming, guess) in enumerate(zip(state.optimizers, namings, stored.classes, strict=False)):
        if naming.source is not NameSource.NONE or not guess.certain or any(row.whole_list for row in guess.rows):
            continue
        test = ShapeTest(guess.rows, certain=True)
        told = {name: one for name, one in signatures(optimizer, test).items() if one}
        torn = [name for name, one in told.items() if len(_whole(one, guess)) > 1]
        if torn:
            yield _torn(place, torn, told, guess)
            continue
        shapes = own_shapes(state)
        strange = [name for name, one in told.items() if not any(test.fits(one, shape) for shape in {*shapes.values()})]
        found = _out_of_place(optimizer, told, shapes, test)
        if found:
            yield _misplaced(place, found, told, shapes)
        elif strange and shapes:
            yield Unjudged(
                f"{count(strange, 'parameter')} without a name in optimizer {place} "
                f"{'has' if len(strange) == 1 else 'have'} state of a shape that no parameter of the model has: "
                f"{names(strange)}; {told[strange[0]][0][0]} of {strange[0]} is {[*told[strange[0]][0][1]]}"
            )


def _whole(signature: Signature, guess: Guess) -> set[Shape]:
    """The shapes of what the class keeps in its parameter's shape; one alone where all is right."""
    kinds = guess.rows[0].keys
    return {shape for key, shape in signature if kinds.get(key) is Kind.PARAMETER}


def _torn(place: int, torn: Sequence[str], told: Mapping[str, Signature], guess: Guess) -> Evidence:
    first = torn[0]
    spelled = [f"{key} is {[*shape]}" for key, shape in told[first] if guess.rows[0].keys.get(key) is Kind.PARAMETER]
    return Evidence(
        f"optimizer {place} ({guess.rows[0].name}) keeps state of unlike shapes for one parameter: "
        f"{' and '.join(spelled)} for {first}{f', and {len(torn) - 1} more' if len(torn) > 1 else ''}",
        Place(optimizer=place, parameter=first, key=told[first][0][0]),
        {"parameters": [*torn[:KEPT]], "shapes": {key: list[Json](shape) for key, shape in told[first]}},
        "drop the state of this parameter, or take it from another checkpoint",
    )


def _out_of_place(
    optimizer: Optimizer, told: Mapping[str, Signature], shapes: Mapping[str, Shape], test: ShapeTest
) -> dict[str, str]:
    """Whose place each index has that does not fit it, where all others have the model's order; else nothing.

    In one group, of as many indices as the model has parameters. A buffer that is taken for a parameter is not at the
    place of one whose module has another parameter beside it that fits.
    """
    members = [name for group in optimizer.groups for name in group.members if name is not None]
    if sum(1 for group in optimizer.groups if group.members) != 1 or len(members) != len(shapes):
        return {}
    places = dict(zip(members, shapes, strict=True))
    wrong = {name: own for name, own in places.items() if not test.fits(told.get(name, ()), shapes[own])}
    fitting = {own for name, own in places.items() if name not in wrong and told.get(name)}
    if not wrong or _FEW * len(wrong) > len(members) or len({shapes[own] for own in fitting}) < 2:
        return {}
    modules = {_module(own) for own in fitting if _leaf(own).startswith(_TRAINED)}
    sure = all(_leaf(own).startswith(_TRAINED) and _module(own) in modules for own in wrong.values())
    return wrong if sure else {}


def _misplaced(
    place: int, found: Mapping[str, str], told: Mapping[str, Signature], shapes: Mapping[str, Shape]
) -> Evidence:
    spelled = [
        f"index {name.removeprefix('#')} stands at the place of {own}, which is {[*shapes[own]]}, and its "
        f"{told[name][0][0]} is {[*told[name][0][1]]}"
        for name, own in found.items()
    ]
    first = next(iter(found))
    listed: dict[str, Json] = {
        own: {"parameter": list[Json](shapes[own]), **{key: list[Json](shape) for key, shape in told[name]}}
        for name, own in [*found.items()][:KEPT]
    }
    return Evidence(
        f"optimizer {place} has state of another shape for {count(spelled, 'parameter')}, where all others fit the "
        f"model's order: {names(spelled)}",
        Place(optimizer=place, parameter=found[first], key=told[first][0][0]),
        {"shapes": listed},
        "drop the state of this parameter, or save the weights and the optimizer of the same model",
        None if len(found) == 1 else Severity.WARNING,
    )


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
