"""Causes that the order of things decides: forward passes, updates and batches of a user's own making."""

from collections.abc import Callable

import pytest

from ckptcheck.finding import Verdict

BODY = """
from dataclasses import dataclass
@dataclass
class Batch:
    x: torch.Tensor
class Slotted:
    __slots__ = ("x",)
    def __init__(self, x): self.x = x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.0), nn.Linear(4, 1))
        self.factor = 1.0
    def forward(self, batch):
        x = batch.x if hasattr(batch, "x") else batch
        return self.layers(x * self.factor)
def build(ctx):
    torch.manual_seed(0)
    model, position = Net(), [0]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01)]
    def step(s):
        position[0] += 1
        optimizers[-1].zero_grad()
        x = torch.linspace(0, position[0], 24).reshape(6, 4).sin()
        loss = model({wrap}).square().mean()
        loss.backward()
        {clip}
        optimizers[-1].step()
        return loss
    def save(path):
        torch.save([model.state_dict(), optimizers[0].state_dict(), position[0]], path)
    resumed = []
    def load(path):
        saved = torch.load(path)
        model.load_state_dict(saved[0])
        optimizers[0].load_state_dict(saved[1])
        position[0] = saved[2]
        resumed.append(1)
        {fault}
    return ckptcheck.Run(model=model, optimizer=optimizers[0], step=step, save=save, load=load)
"""


def judged(target: Callable, check: Callable, wrap: str = "x", clip: str = "pass", fault: str = "pass"):
    body = BODY.replace("{wrap}", wrap).replace("{clip}", clip).replace("{fault}", fault)
    return check(target(body), steps=6, resume_at=[3])


@pytest.mark.parametrize("wrap", ["x", "Batch(x)", "Slotted(x)"])
def test_a_lost_position_is_seen_in_batches_of_any_class(wrap: str, target: Callable, check: Callable) -> None:
    assert judged(target, check, wrap=wrap).verdict is Verdict.PASS
    result = judged(target, check, wrap=wrap, fault="position[0] = 0")
    assert (result.cause.code, result.first_divergence.step) == ("CK604", 4)
    assert "step 4 saw the batch of step 1" in result.findings[0].message


def test_a_changed_forward_pass_is_not_blamed_on_the_statistics_that_it_moves(
    target: Callable, check: Callable
) -> None:
    result = judged(target, check, fault="model.factor = 2.0")
    assert (result.cause.code, result.first_divergence.stage) == ("CK606", "loss")


def test_a_changed_momentum_of_statistics_is_blamed_on_the_buffers(target: Callable, check: Callable) -> None:
    result = judged(target, check, fault="model.layers[1].momentum = 0.9")
    assert (result.cause.code, result.first_divergence.stage) == ("CK605", "buffers")


def test_gradients_that_part_after_an_equal_loss_are_sent_to_look_there(target: Callable, check: Callable) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3 if resumed else 1e9)"
    result = judged(target, check, clip=clip)
    assert (result.cause.code, result.first_divergence.stage) == ("CK606", "grad")
    assert "clipping" in result.findings[0].fix


def test_an_optimizer_that_is_built_anew_and_not_handed_over_is_told(target: Callable, check: Callable) -> None:
    result = judged(target, check, fault="optimizers.append(torch.optim.Adam(model.parameters(), lr=0.01))")
    assert result.cause.code == "CK612"
    assert "assign it to run.optimizer" in result.findings[0].fix


def test_normalisation_weights_that_were_not_loaded_are_not_called_rounded(target: Callable, check: Callable) -> None:
    fault = "model.layers[1].weight.data.fill_(1); model.layers[1].bias.data.fill_(0)"
    result = judged(target, check, fault=fault)
    assert result.cause.code == "CK309"
    assert "CK504" not in {one.code for one in result.findings}
