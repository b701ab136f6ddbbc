"""CK501: the scale of a gradient scaler with which no gradient is a number."""

import math
from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place
from ckptcheck.rules.rule import Evidence, Rule, also
from ckptcheck.rules.stored.counters import number_of
from ckptcheck.rules.stored.numbers import non_finite
from ckptcheck.rules.stored.stored import Stored

_SCALES: Final = frozenset({"scale", "cur_scale", "loss_scale"})


@also(non_finite)
def scale_of_no_use(stored: Stored) -> Iterator[Evidence]:
    """The scale of a gradient scaler is NaN, infinite, or not above zero: every step is skipped from then on."""
    for path, entry in stored.checkpoint.state.sections.get("scaler", {}).items():
        value = number_of(entry) if path.rpartition(".")[2] in _SCALES else None
        if value is not None and not (math.isfinite(value) and value > 0):
            yield Evidence(
                f"{path} of the gradient scaler is {value:g}: gradients are multiplied by it and by its inverse, which "
                "gives no numbers, so that every step is skipped",
                Place(key=path),
                {"scale": value if math.isfinite(value) else str(value)},
                "resume from an earlier checkpoint, or begin with a new scaler",
            )


RULES: Final[tuple[Rule[Stored], ...]] = (scale_of_no_use,)
