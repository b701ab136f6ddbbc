"""Generators that differ in a resumed script: which of them reach what is trained, and which are drawn from in vain.

Each side is told step by step: the state of the generator when the step begins, its batch, its loss and its weights.
"""

import itertools
from dataclasses import dataclass

import pytest

from ckptcheck.comparison.drawing import idle_generators, with_draws_before, without_generators
from ckptcheck.comparison.traces import compare_traces
from ckptcheck.trace.items import END, STEP, Item
from ckptcheck.trace.measuring import plain
from tests.comparison.written import tensor, write

RESUMED_AFTER = 3
files = itertools.count()


@dataclass(frozen=True)
class Told:
    """A reference of six steps, and a run resumed after the third; each letter is some content.

    `end` is the state of the generator when the reference ends, `theirs_end` that of the resumed run.
    """

    name: str
    states: str
    theirs: str
    idle: dict[str, int]
    batches: str = "abcdef"
    their_batches: str = "def"
    losses: str = "......"
    their_losses: str = "..."
    weights: str = "......"
    their_weights: str = "..."
    rates: str = "......"
    their_rates: str = "..."
    end: str = ""
    their_end: str = ""
    whole: bool = True


TOLD = (
    Told("equal generators are not idle", "123456", "456", {}),
    Told("a loader has drawn a seed that serves nothing", "111111", "222", {"torch": 4}),
    Told("both draw at an epoch's end, and nothing comes of it", "111444", "225", {"torch": 4}),
    Told("it begins to differ later, and nothing comes of it", "111144", "145", {"torch": 6}),
    Told("noise hides what follows, and nothing is drawn", "111111", "222", {"torch": 4}, end="1", whole=False),
    Told("noise hides what follows, and every step draws", "123456", "789", {}, end="0", whole=False),
    Told("noise hides what follows, and the batch is drawn", "111444", "555", {}, end="4", whole=False),
    Told("dropout draws in each step", "123456", "789", {}, their_losses="xyz"),
    Told("the batch is drawn in each step", "123456", "789", {}, their_batches="xyz"),
    Told("the order of the next epoch is drawn", "111444", "555", {}, their_batches="xyz"),
    Told("the order of this epoch was drawn before", "111111", "222", {"torch": 4}, their_batches="xyz"),
    Told("another order comes with the next epoch", "111166", "277", {}, their_batches="dzf"),
    Told("an old batch comes from a generator seeded anew", "123456", "123", {}, their_batches="abc"),
    Told("an old batch comes though the generator is elsewhere", "111166", "227", {"torch": 4}, their_batches="daf"),
    Told("steps drew from it before, in vain", "123456", "789", {"torch": 4}, their_losses="..z"),
    Told("the step whose loss differs draws nothing", "111111", "222", {"torch": 4}, their_losses="x..", end="1",
         their_end="2"),
    Told("the last step whose loss differs draws", "111111", "222", {}, their_losses="..x", end="3", their_end="4"),
    Told("the update draws", "123456", "789", {}, their_weights="xyz"),
    Told("the rate differs, which nobody draws", "123456", "789", {"torch": 4}, their_rates="xyz"),
    Told("it differs after what else differs", "123456", "477", {}, their_rates="xyz"),
)  # fmt: skip


def _step(told: Told, mine: bool, place: int) -> dict:
    sides = [
        (told.states, told.theirs), (told.batches, told.their_batches), (told.losses, told.their_losses),
        (told.weights, told.their_weights), (told.rates, told.their_rates),
    ]  # fmt: skip
    state, batch, loss, weights, rate = (pair[0 if mine else 1][place] for pair in sides)
    return {
        Item("rng", "torch"): tensor(f"rng{state}"),
        Item("hyper", key="lr", optimizer=0, group=0): plain(f"lr{rate}"),
        Item("inputs", "0"): tensor(f"in{batch}"),
        Item("loss"): tensor(f"loss{loss}"),
        Item("param", "w"): tensor(f"w{weights}"),
    }


def _trace(folder, told: Told, mine: bool):
    first, count = (1, 6) if mine else (RESUMED_AFTER + 1, 3)
    moments = {(first + place, STEP): _step(told, mine, place) for place in range(count)}
    end = told.end if mine else told.their_end
    if end:
        moments[(6, END)] = {Item("rng", "torch"): tensor(f"rng{end}")}
    return write(folder / f"{next(files)}.trace", moments, driver="script")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("drawing")


def _compared(folder, told: Told):
    left, right = (_trace(folder, told, mine) for mine in (True, False))
    diff = with_draws_before(compare_traces(left, right, first=RESUMED_AFTER + 1), left)
    return left, right, diff


@pytest.mark.parametrize("told", TOLD, ids=lambda one: one.name.replace(" ", "-"))
def test_a_generator_is_idle_where_nothing_that_was_drawn_from_it_shows(folder, told):
    left, right, diff = _compared(folder, told)
    assert dict(idle_generators(diff, left, right, whole=told.whole)) == told.idle


def test_what_is_drawn_for_the_first_batch_counts_as_drawn(folder):
    assert _compared(folder, Told("", "111444", "444", {}))[2].drawn == {"torch"}
    assert _compared(folder, Told("", "111111", "111", {}))[2].drawn == frozenset()


def test_only_the_generators_named_are_left_out(folder):
    diff = _compared(folder, Told("", "123456", "789", {}, their_losses="x.."))[2]
    assert {one.item.kind for one in without_generators(diff, {"torch": 4}).differences} == {"loss"}
    assert without_generators(diff, {"numpy": 4}) == diff
