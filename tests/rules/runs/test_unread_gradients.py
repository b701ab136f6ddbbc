"""Gradients that differ only because one run made no update: they are cleared in the other one, or unscaled for it."""

from dataclasses import replace
from typing import Any

import pytest

from ckptcheck.comparison.states import compare_states
from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.finding import Compared
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.forward import left_unread
from ckptcheck.rules.runs.judge import judge
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import NONZERO, Item, Sample
from tests.comparison.written import number as entry_of
from tests.comparison.written import state_of

SPEC = TensorSpec("float32", (2, 3))
ONE = TensorSpec("float32", (1,))


def grad(norm: float | None, *, value: float | None = None) -> Sample:
    return Sample(SPEC if value is None else ONE, repr((norm, value)).encode(), NONZERO, norm, value)


def number(value: float) -> Sample:
    return Sample(None, repr(value).encode(), value=value)


def differ(kind: str, name: str, left: Sample | None, right: Sample | None) -> Difference:
    optimizer = 0 if kind == "updates" else -1
    return Difference(6, Item(kind, name, optimizer=optimizer), left, right)


def case(*differences: Difference) -> Case:
    return Case("resumed@5", 5, trajectory=TraceDiff((6,), Compared(), tuple(differences)))


UPDATES = differ("updates", "", number(1), number(0))
FEWER_LEFT = differ("updates", "", number(0), number(1))
CLEARED = Sample(None, None, 0)
SCALED = differ("grad", "w", grad(0.5), grad(512.0))
BIAS = differ("grad", "b", grad(None, value=-0.25), grad(None, value=-256.0))
NAN = float("nan")
CASES: list[tuple[str, list[Difference], bool]] = [
    ("cleared by the run that updates not", [differ("grad", "w", grad(1.0), CLEARED), UPDATES], True),
    ("cleared by the other one", [differ("grad", "w", CLEARED, grad(1.0)), UPDATES], False),
    ("other gradients", [differ("grad", "w", grad(1.0), grad(3.0)), differ("grad", "b", grad(1.0), grad(2.0)), UPDATES],
     False),
    ("as many updates", [differ("grad", "w", grad(1.0), CLEARED)], False),
    ("scaled in the run that updates not",
     [SCALED, BIAS,
      UPDATES], True),
    ("scaled by what the scaler says",
     [SCALED, differ("scaler", "scale", number(2048), number(1024)), UPDATES], True),
    ("scaled by something else than the scaler says",
     [SCALED, differ("scaler", "scale", number(1024), number(2048)), UPDATES], False),
    ("scaled on the left", [differ("grad", "w", grad(512.0), grad(0.5)), FEWER_LEFT], True),
    ("scaled in the run that updates", [differ("grad", "w", grad(512.0), grad(0.5)), UPDATES], False),
    ("one of them is not",
     [SCALED, differ("grad", "b", grad(0.5), grad(513.0)), UPDATES], False),
    ("one of them is not there",
     [SCALED, differ("grad", "b", None, grad(513.0)), UPDATES], False),
    ("an overflow", [differ("grad", "w", grad(0.5), grad(float("inf"))), UPDATES], False),
    ("no number", [differ("grad", "w", grad(0.5), grad(NAN)), UPDATES], False),
    ("nothing to divide by", [differ("grad", "w", grad(0.0), grad(512.0)), UPDATES], False),
    ("something else differs first", [differ("loss", "", number(1), number(2)), UPDATES], False),
]  # fmt: skip


@pytest.mark.parametrize(("differences", "unread"), [one[1:] for one in CASES], ids=[one[0] for one in CASES])
def test_gradients_are_left_unread_where_one_run_made_no_update(differences: list[Any], unread: bool) -> None:
    assert left_unread(case(*differences)) is unread


ONCE_MORE = differ("updates", "", number(1), number(2))
COUNTS: list[tuple[str, list[Difference], bool]] = [
    ("an update more, and nothing before it", [ONCE_MORE], True),
    ("an update more, and the gradients of the other run are scaled", [SCALED, UPDATES], True),
    ("a call more, which brings an update", [differ("loss", "", None, number(2)), ONCE_MORE], True),
    ("another loss, and an update more", [differ("loss", "", number(1), number(2)), ONCE_MORE], False),
    ("other gradients, and an update more", [differ("grad", "w", grad(1.0), grad(3.0)), ONCE_MORE], False),
    ("a weight and no count", [differ("param", "w", grad(1.0), grad(3.0))], False),
]


@pytest.mark.parametrize(("differences", "told"), [one[1:] for one in COUNTS], ids=[one[0] for one in COUNTS])
@pytest.mark.parametrize("other_scale", [False, True])
def test_an_update_too_many_is_told_where_nothing_else_brings_it(
    differences: list[Any], told: bool, other_scale: bool
) -> None:
    """Where the loss scale is not restored, an update is skipped for an overflow and not for a counter."""
    scales = [{"scaler": {"scale": entry_of(value)}} for value in (8.0, 4.0 if other_scale else 8.0)]
    load = compare_states(*(state_of(sections=one) for one in scales))
    codes = {one.code for one in judge(replace(case(*differences), load=load)).findings}
    assert ("CK612" in codes) is (told and not other_scale)
