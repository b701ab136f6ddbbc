"""Sections of a kept state that are put back into a live run, and nothing beside them."""

import torch

from ckptcheck.experiment.overlay import keep, put_back
from ckptcheck.experiment.run import Run
from ckptcheck.experiment.sections import Overlay, Section


def test_what_is_trained_is_put_back_only_where_it_is_chosen(tmp_path):
    def run(trained):
        model = torch.nn.Linear(2, 2)
        model.bias.requires_grad_(trained)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return Run(model=model, optimizer=optimizer, step=lambda s: None)

    kept = run(trained=True)
    keep(tmp_path / "kept", kept, 1)
    live = run(trained=False)
    put_back(tmp_path / "kept", Overlay((Section("parameters"),)), live)
    assert torch.equal(live.model.weight, kept.model.weight)
    assert not live.model.bias.requires_grad
    with torch.no_grad():
        live.model.weight.zero_()
    put_back(tmp_path / "kept", Overlay((Section("requires_grad"),)), live)
    assert live.model.bias.requires_grad
    assert not live.model.weight.any()


def _two(tmp_path, grouped, rate):
    """A live run whose groups are these, beside one that was kept with both parameters in one group."""

    def run(groups, rate, moment):
        model = torch.nn.Linear(2, 2)
        tensors = [[getattr(model, name) for name in names] for names in groups]
        optimizer = torch.optim.SGD([{"params": one} for one in tensors], torch.tensor(rate), momentum=0.9)
        for tensor in model.parameters():
            optimizer.state[tensor]["momentum_buffer"] = torch.full_like(tensor, moment)
        return Run(model=model, optimizer=optimizer, step=lambda s: None)

    keep(tmp_path / "kept", run([["weight", "bias"]], 0.5, 7.0), 1)
    return run(grouped, rate, 1.0)


def test_state_is_put_back_without_the_groups_that_were_not_chosen(tmp_path):
    live = _two(tmp_path, [["bias"], ["weight"]], 0.25)
    put_back(tmp_path / "kept", Overlay((Section("state"),)), live)
    ids = [[id(one) for one in group["params"]] for group in live.optimizer.param_groups]
    assert ids == [[id(live.model.bias)], [id(live.model.weight)]]
    assert all(bool((live.optimizer.state[one]["momentum_buffer"] == 7).all()) for one in live.model.parameters())
    put_back(tmp_path / "kept", Overlay((Section("groups"),)), live)
    (group,) = live.optimizer.param_groups
    assert [id(one) for one in group["params"]] == [id(live.model.weight), id(live.model.bias)]


def test_a_rate_that_is_a_tensor_is_put_into_the_tensor_that_others_may_hold(tmp_path):
    live = _two(tmp_path, [["weight", "bias"]], 0.25)
    held = live.optimizer.param_groups[0]["lr"]
    put_back(tmp_path / "kept", Overlay((Section("hyperparameters"),)), live)
    assert live.optimizer.param_groups[0]["lr"] is held
    assert held.item() == 0.5
    live.optimizer.param_groups[0]["lr"] = torch.zeros(2)  # of another shape it is replaced
    put_back(tmp_path / "kept", Overlay((Section("hyperparameters"),)), live)
    assert live.optimizer.param_groups[0]["lr"].item() == 0.5
