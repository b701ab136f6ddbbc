"""Trainings whose optimizer asks for more than one call of `step`: a closure, a partner, sparse gradients."""

from typing import Any

import torch
from torch import Tensor, nn

import ckptcheck
from tests.catalogue.making import LR
from tests.catalogue.spec import Spec
from tests.catalogue.training import Checkpoint, Training


def make_training(spec: Spec, ctx: ckptcheck.Context) -> Training:
    """The training of a spec."""
    kinds = {"LBFGS": WithClosure, "Muon": WithPartner, "SparseAdam": WithSparseGradients}
    return kinds.get(spec.optimizer, Training)(spec, ctx)


class WithClosure(Training):
    """LBFGS: the update evaluates the loss of its batch several times."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(self.model.parameters(), lr=0.1, max_iter=3, history_size=3)

    def step(self, s: int) -> float:
        features, labels = self.augmented(*self.data.next())

        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss = self.loss(features, labels)
            loss.backward()
            return loss

        loss = self.optimizer.step(closure)
        if self.schedule is not None:
            self.schedule.step()
        self.loop.completed = s
        return float(loss)


class WithPartner(Training):
    """Muon for matrices, AdamW for the rest, each with its own state."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        matrices = [one for one in self.model.parameters() if one.ndim == 2]
        rest = [one for one in self.model.parameters() if one.ndim != 2]
        self.partner = torch.optim.AdamW(rest, lr=LR)
        return torch.optim.Muon(matrices, lr=LR)

    def update(self, loss: float) -> None:
        self.partner.step()
        self.partner.zero_grad()
        super().update(loss)

    def collect(self) -> Checkpoint:
        return {**super().collect(), "partner": self.partner.state_dict()}

    def restore_optimizer(self, state: Any) -> None:
        super().restore_optimizer(state)
        self.partner.load_state_dict(self.read["partner"])

    def run(self) -> ckptcheck.Run:
        run = super().run()
        run.optimizer = [self.optimizer, self.partner]
        return run


class Looked(nn.Module):
    """An embedding with sparse gradients, looked up by the greatest feature, and a fixed output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(6, 5, sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        """Scores, (batch, 5), of float32 features, (batch, 6)."""
        return self.tokens(x.argmax(dim=-1))


class WithSparseGradients(Training):
    """SparseAdam: gradients and updates of the looked-up rows only."""

    def make_model(self) -> nn.Module:
        return Looked()

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(list(self.model.parameters()), lr=LR)

    def update(self, loss: float) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step()
