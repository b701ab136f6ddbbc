"""Models of many kinds, each with batches that it takes; a model is called with what its `batch` gives."""

from typing import Any

import torch
from torch import nn

from tests.check_cases.training import ConvNet, Mlp, Tied, batch


class Recurrent(nn.Module):
    """An LSTM of two layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(6, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][:, -1])

    def batch(self, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(4, 3, 6, generator=generator)


class Encoder(nn.Module):
    """A transformer of two layers over tokens, of which few are ever seen."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))
        self.head = nn.Linear(8, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x), mask=self.mask))

    def batch(self, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(0, 9, (3, 4), generator=generator)


class Sparse(nn.Module):
    """A bag of embeddings whose gradient is sparse, and dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(30, 6, sparse=True)
        self.head = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.bag(x))

    def batch(self, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(0, 12, (5, 3), generator=generator)


class Listed(nn.Module):
    """A ParameterList, a ParameterDict and a parameter of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(6, 6) / 3) for _ in range(3)])
        self.shifts = nn.ParameterDict({"first": nn.Parameter(torch.zeros(6)), "second": nn.Parameter(torch.zeros(6))})
        self.gain = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x @ self.weights[0] + self.shifts["first"])
        return self.gain * (x @ self.weights[1] + self.shifts["second"]) @ self.weights[2]

    def batch(self, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(5, 6, generator=generator)


class Normed(Listed):
    """Layers under weight norm, and one without."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        normed = nn.utils.parametrizations.weight_norm
        self.layers = nn.Sequential(normed(nn.Linear(6, 6)), nn.Tanh(), normed(nn.Linear(6, 6)), nn.Linear(6, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Complex(Listed):
    """A complex matrix between real layers."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.mix = nn.Parameter(torch.randn(6, 6, dtype=torch.complex64) / 3)
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head((x.to(self.mix.dtype) @ self.mix).abs())


class Branched(Listed):
    """A branch that the loss never uses, among layers of the same shape, and a dead unit."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.used = nn.Linear(6, 6)
        self.spare = nn.Linear(6, 6)
        self.head = nn.Linear(6, 6)
        with torch.no_grad():
            self.used.weight[0], self.used.bias[0] = 0, -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.used(x)))


class Deep(Listed):
    """Blocks of one shape with batch norm, as a backbone, and a head."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.backbone = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.backbone:
            x = x + block(x)
        return self.head(x)


MODELS = (Mlp, ConvNet, Tied, Recurrent, Encoder, Sparse, Listed, Normed, Complex, Branched, Deep)


def batch_of(model: Any, generator: torch.Generator) -> torch.Tensor:
    """A batch that a model of these takes, in its own dtype."""
    x = model.batch(generator) if hasattr(model, "batch") else batch(model, generator)
    own = next(one.dtype for one in model.parameters() if not one.is_complex())
    return x.to(own) if x.is_floating_point() else x
