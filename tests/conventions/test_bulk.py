"""Plain values by the ten thousand: one entry, with a digest that tells every difference."""

import hashlib
import tracemalloc

import pytest

from ckptcheck.conventions.bulk import MAX_LEAVES, Bulk, digested, gathered, is_bulk
from ckptcheck.conventions.entries import entries
from ckptcheck.conventions.plain import sort_root
from ckptcheck.state.raw import Foreign, Named, RawTensor
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.tree import canonical

MANY = MAX_LEAVES + 1
TENSOR = RawTensor(TensorSpec("float32", (2,)), lambda start, buffer: None)


def digest_of(value):
    return digested(Bulk(value, 0))[0].value


@pytest.mark.parametrize(
    "value",
    [
        [[] for _ in range(MANY)],
        [{} for _ in range(MANY)],
        list(range(MANY)),
        {place: place for place in range(MANY)},
        {"a": {"b": [{"c": place} for place in range(MANY)]}}["a"]["b"],
        Foreign("collections.Counter", state={str(place): place for place in range(MANY)}),
        [Named("torch.float32")] * MANY,
    ],
    ids=["lists", "dicts", "numbers", "mapping", "log", "object", "names"],
)  # fmt: skip
def test_many_plain_values_are_one_entry(value):
    found = entries({"log": value, "step": 3})
    assert list(found) == ["log", "step"]
    assert found["step"].value == 3
    assert found["log"].spec is None
    assert found["log"].digest is not None
    assert len(found["log"].value) < 1000


def test_the_most_that_is_listed_is_listed():
    assert len(entries({str(place): place for place in range(MAX_LEAVES)})) == MAX_LEAVES
    assert len(entries([[place] for place in range(MAX_LEAVES)])) == MAX_LEAVES


def test_the_innermost_tree_is_taken_and_counts_as_one_of_what_it_stands_in():
    log = [[place] for place in range(MANY)]
    tree = {"state": {"log": log, "best": 1.5}, "epoch": 2}
    stands = gathered(tree)
    assert isinstance(stands["state"]["log"], Bulk)
    assert (stands["state"]["best"], stands["epoch"]) == (1.5, 2)
    assert tree["state"]["log"] is log


def test_values_among_tensors_are_listed():
    tree = {f"p{place}": {"step": place, "w": TENSOR} for place in range(MANY)}
    assert gathered(tree) is tree
    assert len(entries(tree)) == 2 * MANY


def test_the_digest_of_a_long_list_of_plain_values_is_that_of_its_canonical_text():
    for value in (
        list(range(9000)),
        tuple(map(str, range(9000))),
        [1.5, float("nan"), -0.0, 1 << 4000, None, b"x"] * 900,
    ):
        assert digest_of(value) == hashlib.blake2b(canonical(value).encode(), digest_size=16).digest()


def test_the_digest_of_a_tree_is_that_of_its_canonical_text_with_lists_for_tuples():
    tree = {"b": [[place, {"x": 0.5, "a": []}] for place in range(5000)], "a": {2: "é", 10: None}, (1, 2): b"\0"}
    assert digest_of(tree) == hashlib.blake2b(canonical(tree).encode(), digest_size=16).digest()
    assert digest_of([(place, (place,)) for place in range(50)]) == digest_of([[place, [place]] for place in range(50)])
    assert digest_of(dict(reversed(tree.items()))) == digest_of(tree)


@pytest.mark.parametrize("changed", [[0, 0.0], [0, -1], [0, True], [0, "0"], [0, None], [0, []], [0], [0, 0, 0]])
def test_any_other_value_anywhere_is_another_digest_and_another_text(changed):
    tree = [[place, 0] for place in range(MANY)]
    other = [*tree[:-1], [tree[-1][0], *changed[1:]]]
    one, two = entries({"log": tree})["log"], entries({"log": other})["log"]
    assert one.digest != two.digest
    assert one.value != two.value


def test_hashing_a_long_list_keeps_no_more_than_pieces_of_its_text():
    value = list(range(300_000))
    tracemalloc.start()
    digested(Bulk(value, len(value)))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 2e6


def test_a_root_of_many_values_is_one_unrecognised_value():
    for root in ([[] for _ in range(MANY)], {place: place for place in range(MANY)}):
        parts = sort_root(root)
        assert list(parts.extra) == parts.unrecognised == ["root"]


def test_a_part_of_many_values_stands_where_its_key_says():
    many = {str(place): [place] for place in range(MANY)}
    parts = sort_root({"sampler": many, "scheduler": many, "log": many, "epoch": 3, "rng_state": many})
    assert (list(parts.data), list(parts.schedulers)) == (["sampler"], ["scheduler"])
    assert (list(parts.extra), parts.progress) == (["log"], {"epoch": 3})
    assert parts.generators == {0: [many]}


def test_an_optimizer_of_many_groups_without_state_stays_an_optimizer():
    groups = [{"lr": 0.1, "momentum": 0.0, "params": [place]} for place in range(MANY)]
    optimizer = {"state": {}, "param_groups": groups}
    assert is_bulk(groups)
    assert sort_root(optimizer).optimizers == {"optimizer": optimizer}
    assert sort_root({"optimizer": optimizer, "epoch": 1}).optimizers == {"optimizer": optimizer}


def test_more_values_beside_tensors_than_are_listed_are_refused(monkeypatch):
    from ckptcheck.conventions import entries as module
    from ckptcheck.errors import CheckpointError

    monkeypatch.setattr(module, "MAX_LISTED", 10)
    with pytest.raises(CheckpointError, match="more than 10 plain values"):
        entries({"w": TENSOR, **{str(place): place for place in range(11)}}, "extra")
    assert len(entries({"w": TENSOR, **{str(place): place for place in range(10)}})) == 11
