"""A target's own optimizers, probed on copies, and its way of freezing, tried over real steps."""

from pathlib import Path

import pytest
import torch

import ckptcheck
from ckptcheck.errors import TargetError
from ckptcheck.experiment.target import check_run, load_factory
from ckptcheck.finding import Verdict
from ckptcheck.lab.copies import copied
from ckptcheck.lab.job import ProbeJob
from ckptcheck.lab.targets import rows_of_target

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


class _Silent:
    def at(self, phase, step=None):
        pass


def _built(name, folder):
    context = ckptcheck.Context(torch.device("cpu"), 0, folder)
    return check_run(name, load_factory(name)(context))


def _values(run):
    modules = run.model.values() if isinstance(run.model, dict) else [run.model]
    return [one.detach().clone() for module in modules for one in module.state_dict().values()]


@pytest.mark.parametrize(
    "name", ["two_models.py", "tied_embeddings.py", "warmup_linear.py", "accumulation.py", "ema.py"]
)
def test_the_training_goes_on_as_if_it_had_not_been_probed(name, tmp_path):
    target = str(FIXTURES / name)
    job = ProbeJob("probe", (target,), tmp_path / "out", tmp_path)
    plain = _built(target, tmp_path)
    for step in range(1, 6):
        plain.step(step)
    probed = _built(target, tmp_path)
    assert list(rows_of_target(probed, job, _Silent()))
    for one, other in zip(_values(probed), _values(plain), strict=True):
        assert torch.equal(one, other)


def test_a_copy_is_stepped_and_what_it_was_copied_from_is_not():
    layer = torch.nn.Linear(3, 2)
    real = torch.optim.AdamW(layer.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(real, 1)  # it wraps the real one's step
    layer(torch.ones(1, 3)).sum().backward()
    real.step()
    before = [one.detach().clone() for one in layer.parameters()], real.state_dict()["state"][0]["step"].item()
    copy, parameters = copied(real)
    for one in parameters.values():
        one.grad = torch.ones_like(one)
    copy.step()
    assert all(torch.equal(one, other) for one, other in zip(before[0], layer.parameters(), strict=True))
    assert real.state[layer.weight]["step"].item() == before[1] == 1
    assert copy.state[parameters[id(layer.weight)]]["step"].item() == 2
    assert not torch.equal(parameters[id(layer.weight)], layer.weight)


def test_each_group_is_probed_with_its_own_settings(probe):
    result = probe(str(FIXTURES / "char_gpt.py"))
    assert result.verdict is Verdict.PASS
    rows = [one for one in result.parts["contract"] if (one["scenario"], one["grad"]) == ("history", "zero")]
    assert [one["facts"]["group"] for one in rows] == [0, 1]
    assert len({one["hyperparameters"]["weight_decay"] for one in rows}) == 2


def test_a_target_without_an_optimizer_is_no_pass(probe):
    result = probe(str(FIXTURES / "hand_written.py"))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert [one.code for one in result.not_judged] == ["CK701"]


def test_an_argument_for_a_target_is_refused(probe):
    with pytest.raises(TargetError, match="--arg is for an optimizer"):
        probe(str(FIXTURES / "ema.py"), arguments={"lr": 1})


FREEZING = {
    "frozen_backbone.py": None,
    "frozen_backbone_faults.py:build_frozen_in_the_optimizer": None,
    "frozen_backbone_faults.py:build_zero_gradients_with_momentum": (
        "its gradient is zero and not none", "momentum_buffer moves it", "holds with the gradient none",
    ),
    "frozen_backbone_faults.py:build_zero_gradients_with_decay": (
        "weight_decay 0.1 moves it", "with the gradient none or without weight_decay",
    ),
    "frozen_backbone_faults.py:build_stale_gradient": ("its gradient is left from before", "with the gradient none"),
}  # fmt: skip
KEEPS = {"requires_grad=False, gradients none", "out of the param groups, its state dropped"}


@pytest.mark.parametrize("name", FREEZING, ids=lambda name: name.rpartition(":")[2])
def test_a_way_of_freezing_is_tried_over_real_steps(probe, name):
    result = probe(str(FIXTURES / name), freeze={"backbone.*": "hold"})
    ways = {one["name"]: one for one in result.parts["freezing"]}
    if FREEZING[name] is None:
        assert result.verdict is Verdict.PASS
        assert [(one["name"], one["keeps"], one["steps"]) for one in ways.values()] == [("present", True, 20)]
        return
    assert result.verdict is Verdict.FAIL
    assert (ways["present"]["keeps"], ways["present"]["broken_at"]) == (False, 1)
    for words in FREEZING[name]:
        assert words in ways["present"]["broken_by"]
    (finding,) = [one for one in result.findings if one.code == "CK702"]
    assert finding.where.step == 1
    assert finding.where.parameter == "backbone.0.weight"
    assert finding.fix == "freeze by: requires_grad=False, gradients none"
    kept = {key for key, one in ways.items() if one["keeps"]}
    # Decay moves nothing at learning rate 0, and there is no momentum to move.
    assert kept == KEEPS | ({"learning rate 0"} if "decay" in name else set())


CONTRACTS = {
    "no-grad": ("CK403", "backward brings it a gradient", {"requires_grad=False, gradients none"}),
    "no-update": ("CK702", "backward brings it a gradient, and the update takes it", {"learning rate 0"}),
    "hold": ("CK702", "with requires_grad=False", {"out of the param groups, its state dropped"}),
    "removed": ("CK702", "it is in a param group", {"out of the param groups, its state dropped"}),
    "reset": ("CK702", "keeps step, exp_avg, exp_avg_sq for it", {"out of the param groups, its state dropped"}),
}


@pytest.mark.parametrize("contract", CONTRACTS)
def test_each_contract_is_broken_by_plain_training_and_kept_by_some_way(probe, tmp_path, contract):
    path = tmp_path / "plain.py"
    path.write_text(
        "import torch, ckptcheck\n"
        "def build(ctx):\n"
        "    torch.manual_seed(0)\n"
        "    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))\n"
        "    optimizer = torch.optim.Adam(net.parameters(), 0.1)\n"
        "    def step(s):\n"
        "        optimizer.zero_grad()\n"
        "        loss = net(torch.full((2, 3), float(s))).square().mean()\n"
        "        loss.backward()\n"
        "        optimizer.step()\n"
        "        return loss\n"
        "    return ckptcheck.Run(model=net, optimizer=optimizer, step=step)\n"
    )
    code, words, keeping = CONTRACTS[contract]
    result = probe(str(path), freeze={"0.*": contract}, steps=4)
    assert [one.code for one in result.findings] == [code]
    assert words in result.findings[0].message
    kept = {one["name"] for one in result.parts["freezing"] if one["keeps"]}
    assert keeping <= kept
    assert ("learning rate 0" in kept) == (contract == "no-update")


def test_a_pattern_that_matches_nothing_is_refused(probe):
    with pytest.raises(TargetError, match=r"--freeze backbon\.\*=hold matches no parameter; they are backbone\.0"):
        probe(str(FIXTURES / "frozen_backbone.py"), freeze={"backbon.*": "hold"})


def test_a_parameter_that_something_else_writes_is_told_so(probe, tmp_path):
    path = tmp_path / "written.py"
    path.write_text(
        "import torch, ckptcheck\n"
        "def build(ctx):\n"
        "    net = torch.nn.Linear(3, 2)\n"
        "    net.bias.requires_grad_(False)\n"
        "    optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        "    def step(s):\n"
        "        optimizer.zero_grad()\n"
        "        net(torch.ones(2, 3)).square().mean().backward()\n"
        "        optimizer.step()\n"
        "        if s == 3: net.bias.data.add_(1)\n"
        "    return ckptcheck.Run(model=net, optimizer=optimizer, step=step)\n"
    )
    result = probe(str(path), freeze={"bias": "hold"}, steps=5)
    present = result.parts["freezing"][0]
    assert (present["broken_at"], present["parameter"]) == (3, "bias")
    assert "something else than an update" in present["broken_by"]
    assert not any(one["keeps"] for one in result.parts["freezing"])
