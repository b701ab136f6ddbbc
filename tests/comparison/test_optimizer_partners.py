"""Several optimizers: which of one side answers to which of the other."""

import pytest
import torch

from ckptcheck.state.checkpoint import NameSource, Naming
from tests.comparison.held import checkpoint, diff, optimizer, told

MODEL = {name: torch.zeros(2, 2) for name in ("G.w", "D.w", "E.w")}


def one(name, value=1.0):
    return optimizer([[name]], {name: {"exp_avg": torch.full((2, 2), value)}})


def side(names, labels=(), **parts):
    return checkpoint(MODEL, *(one(name, ord(name[0])) for name in names), labels=labels, **parts)


def places(found):
    return [(each.optimizer, each.left, each.right, each.label) for each in found.optimizers]


@pytest.mark.parametrize(("left", "right"), [
    (("G", "D"), ("D", "G")), ((), ()), (("G", ""), ("D", "G")), (("x", "x"), ("x", "x")), (("G", "D"), ("p", "q")),
])  # fmt: skip
def test_optimizers_in_another_order_are_paired_by_label_or_by_members(left, right):
    found = diff(side(["G.w", "D.w"], left), side(["D.w", "G.w"], right))
    assert found.same_content
    assert [(each.left, each.right) for each in found.optimizers] == [(0, 1), (1, 0)]


def test_labels_decide_against_members():
    found = diff(side(["G.w", "D.w"], ("G", "D")), side(["D.w", "G.w"], ("G", "D")))
    assert not found.same_content
    assert places(found) == [(0, 0, 0, "G"), (1, 1, 1, "D")]


@pytest.mark.parametrize("labels", [(("G", "D"), ("D",)), ((), ())])
def test_an_optimizer_that_the_right_lacks_is_told_with_its_rows_only(labels):
    found = diff(side(["G.w", "D.w"], labels[0]), side(["D.w"], labels[1]))
    assert told(found) == [("optimizer/lr", "removed"), ("optimizer/G.w/exp_avg", "removed")]
    assert {row.optimizer for row in found.rows} == {0}
    assert [(each.left, each.right, each.paired_by) for each in found.optimizers] == [(0, None, ""), (1, 0, "name")]


def test_an_optimizer_that_only_the_right_has_takes_a_number_of_its_own():
    found = diff(side(["D.w"], ("D",)), side(["G.w", "D.w"], ("G", "D")))
    assert {row.optimizer for row in found.rows} == {1}
    assert places(found) == [(0, 0, 1, "D"), (1, None, 0, "G")]


def test_what_labels_leave_over_on_both_sides_is_not_paired():
    found = diff(side(["G.w", "D.w"], ("G", "D")), side(["D.w", "E.w"], ("D", "E")))
    assert [(each.left, each.right) for each in found.optimizers] == [(0, None), (1, 0), (None, 1)]


def test_without_names_place_decides():
    bare = Naming(NameSource.NONE, certain=False, reason="")
    found = diff(side(["#0", "#1"], naming=bare), side(["#0", "#1"], naming=bare))
    assert found.same_content
    assert [(each.left, each.right) for each in found.optimizers] == [(0, 0), (1, 1)]


def test_most_members_in_common_come_first():
    left = checkpoint(MODEL, optimizer([["G.w", "D.w"]]), optimizer([["E.w"]]))
    right = checkpoint(MODEL, optimizer([["G.w", "E.w"]]), optimizer([["D.w", "G.w"]]))
    assert [(each.left, each.right) for each in diff(left, right).optimizers] == [(0, 1), (1, 0)]


def test_a_list_in_another_order_is_noted():
    found = diff(side(["G.w", "D.w"]), side(["D.w", "G.w"]))
    assert "optimizer 0 on the left is optimizer 1 on the right: paired by their members" in found.notes


def test_content_that_went_to_another_optimizer_is_told_with_it():
    value = torch.arange(4.0).view(2, 2)
    left = checkpoint(MODEL, optimizer([["G.w"]], {"G.w": {"exp_avg": value}}), one("D.w"), labels=("G", "D"))
    right = checkpoint(MODEL, one("G.w"), optimizer([["D.w"]], {"D.w": {"exp_avg": value}}), labels=("G", "D"))
    assert [row.other for row in diff(left, right).rows if row.other] == ["optimizer 1/D.w/exp_avg"]
