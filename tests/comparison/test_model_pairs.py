"""Weights that one side ties, drops or keeps under another name."""

import torch

from tests.comparison.held import checkpoint, diff, optimizer, raw_tensor, told


def test_an_alias_that_a_format_drops_is_no_difference_but_a_note():
    shared = torch.arange(6.0)
    tied, dropped = checkpoint({"emb": shared}, ties={"emb": ["head"]}), checkpoint({"emb": shared})
    for found in (diff(tied, dropped), diff(dropped, tied)):
        assert found.same_content
        (note,) = found.notes
        assert "head = emb" in note


def test_a_format_that_keeps_the_alias_instead_of_the_first_name_holds_the_same():
    shared = torch.arange(6.0)
    assert diff(checkpoint({"emb": shared}, ties={"emb": ["head"]}), checkpoint({"head": shared})).same_content
    assert diff(checkpoint({"head": shared}), checkpoint({"emb": shared}, ties={"emb": ["head"]})).same_content


def test_a_tie_of_one_side_whose_contents_are_equal_is_a_note():
    shared = torch.arange(6.0)
    tied = checkpoint({"emb": shared}, ties={"emb": ["head"]})
    apart = checkpoint({"emb": shared, "head": shared.clone()})
    for found, side in ((diff(tied, apart), "left"), (diff(apart, tied), "right")):
        assert found.same_content
        assert found.notes == (f"tied on the {side} only: head = emb",)


def test_a_tie_of_one_side_whose_contents_differ_is_a_difference_under_the_alias():
    shared = torch.arange(6.0)
    tied = checkpoint({"emb": shared}, ties={"emb": ["head"]})
    apart = checkpoint({"emb": shared, "head": shared + 1})
    for found in (diff(tied, apart), diff(apart, tied)):
        assert told(found) == [("model/head", "changed")]


def test_tied_tensors_are_told_under_each_name_and_read_once():
    reads: list[int] = []
    left = checkpoint({"emb": raw_tensor(torch.zeros(50), reads=reads)}, ties={"emb": ["head"]})
    found = diff(left, checkpoint({"emb": torch.zeros(50)}, ties={"emb": ["head"]}))
    assert (found.same_content, found.summaries[0].tensors, reads) == (True, 2, [200])
    changed = diff(left, checkpoint({"emb": torch.ones(50)}, ties={"emb": ["head"]}))
    assert told(changed) == [("model/emb", "changed"), ("model/head", "changed")]


def test_optimizer_state_under_another_name_of_a_tied_parameter_is_found():
    tie = {"emb": ["head"]}
    state = {"exp_avg": torch.arange(6.0)}
    left = checkpoint({"emb": torch.ones(6)}, optimizer([["emb"]], {"emb": state}), ties=tie)
    right = checkpoint({"emb": torch.ones(6)}, optimizer([["head"]], {"head": state}), ties=tie)
    assert diff(left, right).same_content


def test_another_alias_of_a_tied_tensor_is_a_difference_for_a_strict_load_fails_on_it():
    shared = torch.arange(6.0)
    left, right = (checkpoint({"emb": shared}, ties={"emb": [alias]}) for alias in ("head", "out"))
    found = diff(left, right)
    assert not found.same_content
    names = {row.parameter for row in found.rows} | {row.other for row in found.rows}
    assert {"head", "out"} <= names


def test_thousands_of_names_of_one_tensor_are_paired():
    many = checkpoint({"emb": torch.arange(6.0)}, ties={"emb": [f"tied{place}" for place in range(5_000)]})
    assert diff(many, many).same_content
