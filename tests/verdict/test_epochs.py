"""An epoch's end is told by a counter of epochs, a position that falls back, or inputs that come again; by no other."""

import random

import numpy as np
import pytest

from ckptcheck.trace.items import Item
from ckptcheck.verdict.epochs import ends_of_epochs, falls_back, period_of

STEPS = range(1, 13)


def by_step(*values):
    return dict(zip(range(1, len(values) + 1), values, strict=True))


def told(name, values, *, kind="data", texts=(), updating=()):
    """The steps of the epochs' ends that one counter shows."""
    steps = list(range(1, len(values) + 1))
    return [*ends_of_epochs(steps, {Item(kind, name): by_step(*values)}, {}, texts, updating)]


SHOWN = [
    ("epoch", [0, 0, 0, 0, 1, 1, 1, 1, 2, 2], [5, 9]),
    ("loader.current_epoch", [0, 0, 0, 1, 1], [4]),
    ("numEpochs", [1, 1, 2, 2], [3]),
    ("epoch", [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0], [4, 8]),
    ("position", [1, 2, 3, 4, 1, 2, 3, 4, 1], [5, 9]),
    ("position", [1, 2, 3, 0, 1, 2, 3, 0], [4, 8]),
    ("seen", [16, 32, 48, 50, 16, 32, 48, 50], [5]),  # a last batch of two
    ("index", [1, 1, 1, 2, 2, 2, 3, 3, 3, 1, 1, 1], [10]),  # three micro-batches a batch
    ("_num_yielded", [7, 8, 1, 2, 3], [3]),  # the run begins in the middle of an epoch
]
SILENT = [
    ("epoch", [1, 2, 3, 4, 5, 6]),  # it counts steps
    ("samples_in_epoch", [16, 16, 16, 32, 32, 32]),
    ("steps_per_epoch", [16, 16, 16, 16]),
    ("epoch_seconds", [0.4, 0.9, 1.1, 1.6, 2.3, 2.4]),
    ("best_epoch", [3, 1, 2, 3]),
    ("best_epoch", [1, 1, 2, 2]),
    ("round", [3, 1, 2, 2]),  # too little of it to tell
    ("round", [5, 6, 0, 1, 2, 0, 1, 0]),  # no two rounds of one length
    ("position", [1, 2, 3, 4, 5, 6, 7, 8]),
    ("position", [7] * 8),
    ("length", [3, 9, 4, 7, 2, 8, 1, 9]),  # no stride
    ("position", [1, 2, 3, 4, 3, 4, 5, 6]),  # it goes back, but not to the start
    ("remaining", [8, 7, 6, 5, 4, 3, 8, 7]),  # counts down: another form of position, which is not believed
    ("toggle", [0, 1, 0, 1, 0, 1]),
    ("toggle", [1, 0, 1, 0, 1, 0]),
    ("snapshot.last_yielded_worker_id", [0, 1, 2, 3, 0, 1, 2, 3]),
    ("replay.position", [1, 2, 3, 0, 1, 2]),
    ("position", [1.0, float("nan"), 3.0, 0.0]),
    ("loss", [-1, 0, 1, -1, 0, 1]),
]


@pytest.mark.parametrize(("name", "values", "steps"), SHOWN)
def test_a_counter_shows_where_an_epoch_ends(name, values, steps):
    assert told(name, values) == steps


@pytest.mark.parametrize(("name", "values"), SILENT)
def test_a_counter_of_something_else_shows_nothing(name, values):
    assert told(name, values) == []


def test_what_was_handed_over_beside_the_data_may_count_epochs_but_no_position():
    assert told("progress.epoch", [0, 0, 1, 1], kind="extra") == [3]
    assert told("position", [1, 2, 3, 0, 1, 2], kind="extra") == []


def test_a_counter_that_goes_round_with_the_updates_counts_micro_batches():
    micro = [1, 2, 0] * 4
    updating = [step for step in STEPS if step % 3 == 0]
    assert told("place", micro) == [3, 6, 9, 12]
    assert told("place", micro, updating=updating) == []
    eager = [0, 1, 2] * 4
    assert told("place", eager, updating=updating) == []
    assert told("place", [1, 2, 3, 4, 5, 0] * 2, updating=updating) == [6, 12]  # every second update: an epoch


def test_the_index_inside_of_a_generator_of_numpy_is_no_position():
    """The Mersenne twister's index goes up evenly and round after 624 words; 52 numbers a step take 104 of them."""
    state, texts, positions = np.random.RandomState(0), set(), []
    for _ in STEPS:
        state.random_sample(52)
        named, _, position, *_ = state.get_state()
        texts.add(("rng[0]", named))
        positions.append(position)
    assert falls_back(by_step(*positions)) == [7]
    assert told("rng[2]", positions, texts=texts) == []
    assert told("draw[2]", positions, texts={("draw[0]", named)}) == []
    assert told("draw.state.pos", positions, texts={("draw.bit_generator", named)}) == []
    assert told("cursor.place", positions, texts={("cursor.draw.bit_generator", named)}) == [7]


def test_the_half_number_that_a_generator_keeps_is_no_position():
    draw, kept = np.random.default_rng(0), []
    for _ in STEPS:
        draw.integers(0, 9, dtype=np.int32)
        kept.append(draw.bit_generator.state["has_uint32"])
    assert {*kept} == {0, 1}
    assert told("has_uint32", kept) == []


def digests(*contents):
    return [str(one).encode() for one in contents]


AGAIN = [
    ([1, 2, 3, 4, 1, 2, 3, 4, 1], 4),
    ([1, 2, 3, 1, 2], 3),
    ([1, 2, 1, 2], 2),
    ([1, 2, 3, 1], 0),  # one alone may be chance
    ([1, 2, 3, 4], 0),
    ([1, 1, 1, 1], 0),  # a fixed batch
    ([1, 2, 3, 1, 3, 2], 0),  # another order: the next epoch's batches are made anew
    ([1, 2, 2, 1, 2, 2], 0),
    ([1], 0),
    ([], 0),
]


@pytest.mark.parametrize(("contents", "period"), AGAIN)
def test_inputs_come_again_where_all_of_them_do_in_their_order(contents, period):
    assert period_of(digests(*contents)) == period


def test_batches_that_are_drawn_from_few_show_no_epoch():
    drawn = random.Random(0)
    for _ in range(200):
        picks = [drawn.randrange(4) for _ in range(20)]
        regular = any(all(picks[place] == picks[place % period] for place in range(20)) for period in range(1, 19))
        assert regular or period_of(digests(*picks)) == 0


def test_epochs_that_inputs_show_begin_after_each_period():
    steps, name = [4, 5, 6, 7, 8, 9, 10], Item("inputs", "model", "0")
    found = ends_of_epochs(steps, {}, {name: digests(1, 2, 3, 1, 2, 3, 1)})
    assert found == {7: "the batch of step 4 comes again", 10: "the batch of step 4 comes again"}
    assert ends_of_epochs(steps, {}, {name: digests(1, 2, 1, 2)}) == {}  # not there in every step


def test_an_end_says_what_shows_it():
    counters = {Item("data", "position"): by_step(1, 2, 3, 1), Item("data", "epoch"): by_step(0, 0, 0, 1)}
    assert ends_of_epochs([1, 2, 3, 4], counters, {}) == {4: "data epoch goes from 0 to 1"}
