"""Whatever two traces hold, they are compared as by the slow and plain way, in whatever order they list it."""

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptcheck.comparison import traces
from ckptcheck.comparison.traces import compare_traces
from ckptcheck.trace.items import NONZERO, ZERO, Item
from ckptcheck.trace.measuring import plain
from tests.comparison.slow_traces import slowly
from tests.comparison.written import gradient, groups, steps, tensor, write

NAMES = ("a", "b", "c.weight")
ITEMS = [
    *(Item(kind, name) for kind in ("param", "buffer", "ema") for name in NAMES),
    *(Item("state", name, key, optimizer) for name in NAMES for key in ("m", "step") for optimizer in (0, 1)),
    *(Item("hyper", "", key, optimizer, group) for key in ("lr", "fused") for optimizer in (0, 1) for group in (0, 1)),
    *(Item("inputs", "net", "0", part=part) for part in (0, 1, 10)),
    Item("rng", "torch"), Item("rng", "numpy"), Item("loss", "backward"), Item("schedule", "last_epoch"),
]  # fmt: skip
GRADS = [Item("grad", name) for name in (*NAMES, "outside")]
CONTENTS = st.one_of(
    st.builds(
        tensor, st.sampled_from([0, 1, f"{'x' * 14}1", f"{'x' * 14}2"])
    ),  # the last two differ in their last byte
    st.builds(tensor, st.integers(0, 2), st.just(3)),
    st.builds(plain, st.sampled_from([0, 1, 0.5, "text"])),
)
GRADIENTS = st.one_of(st.just(gradient(None)), st.builds(gradient, st.integers(0, 1), st.sampled_from([ZERO, NONZERO])))
GROUPS = st.sampled_from([
    {}, groups([["a", "b"], ["c.weight"]]), groups([["c.weight"], ["a", "b"]]), groups([["a"], ["b", "c.weight"]]),
    groups([["a", "b", "c.weight"]]), groups([["a"], ["b"]], [["c.weight"], []]),
    groups([["b"], ["a"]], [["c.weight"]]),
])  # fmt: skip
STEPS = st.builds(
    lambda *parts: {item: sample for part in parts for item, sample in part.items()},
    st.dictionaries(st.sampled_from(ITEMS), CONTENTS, max_size=14),
    st.dictionaries(st.sampled_from(GRADS), GRADIENTS, max_size=4),
    GROUPS,
)


@st.composite
def two_sides(draw):
    """Steps of two traces: each of the right side is the left's own, listed anew, changed in places, or another one."""
    left = draw(st.lists(STEPS, min_size=1, max_size=5))
    left = [draw(st.sampled_from(left)) for _ in left]  # many steps of a training list the same
    right = []
    for one in left:
        change = draw(st.dictionaries(st.sampled_from(ITEMS + GRADS), st.one_of(CONTENTS, GRADIENTS), max_size=3))
        how = draw(st.sampled_from(["same", "listed anew", "changed", "another"]))
        listed = dict(draw(st.permutations(list(one.items())))) if how != "same" else one
        right.append({"changed": {**listed, **change}, "another": draw(STEPS)}.get(how, listed))
    return left, right


numbers = itertools.count()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(two_sides(), st.integers(0, 2), st.integers(0, 2))
def test_differences_counts_and_order_are_those_of_the_slow_way(tmp_path, monkeypatch, sides, whole_steps, kept):
    monkeypatch.setattr(traces, "WHOLE_STEPS", whole_steps)
    monkeypatch.setattr(traces, "KEPT_A_KIND", kept)
    monkeypatch.setattr(traces, "_reseeded", lambda *_: set())
    pair = [write(tmp_path / f"{next(numbers)}.trace", steps(*side)) for side in sides]
    fast, slow = compare_traces(*pair), slowly(*pair, whole_steps, kept)
    for one in pair:
        one.close()
    found = [(one.step, one.item, one.left and one.left.digest, one.right and one.right.digest)
             for one in fast.differences]  # fmt: skip
    assert found == slow.differences
    assert fast.left_out == slow.left_out
    told = fast.compared
    assert (told.parameters, told.state_tensors, told.bytes) == (len(slow.parameters), len(slow.state), slow.nbytes)
    assert [one.left.spec for one in fast.differences if one.left] == [
        sides[0][one.step - 1][one.item].spec for one in fast.differences if one.left
    ]
