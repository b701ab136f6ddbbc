"""Traces drawn at random: what differs in two of them is what was written so, and a resumed one has one place."""

import random

import pytest

from ckptcheck.comparison.alignment import align
from ckptcheck.comparison.traces import compare_traces
from ckptcheck.trace.items import STEP, Item, Sample
from ckptcheck.trace.measuring import plain
from tests.comparison.test_alignment import KINDS, Training, never, reference, resumed, same
from tests.comparison.written import frozen, gradient, groups, tensor, write

PAIRS = range(60)
LAST = 5
NAMES = ("a", "b", "c")


def _sample(draw: random.Random, item: Item, value: int) -> Sample:
    if item.kind == "grad":
        return gradient(value if draw.random() < 0.9 else None)
    if item.kind in ("param", "state", "buffer", "rng", "inputs") and item.key != "step":
        shape = (2, 2) if draw.random() < 0.97 else (4,)
        return tensor(value, *shape)._replace(norm=draw.choice((1.0, 1.5, 0.0, None)))
    return plain(draw.choice((float("nan"), value)) if draw.random() < 0.05 else value)


ITEMS = (
    *(Item("param", name) for name in NAMES), *(Item("grad", name) for name in NAMES),
    *(Item("state", name, key, 0) for name in NAMES for key in ("exp_avg", "step")),
    Item("buffer", "mean"), Item("rng", "torch"), Item("rng", "numpy"), Item("inputs", "0"), Item("loss"),
    Item("hyper", "", "lr", 0, 0), Item("schedule", "last_epoch"), Item("updates", optimizer=0),
)  # fmt: skip


def _moments(draw: random.Random, begin: int) -> dict[tuple[int, str], dict[Item, Sample]]:
    """A run in which from some step on some items differ: `begin` is that step, beyond the last for none."""
    apart = draw.sample(ITEMS, draw.choice((1, 2, 6)))
    found: dict[tuple[int, str], dict[Item, Sample]] = {}
    rests = random.Random(7)
    for step in range(1, LAST + 1):
        held = {item: _sample(rests, item, step) for item in ITEMS}
        if step >= begin:
            held |= {item: _sample(draw, item, step + 100) for item in apart if draw.random() < 0.7}
            if draw.random() < 0.15:
                del held[draw.choice(apart)]
        held |= groups([[*NAMES[:2]], [NAMES[2]]]) | frozen(*NAMES[: draw.choice((0, 0, 1))])
        if step < LAST or draw.random() < 0.9:
            found[step, STEP] = held
    return found


@pytest.mark.parametrize("seed", PAIRS)
def test_what_differs_in_any_two_traces_is_what_was_written_differently(seed, tmp_path):
    draw = random.Random(seed)
    sides = _moments(draw, LAST + 1), _moments(draw, draw.randint(1, LAST + 1))
    left, right = (write(tmp_path / f"{place}.trace", one) for place, one in enumerate(sides))
    found = compare_traces(left, right)
    both = sorted(sides[0].keys() & sides[1].keys())
    assert found.steps == tuple(step for step, _ in both)
    apart = {
        (step, item)
        for step, event in both
        for item in sides[0][step, event].keys() | sides[1][step, event].keys()
        if sides[0][step, event].get(item) != sides[1][step, event].get(item)
    }
    told = {(one.step, one.item) for one in found.differences}
    met_again = {(step, item) for step, item in apart if item.kind == "rng" and (step + 1, item) not in apart}
    assert apart - met_again <= told <= apart, "streams that meet again were seeded anew"
    assert compare_traces(left, left).differences == ()
    left.close()
    right.close()


def _training(draw: random.Random) -> Training:
    ways = (same, same, never, lambda step: step // 2, lambda step: 2 * step, None)
    chosen = {kind: draw.choice(ways) for kind in KINDS}
    return Training(**chosen, frozen=draw.choice(((), ("a.bias",), ("a.weight", "a.bias"))))


def test_a_resumed_trace_that_holds_what_one_step_left_is_placed_there(tmp_path):
    for seed in range(150):
        draw = random.Random(seed)
        training = _training(draw)
        instead = {kind: draw.choice((None, 0, 2, 7)) for kind in draw.sample(KINDS, draw.choice((0, 1, 2)))}
        step, every = draw.choice((1, 3, 7)), draw.choice((1, 1, 2))
        load = training.after(step, **instead)
        traces = reference(tmp_path, training, every=every), resumed(tmp_path, load)
        found = align(*traces, draw.choice((None, 3, 7, 99)))
        if training.param is same and not instead and every == 1:
            assert (found.step, found.by, found.matched) == (step, "content", found.of), seed
        else:
            assert found.why, seed
        for one in traces:
            one.close()
