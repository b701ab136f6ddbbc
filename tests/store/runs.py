"""Small training runs for the store's tests, and a comparison that shares no code with the store."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

Fields = dict[str, Any]


class Net(nn.Module):
    """Two dense layers, batch norm and dropout: buffers, and random numbers in every forward."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5, dtype=dtype)
        self.norm = nn.BatchNorm1d(5, dtype=dtype)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(5, 3, dtype=dtype)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(self.norm(self.first(inputs)).tanh()))


class TwoMatrices(nn.Module):
    """Matrices only, as Muon wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5, bias=False)
        self.last = nn.Linear(5, 3, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(inputs).tanh())


class Bag(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4, sparse=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.table(inputs)


@dataclass
class Training:
    """A run in process: `fields` go to save and load as they are."""

    fields: Fields
    inputs: Callable[[], torch.Tensor] = lambda: torch.randn(6, 4)
    schedulers: list[Any] = field(default_factory=list)

    @property
    def model(self) -> Any:
        return self.fields["model"]

    @property
    def optimizer(self) -> Any:
        return self.fields["optimizer"]

    def train(self, steps: int) -> None:
        for _ in range(steps):
            inputs = self.inputs()
            noise = torch.get_rng_state()

            def closure(inputs: torch.Tensor = inputs, noise: torch.Tensor = noise) -> torch.Tensor:
                torch.set_rng_state(noise)  # LBFGS calls this several times: each with the same dropout
                self.optimizer.zero_grad()
                loss = self.model(inputs).float().square().mean()
                loss.backward()
                return loss

            if isinstance(self.optimizer, torch.optim.LBFGS):
                self.optimizer.step(closure)
            else:
                closure()
                self.optimizer.step()
            for scheduler in self.schedulers:
                scheduler.step()


def training(seed: int, optimizer: Callable[..., Any], model: Callable[[], nn.Module] = Net, **more: Any) -> Training:
    torch.manual_seed(seed)
    built = model()
    return Training({"model": built, "optimizer": optimizer(built.parameters())}, **more)


def trained(seed: int) -> Fields:
    """A model and its optimizer after two steps."""
    run = training(seed, torch.optim.Adam)
    run.train(2)
    return run.fields


def payload_file(folder: Path, role: str = "model") -> Path:
    """The payload of a role in a store."""
    return next(folder.glob(f"{role}-*.safetensors"))


def raw(tensor: torch.Tensor) -> tuple[Any, ...]:
    """dtype, shape, strides and bytes of a tensor."""
    tensor = tensor.detach()
    if tensor.is_sparse:
        return "sparse", tuple(tensor.shape), tensor.is_coalesced(), raw(tensor._indices()), raw(tensor._values())
    flat = tensor.reshape(-1).clone(memory_format=torch.contiguous_format)
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), bytes(flat.view(torch.uint8).numpy())


def frozen(tree: Any) -> Any:
    """A nested state as something that compares by types and bits."""
    if isinstance(tree, torch.Tensor):
        return raw(tree)
    if isinstance(tree, dict):
        return type(tree).__name__, [(key, frozen(value)) for key, value in tree.items()]
    if isinstance(tree, list | tuple):
        return type(tree).__name__, [frozen(item) for item in tree]
    return type(tree).__name__, tree.hex() if isinstance(tree, float) else repr(tree)


def everything(fields: Fields) -> Any:
    """All that a resume may depend on, to be compared with ==."""
    models = fields["model"] if isinstance(fields["model"], dict) else {"": fields["model"]}
    found: list[Any] = [torch.get_rng_state().tolist()]
    for name, model in models.items():
        for key, parameter in model.named_parameters():
            gradient = None if parameter.grad is None else raw(parameter.grad)
            found.append((name, key, raw(parameter), parameter.requires_grad, gradient))
        found.append([(key, raw(buffer)) for key, buffer in model.named_buffers()])
        found.append([(key, module.training) for key, module in model.named_modules()])
    for key, one in fields.items():
        if key != "model":
            objects = one if isinstance(one, list) else list(one.values()) if isinstance(one, dict) else [one]
            found.append((key, [frozen(thing.state_dict()) for thing in objects if thing is not None]))
    return found
