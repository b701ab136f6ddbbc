"""A training with everything that a checkpoint has to bring back, in parts that a fault can take hold of."""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import ckptcheck
from tests.catalogue.making import CLASSES, WIDTH, make_model, make_optimizer, make_schedule
from tests.catalogue.spec import Spec

BATCH: Final = 4
SAMPLES: Final = 28
"""Seven batches an epoch: a run of nine steps goes over its end."""

Checkpoint = dict[str, Any]


class Samples:
    """Batches in an order that is drawn anew each epoch from a generator of its own."""

    def __init__(self, seed: int) -> None:
        maker = torch.Generator().manual_seed(seed + 1)
        self.features = torch.randn(SAMPLES, WIDTH, generator=maker)
        self.labels = torch.randint(CLASSES, (SAMPLES,), generator=maker)
        self.generator = torch.Generator().manual_seed(seed + 2)
        self.epoch = 0
        self.position = 0
        self.order = torch.randperm(SAMPLES, generator=self.generator)

    def next(self) -> tuple[Tensor, Tensor]:
        """The next batch: features (BATCH, WIDTH) float32, labels (BATCH,) int64."""
        if self.position >= SAMPLES:
            self.epoch += 1
            self.position = 0
            self.order = torch.randperm(SAMPLES, generator=self.generator)
        chosen = self.order[self.position : self.position + BATCH]
        self.position += BATCH
        return self.features[chosen], self.labels[chosen]

    def state_dict(self) -> dict[str, Any]:
        """The place in the data."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "order": self.order.clone(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place in the data."""
        self.epoch, self.position = state["epoch"], state["position"]
        self.order = state["order"].clone()
        self.generator.set_state(state["generator"])


class Loop:
    """What the loop itself counts, and what it reads in every step."""

    def __init__(self) -> None:
        self.completed = 0
        self.smoothing = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The counters."""
        return {"completed": self.completed, "smoothing": self.smoothing}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the counters."""
        self.completed, self.smoothing = state["completed"], state["smoothing"]


class Training:
    """One run. What a fault changes: the lists of hooks, the attributes, or a `restore_*` method of the instance.

    Attributes:
        before_save: called with the checkpoint that is about to be written, after it was collected.
        before_restore: called with the checkpoint that was read, before anything is restored from it.
        after_restore: called when all is restored.
        before_step, after_step: called with the step's number.
        between: called between backward and update.
        resumed: whether this run has loaded a checkpoint, which is `read`.
        declared: what `verify` got, once `run` was called; a load that makes a new object puts it there.
    """

    def __init__(self, spec: Spec, ctx: ckptcheck.Context) -> None:
        torch.manual_seed(ctx.seed)
        np.random.seed(ctx.seed)
        random.seed(ctx.seed)
        self.spec = spec
        self.model: nn.Module = self.make_model()
        self.forward: Callable[[Tensor], Tensor] = self.model
        if spec.compile:
            self.forward = torch.compile(self.model, backend="eager")
        self.optimizer = self.make_optimizer()
        self.schedule = make_schedule(spec, self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3) if spec.amp == "fp16" else None
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9)) if spec.ema else None
        self.data = Samples(ctx.seed)
        self.loop = Loop()
        self.clip = 5.0
        self.resumed = False
        self.declared: ckptcheck.Run | None = None
        self.read: Checkpoint = {}
        self.before_save: list[Callable[[Checkpoint], None]] = []
        self.before_restore: list[Callable[[Checkpoint], None]] = []
        self.after_restore: list[Callable[[], None]] = []
        self.before_step: list[Callable[[int], None]] = []
        self.between: list[Callable[[int], None]] = []
        self.after_step: list[Callable[[int], None]] = []

    def make_model(self) -> nn.Module:
        """The model of the spec."""
        return make_model(self.spec)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the spec, over the model."""
        return make_optimizer(self.spec, self.model)

    # A step

    def step(self, s: int) -> float:
        """One micro-batch, and an update where it closes a window; the loss."""
        for hook in self.before_step:
            hook(s)
        loss = self.loss(*self.augmented(*self.data.next()))
        self.backward(loss / self.spec.window)
        for hook in self.between:
            hook(s)
        if s % self.spec.window == 0:
            self.update(float(loss.detach()))
        self.loop.completed = s
        self.loop.smoothing = 0.01 * (s % 5)
        for hook in self.after_step:
            hook(s)
        return float(loss.detach())

    def augmented(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """A batch, scaled by a number from Python's generator and shifted by one from numpy's."""
        return features * (1 + 0.1 * random.random()) + 0.1 * float(np.random.rand()), labels

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch, a scalar, under autocast where the spec says so."""
        with self.precision():
            scores = self.forward(features)
        return nn.functional.cross_entropy(scores.float(), labels, label_smoothing=self.loop.smoothing)

    def precision(self) -> AbstractContextManager[Any]:
        """Autocast, or nothing."""
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
        kind = kinds.get(self.spec.amp)
        return torch.autocast("cpu", dtype=kind) if kind is not None else nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Gradients of a loss, scaled where there is a scaler."""
        (self.scaler.scale(loss) if self.scaler is not None else loss).backward()

    def update(self, loss: float) -> None:
        """Clip, update, and bring up to date what follows the weights."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()
        if self.schedule is not None:
            self.schedule.step(*([loss] if self.spec.schedule == "plateau" else []))
        if self.ema is not None:
            self.ema.update_parameters(self.model)

    # A checkpoint

    def save(self, path: Path) -> None:
        """Write everything into one file."""
        checkpoint = self.collect()
        for hook in self.before_save:
            hook(checkpoint)
        torch.save(checkpoint, path)

    def collect(self) -> Checkpoint:
        """Everything that the run goes on from, by section."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict() if self.schedule is not None else None,
            "scaler": self.scaler.state_dict() if self.scaler is not None else None,
            "ema": self.ema.state_dict() if self.ema is not None else None,
            "gradients": {name: one.grad for name, one in self.model.named_parameters() if one.grad is not None},
            "data": self.data.state_dict(),
            "loop": self.loop.state_dict(),
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state(),
            "python": random.getstate(),
        }

    def load(self, path: Path) -> None:
        """Restore every section from a file."""
        checkpoint = torch.load(path, weights_only=False)
        self.resumed = True
        self.read = checkpoint
        for hook in self.before_restore:
            hook(checkpoint)
        for section in ("model", "optimizer", "schedule", "scaler", "ema", "gradients", "data", "loop",
                        "torch", "numpy", "python"):  # fmt: skip
            getattr(self, f"restore_{section}")(checkpoint[section])
        for hook in self.after_restore:
            hook()

    def restore_model(self, state: Any) -> None:
        """Weights and buffers."""
        self.model.load_state_dict(state)

    def restore_optimizer(self, state: Any) -> None:
        """Groups and moments."""
        self.optimizer.load_state_dict(state)

    def restore_schedule(self, state: Any) -> None:
        """The schedule's place."""
        if self.schedule is not None:
            self.schedule.load_state_dict(state)

    def restore_scaler(self, state: Any) -> None:
        """The loss scale and its counter."""
        if self.scaler is not None:
            self.scaler.load_state_dict(state)

    def restore_ema(self, state: Any) -> None:
        """The averaged weights and their counter."""
        if self.ema is not None:
            self.ema.load_state_dict(state)

    def restore_gradients(self, state: Any) -> None:
        """Gradients that were gathered in an open window."""
        for name, one in self.model.named_parameters():
            one.grad = state[name].clone() if name in state else None

    def restore_data(self, state: Any) -> None:
        """The place in the data."""
        self.data.load_state_dict(state)

    def restore_loop(self, state: Any) -> None:
        """The loop's own counters."""
        self.loop.load_state_dict(state)

    def restore_torch(self, state: Any) -> None:
        """Torch's generator."""
        torch.set_rng_state(state)

    def restore_numpy(self, state: Any) -> None:
        """Numpy's generator."""
        np.random.set_state(state)

    def restore_python(self, state: Any) -> None:
        """Python's generator."""
        random.setstate(state)

    def run(self) -> ckptcheck.Run:
        """What `verify` gets of it."""
        self.declared = ckptcheck.Run(
            model=self.model, optimizer=self.optimizer, scheduler=self.schedule, scaler=self.scaler, ema=self.ema,
            data=self.data, extra={"loop": self.loop}, step=self.step, save=self.save, load=self.load,
            freeze={"first.*": "hold"} if self.spec.freeze != "none" else {},
        )  # fmt: skip
        return self.declared
