"""CK302, CK304: state of one checkpoint whose shape is not that of the parameter whose name it bears."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ckptcheck.conventions.target_names import signatures
from ckptcheck.conventions.weights import whole_shape
from ckptcheck.finding import Json, Place
from ckptcheck.optimizers.guessing import Guess
from ckptcheck.optimizers.shapes import ShapeTest, Signature
from ckptcheck.rules.rule import Evidence, Unjudged, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.rules.words import KEPT, count, names
from ckptcheck.state.checkpoint import NameSource
from ckptcheck.state.training_state import Optimizer, TrainingState

Shape: TypeAlias = tuple[int, ...]
_BY_NAME: Final = frozenset({NameSource.PARAM_NAMES, NameSource.KEYS, NameSource.USER})
_FLOATING: Final = ("float", "bfloat", "complex")


@dataclass(frozen=True, slots=True)
class Misfits:
    """Parameters of one optimizer whose state has not their shape.

    Attributes:
        optimizer: its place.
        shapes: of each misfit, by name: what the model says.
        told: what its state says.
        owner: whose shape the state of each has, where another order of these names fits all of them; else empty.
        known: whether the class surely is one of the table's, or each state has the shape of another parameter.
        outnumbered: whether more parameters fit than do not.
    """

    optimizer: int
    shapes: Mapping[str, Shape]
    told: Mapping[str, Signature]
    owner: Mapping[str, str]
    known: bool
    outnumbered: bool


@also(runs.parameter_order_mismatch)
def parameter_order_mismatch(stored: Stored) -> Iterator[Evidence]:
    """Names and state of one optimizer contradict each other, and another order of the same names fits."""
    for one in _misfits(stored):
        if one.owner:
            pairs = [f"{name} has state of the shape of {owner}" for name, owner in one.owner.items()]
            yield Evidence(
                f"optimizer {one.optimizer} has the names and the state of {count(pairs, 'parameter')} in unlike "
                f"orders: {names(pairs)}",
                Place(optimizer=one.optimizer, parameter=next(iter(one.owner))),
                {"permutation": dict(list(one.owner.items())[:KEPT])},
                "hand the parameters to the optimizer in the same order, by the same selection, in both runs",
            )


@also(runs.state_shape_mismatch)
def state_shape_mismatch(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """State under a parameter's own name has a shape that a parameter of that shape cannot have."""
    for one in _misfits(stored):
        if one.owner:
            continue
        if not (one.known and one.outnumbered):
            yield Unjudged(
                f"{count(list(one.shapes), 'parameter')} of optimizer {one.optimizer} "
                f"{'has' if len(one.shapes) == 1 else 'have'} state of another shape, as sharded or projected state has"
            )
            continue
        first = next(iter(one.shapes))
        spelled = [
            f"{key} of {name} is {[*own]}, and {name} is {[*one.shapes[name]]}"
            for name, ((key, own), *_) in one.told.items()
        ]
        shapes: dict[str, Json] = {
            name: {"parameter": list[Json](shape), **{key: list[Json](own) for key, own in one.told[name]}}
            for name, shape in list(one.shapes.items())[:KEPT]
        }
        yield Evidence(
            f"optimizer {one.optimizer} has state of another shape for {count(spelled, 'parameter')}: {names(spelled)}",
            Place(optimizer=one.optimizer, parameter=first, key=one.told[first][0][0]),
            {"shapes": shapes},
            "drop the state of this parameter, or save the weights and the optimizer of the same model",
        )


def _misfits(stored: Stored) -> Iterator[Misfits]:
    """The misfits of every optimizer that names its state itself and whose class can be known."""
    state, namings = stored.checkpoint.state, stored.checkpoint.namings
    for place, (optimizer, naming, guess) in enumerate(zip(state.optimizers, namings, stored.classes, strict=False)):
        if naming.source not in _BY_NAME or not guess.rows or any(row.whole_list for row in guess.rows):
            continue
        found = _misfits_of(place, optimizer, guess, _shapes(state))
        if found is not None:
            yield found


def _misfits_of(place: int, optimizer: Optimizer, guess: Guess, shapes: Mapping[str, Shape]) -> Misfits | None:
    test = ShapeTest(guess.rows, certain=guess.certain)
    told = {name: one for name, one in signatures(optimizer, test).items() if one and name in shapes}
    wrong = {name: one for name, one in told.items() if not test.fits(one, shapes[name])}
    if not wrong:
        return None
    own = {name: shapes[name] for name in wrong}
    owner = _another_order(wrong, own, test)
    if not owner and _is_sharded(told, wrong, shapes):
        return None
    others = {*shapes.values()}
    known = guess.certain or all(any(test.fits(one, shape) for shape in others) for one in wrong.values())
    return Misfits(place, own, wrong, owner, known, 2 * len(wrong) < len(told))


def _another_order(wrong: Mapping[str, Signature], shapes: Mapping[str, Shape], test: ShapeTest) -> dict[str, str]:
    """Whose shape the state of each has, if all of them together are the state of all of them; else nothing."""
    free: dict[Shape, list[str]] = {}
    for name, shape in shapes.items():
        free.setdefault(shape, []).append(name)
    owner: dict[str, str] = {}
    for name, signature in wrong.items():
        left = next((left for shape, left in free.items() if left and test.fits(signature, shape)), [])
        if not left:
            return {}
        owner[name] = left.pop(0)
    return owner


def _is_sharded(told: Mapping[str, Signature], wrong: Mapping[str, Signature], shapes: Mapping[str, Shape]) -> bool:
    """Whether this is the state of one rank: some of it is empty, or flat though no matrix has state of its shape."""
    if any(0 in own for signature in told.values() for _, own in signature):
        return True
    flat = any(len(own) == 1 and len(shapes[name]) > 1 for name, signature in wrong.items() for _, own in signature)
    return flat and not any(len(shapes[name]) > 1 for name in told.keys() - wrong.keys())


def own_shapes(state: TrainingState) -> dict[str, Shape]:
    """The whole shape of each floating parameter by its first name, in the model's order."""
    return {
        name: shape
        for name, one in state.parameters.items()
        if one.entry.spec is not None and one.entry.spec.dtype.startswith(_FLOATING)
        and (shape := whole_shape(one.entry)) is not None
    }  # fmt: skip


def _shapes(state: TrainingState) -> dict[str, Shape]:
    """The same by each of its names."""
    own = own_shapes(state)
    return {each: shape for name, shape in own.items() for each in (name, *state.parameters[name].aliases)}
