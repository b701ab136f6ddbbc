"""Two small targets for `ckptcheck demo`: a clean resume, and one that forgets the optimizer's state."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ckptcheck.experiment.run import Context, Run


def build(ctx: Context) -> Run:
    """A small network with dropout under AdamW; its checkpoint holds all that a resume needs."""
    torch.manual_seed(ctx.seed)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)).to(ctx.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)

    def step(s: int) -> torch.Tensor:
        inputs = torch.randn(16, 8, device=ctx.device)
        loss: torch.Tensor = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        scheduler.step()
        return loss

    def save(path: Path) -> None:
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        torch.save({**parts, "rng": torch.get_rng_state()}, path)

    def load(path: Path) -> None:
        parts: dict[str, Any] = torch.load(path, map_location=ctx.device)
        model.load_state_dict(parts["model"])
        optimizer.load_state_dict(parts["optimizer"])
        scheduler.load_state_dict(parts["scheduler"])
        torch.set_rng_state(parts["rng"].cpu())

    return Run(model=model, optimizer=optimizer, scheduler=scheduler, step=step, save=save, load=load)


def build_broken(ctx: Context) -> Run:
    """The same, but its load forgets the optimizer, as many training scripts do."""
    run = build(ctx)

    def load(path: Path) -> None:
        parts: dict[str, Any] = torch.load(path, map_location=ctx.device)
        run.model.load_state_dict(parts["model"])
        run.scheduler.load_state_dict(parts["scheduler"])
        torch.set_rng_state(parts["rng"].cpu())

    run.load = load
    return run
