"""Equal runs drawn at random, and a resumed one: what is noise is never told as a divergence."""

import random
from pathlib import Path

from ckptcheck.comparison.traces import Difference, compare_traces
from ckptcheck.experiment.floor import Floor, Gap
from ckptcheck.experiment.noise import assess, touched_by_save
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import AFTER_SAVE, LOAD, SAVED, STEP, Item
from ckptcheck.trace.measuring import plain
from tests.comparison.test_any_trace import ITEMS, LAST, _moments, _sample
from tests.comparison.written import tensor, write


def _shown(differences: tuple[Difference, ...]) -> list[tuple[int, Item]]:
    return [(one.step, one.item) for one in differences]


def _runs(folder: Path, draw: random.Random) -> list[Trace]:
    """The reference, its repeats, and the resumed run at the end."""
    steady = draw.random() < 0.2
    begins = [LAST + 1, *(LAST + 1 if steady else draw.randint(1, LAST + 1) for _ in range(draw.choice((1, 2, 3))))]
    found = []
    for place, begin in enumerate([*begins, draw.randint(1, LAST)]):
        moments = dict(_moments(draw, begin))
        if draw.random() < 0.9:
            weights = {Item("param", name): tensor(name if draw.random() < 0.97 else 0) for name in ("a", "b")}
            moments = {(0, LOAD): weights, **moments}
        found.append(write(folder / f"{place}.trace", moments))
    return found


def test_what_is_left_beyond_the_noise_differed_and_nothing_is_taken_where_there_is_none(tmp_path):
    for seed in range(60):
        draw = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        reference, *repeats, resumed = traces = _runs(folder, draw)
        noise = assess(reference, repeats, draw.random() < 0.3)
        diff = compare_traces(reference, resumed)
        for numeric in (False, True):
            stripped = noise.strip(diff, numeric)
            assert {*_shown(stripped.differences)} <= {*_shown(diff.differences)}
        if noise.first is None:
            assert stripped.differences == diff.without({}).differences
        for one in traces:
            one.close()


def test_what_is_beyond_any_floor_is_not_left_open():
    kinds = [item for item in ITEMS if item.kind in ("param", "grad", "state", "loss", "buffer")]
    for seed in range(120):
        draw = random.Random(seed)
        keys = [(step, item) for step in range(4, 9) for item in kinds]
        sizes = (0.0, 1e-9, 1e-7, 1e-5, 1e-3, float("inf"))
        gaps = [{key: Gap(draw.choice(sizes), 1.0) for key in keys if draw.random() < share} for share in (0.4, 0.7)]
        floor = Floor(
            draw.choice((1, 3)), gaps[0] if draw.random() < 0.9 else {}, gaps[1],
            rounding=frozenset(draw.sample(("a", "b"), draw.choice((0, 0, 1)))),
            steady_from=draw.choice((None, 4, 6)), repeated=frozenset(draw.sample(range(4, 9), draw.choice((0, 1)))),
        )  # fmt: skip
        for step, item in draw.sample(keys, 12):
            sides = _sample(draw, item, 1), draw.choice((None, _sample(draw, item, 2), tensor(1, 7)))
            one = Difference(step, item, *sides)
            told = floor.beyond(one), floor.leaves_open(one)
            like = one.left is not None and one.right is not None and one.left.spec == one.right.spec
            assert not (like and all(told)), "what is beyond is not open"


def test_what_a_save_touches_is_told_in_the_order_of_the_stages(tmp_path):
    before = {Item("param", "a"): tensor(1), Item("rng", "torch"): tensor(1), Item("rng", "numpy"): tensor(1),
              Item("schedule", "last_epoch"): plain(3), Item("buffer", "mean"): tensor(1)}  # fmt: skip
    after = before | {Item("rng", "torch"): tensor(2), Item("rng", "numpy"): tensor(2), Item("param", "a"): tensor(2),
                      Item("ema", "new"): tensor(1)}  # fmt: skip
    del after[Item("buffer", "mean")]
    trace = write(tmp_path / "saved.trace", {(3, STEP): before, (3, SAVED): before, (3, AFTER_SAVE): after})
    found = touched_by_save(trace, 3, frozenset({"torch"}))
    assert [(one.step, one.item.kind, one.left is None, one.right is None) for one in found] == [
        (3, "rng", False, False), (3, "buffer", False, True), (3, "param", False, False), (3, "ema", True, False)
    ]  # fmt: skip
    trace.close()
