"""A small network under Lightning, as a script and as a target."""

from pathlib import Path
from typing import Any

import lightning
import torch

import ckptcheck


class Module(lightning.LightningModule):
    """A convolution with batch norm, trained by AdamW in two groups under a schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 3, 3)
        self.bn = torch.nn.BatchNorm2d(3)
        self.head = torch.nn.Linear(3, 2)

    def training_step(self, images: torch.Tensor, number: int) -> torch.Tensor:
        return self.head(torch.relu(self.bn(self.conv(images))).mean((2, 3))).square().mean()

    def configure_optimizers(self) -> Any:
        matrices = [one for one in self.parameters() if one.ndim >= 2]
        rest = [one for one in self.parameters() if one.ndim < 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def trained(folder: Path, steps: int = 4) -> tuple[Module, lightning.Trainer]:
    """The module and its Trainer after some steps; the checkpoint is `last.ckpt`."""
    torch.manual_seed(0)
    module = Module()
    images = torch.randn(steps, 4, 1, 6, 6)
    trainer = lightning.Trainer(max_epochs=1, default_root_dir=folder, accelerator="cpu", logger=False,
                                enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader([*images], batch_size=None))
    trainer.save_checkpoint(folder / "last.ckpt")
    return module, trainer


def build(ctx: ckptcheck.Context) -> ckptcheck.Run:
    """The same module with what it configures."""
    module = Module()
    (optimizer,), (schedule,) = module.configure_optimizers()

    def step(number: int) -> None:
        raise NotImplementedError("a dry-run makes no step")

    return ckptcheck.Run(model=module, optimizer=optimizer, scheduler=schedule["scheduler"], step=step)
