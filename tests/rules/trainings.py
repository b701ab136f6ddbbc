"""A small real training whose every part and every line of checkpoint code can be replaced."""

import copy
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ckptcheck import Context, Run

WIDTH = 8


class Net(nn.Module):
    """Three square layers of one shape, dropout, and a head."""

    def __init__(self, dropout: float = 0.0, norm: bool = False, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, dtype=dtype) for _ in range(3))
        self.drop = nn.Dropout(dropout)
        if norm:
            self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 2, dtype=dtype)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = layer(inputs).tanh()
        if hasattr(self, "norm"):
            inputs = self.norm(inputs)
        return self.head(self.drop(inputs))


class Tied(nn.Module):
    """An embedding whose weight is the head's too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH, bias=False)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(self.inner(self.embed(inputs)).tanh())[:, :2]


class Batches:
    """An endless stream with a position: batch n is the same in every process."""

    def __init__(self) -> None:
        self.position = 0

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(500 + self.position)
        self.position += 1
        return torch.randn(6, WIDTH, generator=generator), torch.randn(6, 2, generator=generator)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class Counter:
    """A number of one's own in the checkpoint."""

    def __init__(self, value: float = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class Ema:
    """Averages of the weights, and how many went in."""

    def __init__(self, model: nn.Module) -> None:
        self.updates = 0
        self.averages = {name: one.detach().clone() for name, one in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        decay = min(0.9, (1 + self.updates) / (10 + self.updates))
        for name, one in model.named_parameters():
            self.averages[name].lerp_(one, 1 - decay)

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "averages": self.averages}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        for name, average in state["averages"].items():
            self.averages[name].copy_(average)


def adam(model: nn.Module, lr: float = 0.01, **more: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr, **more)


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def decayed(model: nn.Module, reverse: bool = False) -> torch.optim.Optimizer:
    """Weights in a group with decay, biases in one without."""
    matrices = [one for one in model.parameters() if one.ndim > 1]
    vectors = [one for one in model.parameters() if one.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups[::-1] if reverse else groups, lr=0.01)


class Training:
    """Everything is saved and restored, generators last. `lose` names parts of the checkpoint that `load` forgets."""

    lose: Iterable[str] = ()

    def __init__(self, ctx: Context) -> None:
        random.seed(ctx.seed)
        np.random.seed(ctx.seed)
        torch.manual_seed(ctx.seed)
        self.model = self.make_model()
        self.data = Batches()
        self.optimizers = self.make_optimizers()
        self.schedulers = self.make_schedulers()
        self.scaler: Any = None
        self.ema: Any = None
        self.extra: dict[str, Any] = {}
        self.finish()

    # What a row of a table replaces.

    def make_model(self) -> Any:
        return Net()

    def make_optimizers(self) -> list[torch.optim.Optimizer]:
        return [adam(self.model)]

    def make_schedulers(self) -> list[Any]:
        return []

    def finish(self) -> None:
        """The last part of building."""

    def spoil(self, checkpoint: dict[str, Any]) -> None:
        """What the save does to what it writes."""

    def before_load(self) -> None:
        """What the load does before it restores anything."""

    def after_load(self) -> None:
        """What the load does when everything is restored."""

    def loss_of(self, s: int) -> torch.Tensor:
        inputs, targets = self.data.next()
        return functional.mse_loss(self.model(inputs), targets)

    def step(self, s: int) -> Any:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.loss_of(s)
        loss.backward()
        self.update()
        return loss

    def update(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()
        for scheduler in self.schedulers:
            scheduler.step()
        if self.ema is not None:
            self.ema.update(self.model)

    # The checkpoint.

    def parts(self) -> dict[str, Any]:
        named = {f"optimizer{place}": one for place, one in enumerate(self.optimizers)}
        named |= {f"scheduler{place}": one for place, one in enumerate(self.schedulers)}
        named |= {name: one for name in ("model", "data", "scaler", "ema") if (one := getattr(self, name)) is not None}
        return named | self.extra

    def save(self, path: Path) -> None:
        checkpoint = {name: one.state_dict() for name, one in self.parts().items()}
        checkpoint["rng"] = random.getstate(), np.random.get_state(), torch.get_rng_state()
        checkpoint = copy.deepcopy(checkpoint)  # a state_dict shares its values with the live objects
        self.spoil(checkpoint)
        torch.save(checkpoint, path)

    def load(self, path: Path) -> None:
        self.before_load()
        self.checkpoint = torch.load(path, weights_only=False)
        for name, one in self.parts().items():
            if name not in self.lose:
                one.load_state_dict(self.checkpoint[name])
        for name, put in (("python", random.setstate), ("numpy", np.random.set_state), ("torch", torch.set_rng_state)):
            if name not in self.lose:
                put(self.checkpoint["rng"][("python", "numpy", "torch").index(name)])
        self.after_load()

    def run(self) -> Run:
        return Run(
            model=self.model,
            optimizer=self.optimizers,
            scheduler=self.schedulers or None,
            scaler=self.scaler,
            ema=self.ema,
            data=self.data,
            extra=self.extra,
            step=self.step,
            save=self.save,
            load=self.load,
            freeze=getattr(self, "freeze", {}),
        )


def factory(kind: type[Training] = Training, **replaced: Any) -> Callable[[Context], Run]:
    """A factory of a training with some attributes or methods of its class replaced."""
    made = type(kind.__name__, (kind,), replaced) if replaced else kind
    return lambda ctx: made(ctx).run()


class TwoModels(Training):
    """Two models under one roof, each with an optimizer of its own."""

    def make_model(self) -> Any:
        return {"a": Net(), "b": Net()}

    def make_optimizers(self) -> list[torch.optim.Optimizer]:
        return [adam(self.model["a"]), momentum(self.model["b"])]

    def loss_of(self, s: int) -> torch.Tensor:
        inputs, targets = self.data.next()
        return sum(functional.mse_loss(one(inputs), targets) for one in self.model.values())

    def parts(self) -> dict[str, Any]:
        parts = super().parts()
        return parts | parts.pop("model")


class Accumulating(Training):
    """A step is a micro-batch; every fourth updates. The checkpoint carries the gradients of an open window."""

    window = 4

    def step(self, s: int) -> Any:
        loss = self.loss_of(s)
        (loss / self.window).backward()
        if s % self.window == 0:
            self.update()
            for optimizer in self.optimizers:
                optimizer.zero_grad()
        return loss

    def spoil(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["gradients"] = {name: one.grad for name, one in self.model.named_parameters()}

    def after_load(self) -> None:
        for name, one in self.model.named_parameters():
            if name not in self.lose and "gradients" not in self.lose:
                one.grad = self.checkpoint["gradients"][name]


class Scaled(Training):
    """Updates through a gradient scaler."""

    def finish(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)

    def step(self, s: int) -> Any:
        self.optimizers[0].zero_grad()
        loss = self.loss_of(s)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizers[0])
        self.scaler.update()
        return loss


class Averaged(Training):
    """Keeps a moving average of the weights."""

    def finish(self) -> None:
        self.ema = Ema(self.model)


class Counting(Training):
    """Keeps a number of its own beside the training, and may take its data from it."""

    def finish(self) -> None:
        self.extra = {"done": Counter()}

    def loss_of(self, s: int) -> torch.Tensor:
        self.extra["done"].value += 1
        return super().loss_of(s)


class Growing(Training):
    """A head is trained; from step `when` on the layers too, in a param group that is added then."""

    when = 5

    def make_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.AdamW(self.model.head.parameters(), lr=0.01)]

    def finish(self) -> None:
        self.made = 0

    def clock(self, s: int) -> int:
        return s

    def grow(self) -> None:
        self.optimizers[0].add_param_group({"params": list(self.model.layers.parameters()), "lr": 0.001})

    def step(self, s: int) -> Any:
        self.made += 1
        if self.clock(s) == self.when:
            self.grow()
        return super().step(s)


class Thawing(Training):
    """The layers are frozen at first; from step `when` on they are trained."""

    when = 5

    def finish(self) -> None:
        self.made = 0
        self.model.layers.requires_grad_(False)

    def clock(self, s: int) -> int:
        return s

    def step(self, s: int) -> Any:
        self.made += 1
        if self.clock(s) == self.when:
            self.model.layers.requires_grad_(True)
        return super().step(s)


class Freezing(Training):
    """All is trained at first; from step `when` on the layers are frozen, their gradients cleared."""

    when = 2

    def step(self, s: int) -> Any:
        if s == self.when:
            self.freeze_layers()
        return super().step(s)

    def freeze_layers(self) -> None:
        self.model.layers.requires_grad_(False)
        for one in self.model.layers.parameters():
            one.grad = None

    def before_load(self) -> None:
        self.freeze_layers()
