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
