"""Whether the state that an optimizer keeps under an index can be that of a parameter of a certain shape."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from ckptcheck.optimizers.row import Kind, Row, shape_fits
from ckptcheck.optimizers.table import OPTIMIZERS

Signature: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The state tensors of one index: key and shape of each, sorted."""

_WHOLE: Final = frozenset({Kind.PARAMETER, Kind.STACKED})
_SAYS_SHAPE: Final = frozenset({Kind.PARAMETER, Kind.STACKED, Kind.ROWS, Kind.COLUMNS})


class ShapeTest:
    """Tells by the optimizer table whether state fits a parameter; `rows` are the classes that it can be.

    `certain` says that it surely is one of these.
    """

    def __init__(self, rows: Iterable[Row], *, certain: bool = False) -> None:
        self.certain = certain
        self._kinds: dict[str, set[Kind]] = {}
        for row in tuple(rows) or OPTIMIZERS:
            for key, kind in row.keys.items():
                self._kinds.setdefault(key, set()).add(kind)
        self._known: dict[tuple[Signature, tuple[int, ...]], bool] = {}

    def signature(self, tensors: Mapping[str, tuple[int, ...]]) -> Signature:
        """What says something about the parameter's shape, of the shapes of one index's state tensors."""
        return tuple(
            sorted((key, shape) for key, shape in tensors.items() if self._kinds.get(key, set()) & _SAYS_SHAPE)
        )

    def fits(self, signature: Signature, shape: tuple[int, ...]) -> bool:
        """Whether every state tensor fits a parameter of this shape. An empty signature fits every one."""
        found = self._known.get((signature, shape))
        if found is None:
            found = all(any(shape_fits(kind, own, shape) for kind in self._kinds[key]) for key, own in signature)
            self._known[signature, shape] = found
        return found

    def shapes_for(self, signature: Signature) -> set[tuple[int, ...]] | None:
        """The shapes that alone can fit, at most two; None where the state leaves a dimension open."""
        found: set[tuple[int, ...]] | None = None
        for key, own in signature:
            kinds = self._kinds[key] & _SAYS_SHAPE
            if kinds <= _WHOLE:
                possible = {own[1:] if kind is Kind.STACKED else own for kind in kinds}
                found = possible if found is None else found & possible
        return found
