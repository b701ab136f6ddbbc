"""Models, optimizers and schedules of the catalogue, by name."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler as schedules

from tests.catalogue.spec import Spec

WIDTH: Final = 6
CLASSES: Final = 5
LR: Final = 0.02


class Mlp(nn.Module):
    """Two layers of one shape, with dropout and a LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 8)
        self.middle = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores, (batch, CLASSES), of float32 features, (batch, WIDTH)."""
        x = torch.tanh(self.first(x))
        x = x + self.drop(torch.tanh(self.middle(x)))
        x = x + self.drop(torch.tanh(self.second(x)))
        return self.head(self.norm(x))


class Norm(nn.Module):
    """BatchNorm behind layers without a bias, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 8, bias=False)
        self.statistics = nn.BatchNorm1d(8)
        self.middle = nn.Linear(8, 8, bias=False)
        self.more = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores, (batch, CLASSES), of float32 features, (batch, WIDTH)."""
        x = torch.tanh(self.statistics(self.first(x)))
        x = self.drop(torch.tanh(self.more(self.middle(x))))
        return self.head(x)


class Tied(nn.Module):
    """Features weigh the rows of an embedding, which is the output layer's weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, CLASSES)
        self.tokens = nn.Embedding(CLASSES, 8)
        self.middle = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(8, CLASSES, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        """Scores, (batch, CLASSES), of float32 features, (batch, WIDTH)."""
        x = torch.softmax(self.first(x), dim=-1).to(self.tokens.weight.dtype) @ self.tokens.weight
        return self.head(self.drop(torch.tanh(self.middle(x))))


MODEL_CLASSES: Final[dict[str, type[nn.Module]]] = {"mlp": Mlp, "norm": Norm, "tied": Tied}

OPTIMIZER_CHOICES: Final[dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]]] = {
    "SGD": (torch.optim.SGD, {}),
    "SGD-momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "SGD-nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {}),
    "Adam-amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {}),
    "NAdam": (torch.optim.NAdam, {}),
    "RAdam": (torch.optim.RAdam, {}),
    "Adamax": (torch.optim.Adamax, {}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "Adadelta": (torch.optim.Adadelta, {}),
    "RMSprop": (torch.optim.RMSprop, {}),
    "RMSprop-momentum": (torch.optim.RMSprop, {"momentum": 0.9}),
    "Rprop": (torch.optim.Rprop, {}),
    "ASGD": (torch.optim.ASGD, {"t0": 3.0}),
    "Adafactor": (torch.optim.Adafactor, {}),
}

WITHOUT_DECAY: Final = frozenset({"Rprop"})
WITHOUT_FOREACH: Final = frozenset({"Adafactor"})
FUSED: Final = frozenset({"SGD", "SGD-momentum", "SGD-nesterov", "Adam", "Adam-amsgrad", "AdamW", "Adagrad"})

SCHEDULE_CHOICES: Final[dict[str, Callable[[torch.optim.Optimizer], Any]]] = {
    "constant": lambda one: schedules.ConstantLR(one, factor=0.5, total_iters=7),
    "cosine": lambda one: schedules.CosineAnnealingLR(one, T_max=20),
    "step": lambda one: schedules.StepLR(one, step_size=3, gamma=0.7),
    "multistep": lambda one: schedules.MultiStepLR(one, milestones=[2, 7], gamma=0.5),
    "exponential": lambda one: schedules.ExponentialLR(one, gamma=0.95),
    "linear": lambda one: schedules.LinearLR(one, start_factor=0.1, total_iters=8),
    "warm-cosine": lambda one: schedules.SequentialLR(
        one,
        [schedules.LinearLR(one, start_factor=0.1, total_iters=3), schedules.CosineAnnealingLR(one, T_max=12)],
        milestones=[3],
    ),
    "one-cycle": lambda one: schedules.OneCycleLR(one, max_lr=0.05, total_steps=40, cycle_momentum=False),
    "cyclic": lambda one: schedules.CyclicLR(one, base_lr=0.005, max_lr=0.02, step_size_up=4, cycle_momentum=False),
    "polynomial": lambda one: schedules.PolynomialLR(one, total_iters=20),
    "lambda": lambda one: schedules.LambdaLR(one, lambda s: 1 / (1 + 0.1 * s)),
    "restarts": lambda one: schedules.CosineAnnealingWarmRestarts(one, T_0=4),
    "plateau": lambda one: schedules.ReduceLROnPlateau(one, patience=1, factor=0.5),
    "multiplicative": lambda one: schedules.MultiplicativeLR(one, lambda s: 0.97),
}


def make_model(spec: Spec) -> nn.Module:
    """The model, with its first layer frozen where the spec says so."""
    model = MODEL_CLASSES[spec.model]()
    if spec.freeze != "none":
        for one in model.get_submodule("first").parameters():
            one.requires_grad_(False)
    return model


def make_groups(spec: Spec, model: nn.Module) -> list[dict[str, Any]]:
    """Named parameters in a decay and a no-decay group, or in one; without frozen ones where these are removed."""
    named = [(name, one) for name, one in model.named_parameters() if spec.freeze != "removed" or one.requires_grad]
    if spec.groups == 1:
        return [{"params": named}]
    decayed = [pair for pair in named if pair[1].ndim > 1]
    rest = [pair for pair in named if pair[1].ndim <= 1]
    decay = {} if spec.optimizer in WITHOUT_DECAY else {"weight_decay": 0.05}
    plain = {} if spec.optimizer in WITHOUT_DECAY else {"weight_decay": 0.0}
    return [{"params": decayed, **decay}, {"params": rest, "lr": LR / 2, **plain}]


def make_optimizer(spec: Spec, model: nn.Module, groups: list[dict[str, Any]] | None = None) -> torch.optim.Optimizer:
    """The optimizer over groups, those of `make_groups` unless others are given."""
    kind, options = OPTIMIZER_CHOICES[spec.optimizer]
    if spec.foreach == "fused":
        options = {**options, "fused": True}
    elif spec.foreach is not None:
        options = {**options, "foreach": spec.foreach}
    return kind(groups or make_groups(spec, model), lr=LR, **options)


def make_schedule(spec: Spec, optimizer: torch.optim.Optimizer) -> Any:
    """The schedule, or None."""
    return SCHEDULE_CHOICES[spec.schedule](optimizer) if spec.schedule != "none" else None
