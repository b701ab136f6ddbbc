"""What a raw value counts for, and what is refused."""

import pytest

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.pickle import finite
from ckptcheck.readers.pickle.finite import CYCLE
from ckptcheck.state.raw import MAX_RAW_DEPTH, Foreign


def nested(depth, inner):
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        (list(range(32)), 33),
        (list(range(400)), 101),
        ((0.5, True) * 200, 101),
        (["text"] * 400, 401),
        ([None, 1] * 200, 401),
        ({place: place for place in range(400)}, 401),
        ([[] for _ in range(400)], 401),
        ([{} for _ in range(400)], 401),
        ([[1, 2] for _ in range(100)], 301),
        ({"log": [{"a": 1, "b": 2}] * 10, "order": list(range(400))}, 133),
    ],
)  # fmt: skip
def test_values_are_counted_as_often_as_they_are_reached_and_numbers_of_long_lists_by_fours(value, counts, monkeypatch):
    monkeypatch.setattr(finite, "MAX_RAW_VALUES", counts)
    assert finite.finite(value, "here").value is value
    monkeypatch.setattr(finite, "MAX_RAW_VALUES", counts - 1)
    with pytest.raises(CheckpointError, match="here: unfolds to more than"):
        finite.finite(value, "here")


def test_a_list_that_many_others_hold_counts_each_time():
    order = list(range(100_000))
    with pytest.raises(CheckpointError, match="unfolds to more than"):
        finite.finite([order for _ in range(1000)], "here")


@pytest.mark.parametrize("inner", [[], {}, [1, 2], (), {"a": 1}])
def test_depth_is_bounded_whatever_lies_at_the_bottom(inner):
    deepest = nested(MAX_RAW_DEPTH - 1, inner)
    assert finite.finite(deepest, "here").value is deepest
    with pytest.raises(CheckpointError, match="deeper than"):
        finite.finite(nested(MAX_RAW_DEPTH, inner), "here")


def test_a_cycle_is_broken_where_it_closes():
    value = [1, []]
    value[1].append(value)
    found = finite.finite(value, "here").value
    assert isinstance(found[1][0], Foreign)
    assert found[1][0].class_name == CYCLE
