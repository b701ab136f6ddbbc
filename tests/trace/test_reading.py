"""A trace read in columns, by single items, with other step numbers."""

import pytest

from ckptcheck.errors import TraceError
from ckptcheck.trace.items import END, LOAD, STEP, Item, Sample
from ckptcheck.trace.measuring import plain
from ckptcheck.trace.reading import CONTENT_BYTES, NO_DIGEST
from tests.comparison.written import content, gradient, tensor, write

MANY = {Item("param", f"p{place}"): tensor(place) for place in range(40)}
ODD = {
    Item("grad", "none"): gradient(None),
    Item("grad", "there"): gradient("g", 2),
    Item("extra", "flag"): plain(True),
    Item("param", "one"): tensor(1)._replace(norm=None, value=float("nan")),
}


@pytest.fixture
def trace(tmp_path):
    opened = write(tmp_path / "one.trace", {(0, LOAD): MANY, (1, STEP): {**MANY, **ODD}, (1, END): ODD, (2, STEP): {}})
    yield opened
    opened.close()


def test_columns_hold_digest_and_presence_of_every_item_and_nothing_where_there_is_none(trace):
    listing, contents = trace.columns(1, STEP)
    whats = [int(one) for one in listing.split(",")]
    rows = [contents[at : at + CONTENT_BYTES] for at in range(0, len(contents), CONTENT_BYTES)]
    told = {trace.table[what][0]: row for what, row in zip(whats, rows, strict=True)}
    assert told.keys() == MANY.keys() | ODD.keys()
    assert told[Item("param", "p7")] == content(7) + b"-"
    assert told[Item("grad", "none")] == NO_DIGEST + b"0"
    assert told[Item("grad", "there")] == content("g") + b"2"
    assert trace.columns(2, STEP) == trace.columns(9, STEP) == ("", b"")


@pytest.mark.parametrize("digest", [b"short", b"x" * 17, b""])
def test_a_digest_of_another_length_is_refused_in_columns(tmp_path, digest):
    samples = {Item("param", "w"): tensor(1)._replace(digest=digest), Item("param", "v"): Sample(None, b"x" * 27)}
    opened = write(tmp_path / "odd.trace", {(1, STEP): samples})
    with pytest.raises(TraceError, match="not 16 bytes long"):
        opened.columns(1, STEP)
    opened.close()


def test_few_and_many_items_are_picked_alike_and_single_ones_too(trace):
    whole = trace.samples(1, STEP)
    numbers = {item: what for what, (item, _) in trace.table.items()}
    for chosen in (list(ODD), [*MANY][:3], [*MANY], [*MANY, *ODD], []):
        picked = trace.picked(1, STEP, [numbers[item] for item in chosen])
        assert repr({trace.table[what][0]: one for what, one in picked.items()}) == repr(
            {item: whole[item] for item in sorted(chosen, key=lambda one: list(picked).index(numbers[one]))}
        )
        assert len(picked) == len(chosen)
    assert [repr(trace.sample(1, STEP, item)) for item in whole] == [repr(one) for one in whole.values()]
    assert trace.sample(0, LOAD, Item("extra", "flag")) is trace.sample(1, STEP, Item("param", "else")) is None
    assert trace.picked(0, LOAD, [numbers[Item("extra", "flag")]]) == {}


def test_a_shifted_trace_has_every_moment_at_its_new_step(trace):
    moved = trace.shifted(10)
    assert list(moved.moments) == [(10, LOAD), (11, STEP), (11, END), (12, STEP)]
    assert (moved.steps, trace.steps) == ([11, 12], [1, 2])
    assert moved.columns(11, STEP) == trace.columns(1, STEP)
    assert moved.digest(10, LOAD, Item("param", "p3")) == content(3)
    moved.close()
    assert trace.digest(0, LOAD, Item("param", "p3")) == content(3)
