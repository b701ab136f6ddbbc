"""Which training a cell of the catalogue runs: a model, an optimizer, and what goes with them."""

import json
from dataclasses import asdict, dataclass
from typing import Final

MODELS: Final = ("mlp", "norm", "tied")
"""An MLP with dropout; one with BatchNorm; an embedding tied to its output layer."""

OPTIMIZERS: Final = (
    "SGD", "SGD-momentum", "SGD-nesterov", "Adam", "Adam-amsgrad", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad",
    "Adadelta", "RMSprop", "RMSprop-momentum", "Rprop", "ASGD", "Adafactor",
)  # fmt: skip

SPECIAL_OPTIMIZERS: Final = ("LBFGS", "Muon", "SparseAdam")
"""Optimizers that need a closure, a second optimizer beside them, or sparse gradients."""

SCHEDULES: Final = (
    "none", "constant", "cosine", "step", "multistep", "exponential", "linear", "warm-cosine", "one-cycle", "cyclic",
    "polynomial", "lambda", "restarts", "plateau", "multiplicative",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spec:
    """One training.

    Attributes:
        model: one of MODELS.
        optimizer: one of OPTIMIZERS, a class of torch.optim with a choice of hyperparameters, or one of
            SPECIAL_OPTIMIZERS.
        schedule: one of SCHEDULES.
        amp: "none", "bf16" (autocast) or "fp16" (autocast and a GradScaler).
        window: micro-batches an update is accumulated over; a step is one micro-batch.
        ema: whether an average of the weights is kept.
        freeze: "none", "grad" (requires_grad False), or "removed" (and in no group).
        foreach: the implementation of the update: None (torch's choice), True or False; or "fused".
        compile: whether the model is compiled, by the backend that needs no compiler.
        groups: 2 splits parameters into decay and no-decay, 1 does not.
        steps: how many steps a whole run makes.
        resume_at: the steps after which it saves.
    """

    model: str = "mlp"
    optimizer: str = "AdamW"
    schedule: str = "cosine"
    amp: str = "none"
    window: int = 1
    ema: bool = False
    freeze: str = "none"
    foreach: bool | str | None = None
    compile: bool = False
    groups: int = 2
    steps: int = 9
    resume_at: tuple[int, ...] = (5,)

    @property
    def at(self) -> int:
        """The first step after which it saves: k."""
        return self.resume_at[0]

    def to_json(self) -> str:
        """The spec as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        """The spec that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "resume_at": tuple(values["resume_at"])})

    def __str__(self) -> str:
        default = asdict(Spec())
        told = [f"{name}={value}" for name, value in asdict(self).items() if value != default[name]]
        return " ".join([self.model, self.optimizer, *told])
