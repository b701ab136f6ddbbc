"""Names that a user gives to an optimizer's indices, held against what the file itself says."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ckptcheck.conventions.weights import Weights, whole_shape
from ckptcheck.errors import UsageError
from ckptcheck.optimizers.shapes import ShapeTest, Signature

_ADAPTER_PARTS: Final = ("default", "modules_to_save")
"""Parts of an adapter's names that a live model has and the adapter's file lacks."""


def as_in_file(names: Sequence[str], model: Weights) -> list[str]:
    """The names as the file writes them: a live adapter's have its own name in them."""
    return [name if _is_held(name, model) else _without_adapter(name, model) for name in names]


def check_given(given: Mapping[Any, str], model: Weights, signatures: Mapping[Any, Signature], test: ShapeTest) -> None:
    """UsageError where a name is given twice, is of no weight in the file, or of one whose shape the state denies.

    Any name is taken where the file holds no weights. State that fits no weight of the model denies a name only where
    the optimizer's class is known: some keep their moments in another shape.
    """
    twice = [name for name, count in Counter(given.values()).items() if count > 1]
    if twice:
        raise UsageError(f"the name {twice[0]!r} was given for two parameters: give each of the optimizer's its own")
    for key, name in given.items():
        if not _is_held(name, model):
            raise UsageError(
                f"the name {name!r} was given for the parameter of index {key}, and the file's model has none of that "
                "name: give the model's own names, in the order of the param groups"
            )
        own = model.parameters.get(name)
        shape = model.shapes.get(name) if own is None else whole_shape(own.entry)
        signature = signatures.get(key, ())
        if shape is None or test.fits(signature, shape):
            continue
        if test.certain or any(test.fits(signature, other) for other in set(model.shapes.values())):
            kept, found = signature[0]
            raise UsageError(
                f"the name {name!r} was given for the parameter of index {key}, whose {kept} is {[*found]}; the "
                f"model's {name} is {[*shape]}: give the names in the order of the param groups"
            )


def _is_held(name: str, model: Weights) -> bool:
    own = model.name_of(name)
    return (not model.parameters and not model.buffers) or any(
        one in held
        for one in (name, own)
        for held in (model.parameters, model.buffers, model.shapes, model.alias_of, model.beside)
    )


def without_adapter(name: str) -> str:
    """A live adapter's parameter as its file names it."""
    return ".".join(part for part in name.split(".") if part not in _ADAPTER_PARTS)


def _without_adapter(name: str, model: Weights) -> str:
    bare = without_adapter(name)
    return bare if _is_held(bare, model) else name
