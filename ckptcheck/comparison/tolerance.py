"""How far apart two values that training computes may be and still count as equal; exact is the default."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ckptcheck.comparison.outcomes import COUNTERS
from ckptcheck.trace.items import Item

_FLOATING = ("float", "bfloat", "complex")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Relative to the left side, and absolute: |right - left| <= atol + rtol * |left|.

    `roles` map a role or "role:dtype" to (rtol, atol); `rtol` and `atol` are for what no role asks for.
    """

    rtol: float = 0.0
    atol: float = 0.0
    roles: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        """Whether nothing was asked for."""
        return not any((self.rtol, self.atol, *(amount for pair in self.roles.values() for amount in pair)))

    def of(self, item: Item, dtype: str = "float") -> tuple[float, float] | None:
        """(rtol, atol) of an item, the most specific first, None for exact; as `outcomes.tolerance_of` has it.

        `dtype` is "float" for a plain number. Buffers take what parameters have where nothing else is said. What no
        role asks for is held exactly unless it is in floating point; counters and truth values always are.
        """
        if dtype == "bool" or (item.kind == "state" and item.key in COUNTERS):
            return None
        for role in (item.kind, *(("param",) if item.kind == "buffer" else ())):
            for key in (f"{role}:{dtype}", role):
                if key in self.roles:
                    return self.roles[key] if any(self.roles[key]) else None
        pair = self.rtol, self.atol
        return pair if any(pair) and dtype.startswith(_FLOATING) else None
