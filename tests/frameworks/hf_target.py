"""A tiny GPT-2 under the Trainer of transformers, as a script and as a target."""

from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import ckptcheck


class Tokens(torch.utils.data.Dataset):
    """A few fixed sequences."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 32, (8,), generator=torch.Generator().manual_seed(place))
        return {"input_ids": tokens, "labels": tokens}


def model() -> GPT2LMHeadModel:
    """Two layers, tied head."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=8, n_layer=2, n_head=2))


def trainer(folder: Path, **more: Any) -> Trainer:
    """A Trainer that saves every two steps into `folder`, by its own defaults but for decay."""
    settings = {"max_steps": 4, "save_steps": 2, "weight_decay": 0.1, "warmup_steps": 1, **more}
    arguments = TrainingArguments(str(folder), per_device_train_batch_size=4, use_cpu=True, report_to=[],
                                  disable_tqdm=True, logging_steps=100, **settings)  # fmt: skip
    return Trainer(model(), arguments, train_dataset=Tokens())


def build(ctx: ckptcheck.Context) -> ckptcheck.Run:
    """The same model, optimizer and schedule as the Trainer makes them."""
    made = trainer(ctx.workdir / "unused")
    made.create_optimizer_and_scheduler(4)

    def step(number: int) -> None:
        raise NotImplementedError("a dry-run makes no step")

    return ckptcheck.Run(model=made.model, optimizer=made.optimizer, scheduler=made.lr_scheduler, step=step)
