"""Whatever checkpoints lie beside each other in a run, they are judged in whole sentences."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ckptcheck.comparison.series import Described, Stale
from ckptcheck.comparison.series_parts import Same
from ckptcheck.rules.rule import chosen, judged
from ckptcheck.rules.series.series import WHY_NOT, Member, Series
from ckptcheck.rules.series.table import SERIES_RULES
from ckptcheck.state.raw import Defect, Flaw

RUNS = range(300)
TOGETHER = 50
SHAPES = {"a.weight": (2, 3), "a.bias": (3,), "b.weight": (4, 3), "b.bias": (4,)}


def _described(draw: random.Random, step: int, updates: float, schedule: int) -> Described:
    shapes: dict[str, Any] = dict(SHAPES)
    if draw.random() < 0.15:
        shapes |= draw.choice(({"c.weight": (1,), "d.weight": (1,)}, {"a.bias": (5,), "b.bias": (5,)}))
        shapes = {name: shape for name, shape in shapes.items() if draw.random() < 0.8}
    counters = {"0/a.weight": updates, "0/a.bias": updates - draw.choice((0, 0, 1))}
    return Described(
        draw.choice(("plain",) * 12 + ("lightning",)), None if draw.random() < 0.1 else step, f"global_step {step}",
        draw.random() < 0.9, counters if draw.random() < 0.9 else {}, schedule if draw.random() < 0.8 else None,
        shapes, 4 * sum(map(len, shapes)), 400 + step, draw.random() < 0.85,
    )  # fmt: skip


def any_series(seed: int) -> Series:
    """The run of a seed: counters and schedules that rise with the steps, start anew or fall behind."""
    draw = random.Random(seed)
    members: list[Member] = []
    updates, schedule, written_s = 0.0, 0, 1e9
    for number in range(draw.choice((1, 3, 4, 6))):
        step = 5 * (number + 1) - draw.choice((0,) * 9 + (1,))
        updates = draw.choice((updates + 5,) * 8 + (5.0, updates, 2.0))
        schedule = draw.choice((schedule + 5,) * 8 + (5, schedule, 2))
        written_s += draw.choice((50.0, 60.0, 61.0, 3600.0, 5400.0, -120.0, -3600.0, -7200.0))
        place = draw.choice((step,) * 9 + (number,))
        defects = (Defect(draw.choice([*Flaw]), "model.bin", "model.bin is not there"),) if draw.random() < 0.08 else ()
        found = _described(draw, step, updates, schedule) if draw.random() < 0.94 else None
        refused = "it is of another kind" if found is None and not defects else ""
        members.append(Member(f"step-{place}", place, written_s, False, found, defects, refused))
    at = draw.choice((-1, -1, 0))
    last = members[at]
    members[at] = Member(last.name, last.number, last.written_s, True, last.described, last.defects, last.refused)
    pairs = [(one.name, other.name) for one, other in pairwise(members)]
    stale = {pair: Stale(4, draw.choice(((), ("a.weight",), ("a.weight", "a.bias"))), draw.choice((0, 3)))
             for pair in pairs if draw.random() < 0.4}  # fmt: skip
    same = {pair: Same(draw.choice((0, 4)), draw.choice((0, 8)), draw.random() < 0.7)
            for pair in pairs if draw.random() < 0.2}  # fmt: skip
    return Series(
        Path("run"), tuple(members), draw.choice((0, 0, 7)), draw.choice(("", "latest")),
        stale if draw.random() < 0.8 else None, draw.choice(("", "the rest would cost too much")),
        {"step-99": "no optimizer.pt"} if draw.random() < 0.1 else {}, same,
    )  # fmt: skip


@pytest.mark.parametrize("first", range(RUNS.start, RUNS.stop, TOGETHER))
def test_any_run_is_judged_in_findings_with_a_message_and_a_fix(first):
    for seed in range(first, first + TOGETHER):
        findings, not_judged = judged(chosen(SERIES_RULES), any_series(seed), WHY_NOT)
        assert all(one.message and one.fix and one.name for one in findings), seed
        assert all(one.reason for one in not_judged)
