"""Which tolerance holds for what training computes: the most specific; none for counters and truth values."""

import pytest

from ckptcheck.comparison.tolerance import Tolerance
from ckptcheck.trace.items import Item

PARAM, BUFFER, GRAD, LOSS = Item("param", "w"), Item("buffer", "mean"), Item("grad", "w"), Item("loss")
MOMENT, STEP = Item("state", "w", "exp_avg", 0), Item("state", "w", "step", 0)
PAIR, ROLE, OTHER = (0.5, 0.25), (0.125, 0.0), (0.0, 0.0625)
ALL = Tolerance(*PAIR)
ROLES = Tolerance(*PAIR, {"param": ROLE, "state:bfloat16": OTHER, "grad": (0.0, 0.0)})
ONLY = Tolerance(roles={"param": ROLE, "buffer": OTHER, "state": ROLE, "loss": OTHER})

CASES = [
    (Tolerance(), PARAM, "float32", None),
    (ALL, PARAM, "float32", PAIR),
    (ALL, MOMENT, "bfloat16", PAIR),
    (ALL, MOMENT, "complex64", PAIR),
    (ALL, MOMENT, "int8", None),
    (ALL, BUFFER, "int64", None),
    (ALL, STEP, "float32", None),
    (ALL, PARAM, "bool", None),
    (ALL, LOSS, "float", PAIR),
    (ROLES, PARAM, "float32", ROLE),
    (ROLES, PARAM, "int8", ROLE),
    (ROLES, BUFFER, "float32", ROLE),
    (ROLES, MOMENT, "bfloat16", OTHER),
    (ROLES, MOMENT, "float32", PAIR),
    (ROLES, GRAD, "float32", None),
    (ROLES, PARAM, "bool", None),
    (ONLY, BUFFER, "float32", OTHER),
    (ONLY, STEP, "float32", None),
    (ONLY, GRAD, "float32", None),
    (ONLY, LOSS, "float", OTHER),
]


@pytest.mark.parametrize(("tolerance", "item", "dtype", "told"), CASES)
def test_the_tolerance_of(tolerance, item, dtype, told):
    assert tolerance.of(item, dtype) == told


def test_a_tolerance_of_nothing_is_exact():
    assert Tolerance().is_exact
    assert Tolerance(roles={"param": (0.0, 0.0)}).is_exact
    assert not Tolerance(roles={"param": (0.0, 1.0)}).is_exact
    assert not Tolerance(atol=1.0).is_exact
