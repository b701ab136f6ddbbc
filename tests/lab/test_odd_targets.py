"""Targets that do something odd to what is frozen: the step, and what did it, are told rightly."""

import pytest

from ckptcheck.finding import Verdict

FRAME = """
import torch, ckptcheck
from torch import nn

def build(ctx):
    torch.manual_seed(0)
    net = nn.ModuleDict({"backbone": nn.Linear(3, 4), "head": nn.Linear(4, 2)})
    net["backbone"].requires_grad_(False)
    optimizer = torch.optim.AdamW([{"params": net["backbone"].parameters()}, {"params": net["head"].parameters()}], 0.1)

    def step(s):
        own = net["backbone"]
        if s == 3:
            BEFORE
        optimizer.zero_grad()
        net["head"](own(torch.full((2, 3), 1.0 * s))).square().mean().backward()
        optimizer.step()

    FIRST
    return ckptcheck.Run(model=net, optimizer=optimizer, step=step)
"""
TRAINED = """net["backbone"].requires_grad_(True); step(0); net["backbone"].requires_grad_(False)"""
CASES = {
    "it is thawed": ("own.requires_grad_(True)", "pass", "hold", 3, "the step itself sets requires_grad to True"),
    "another stands in its place": (
        "own.weight = nn.Parameter(own.weight + 1, requires_grad=False)", "pass", "hold", 3,
        "another parameter with other values stands under its name",
    ),
    "an equal one stands in its place": (
        "own.weight = nn.Parameter(own.weight.clone(), requires_grad=False)", "pass", "no-update", None, "",
    ),
    "its state is dropped": (
        "optimizer.state.pop(own.weight)", TRAINED, "hold", 3,
        "something else than an update of the optimizer changes its state",
    ),
    "its state is left behind": (
        "pass", f"{TRAINED}; del optimizer.param_groups[0]", "reset", 1, "keeps step, exp_avg, exp_avg_sq for it",
    ),
    "its state went with it": (
        "pass", f"{TRAINED}; del optimizer.param_groups[0]; [optimizer.state.pop(p) for p in [*optimizer.state][:2]]",
        "reset", None, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_a_step_does_to_what_is_frozen_is_told(probe, tmp_path, case):
    before, first, contract, broken_at, words = CASES[case]
    path = tmp_path / "odd.py"
    path.write_text(FRAME.replace("BEFORE", before).replace("FIRST", first))
    result = probe(str(path), freeze={"backbone.*": contract}, steps=5)
    present = result.parts["freezing"][0]
    assert (present["keeps"], present["broken_at"]) == (broken_at is None, broken_at)
    assert words in present["broken_by"]
    assert result.verdict is (Verdict.PASS if broken_at is None else Verdict.FAIL)


SPARSE = """
import torch, ckptcheck

def build(ctx):
    torch.manual_seed(0)
    table = torch.nn.Embedding(8, 4, sparse=True)
    net = torch.nn.ModuleDict({"table": table})
    optimizer = torch.optim.SparseAdam(list(table.parameters()), 0.1)

    def step(s):
        optimizer.zero_grad()
        table(torch.tensor([s % 8, 1])).square().sum().backward()
        optimizer.step()

    return ckptcheck.Run(model=net, optimizer=optimizer, step=step)
"""
TIED = """
import torch, ckptcheck

def build(ctx):
    torch.manual_seed(0)
    net = torch.nn.ModuleDict({"table": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    net["head"].weight = net["table"].weight
    net["table"].weight.requires_grad_(False)
    spare = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([*net.parameters(), spare], 0.1)

    def step(s):
        optimizer.zero_grad()
        spare.square().sum().backward()
        optimizer.step()

    return ckptcheck.Run(model=net, optimizer=optimizer, step=step)
"""


def test_sparse_gradients_of_a_target_stay_sparse(probe, tmp_path):
    path = tmp_path / "sparse.py"
    path.write_text(SPARSE)
    result = probe(str(path), steps=5)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


def test_a_tied_weight_may_be_named_by_any_of_its_names(probe, tmp_path):
    path = tmp_path / "tied.py"
    path.write_text(TIED)
    for pattern in ("table.weight", "head.weight"):
        result = probe(str(path), freeze={pattern: "hold"}, steps=2)
        assert [(one["pattern"], one["keeps"]) for one in result.parts["freezing"]] == [(pattern, True)]
