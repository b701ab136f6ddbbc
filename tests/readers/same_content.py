"""One training state, written in every container: what differs between any two of the files is no content.

`python -m tests.readers.same_content STATE FOLDER RANK` is one of two processes that save it sharded.
"""

import json
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.distributed import checkpoint as dcp

import ckptcheck

State = dict[str, Any]


class Small(nn.Module):
    """An embedding tied to the head, with batch statistics in between."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(12, 6)
        self.norm = nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, 6)
        self.head = nn.Linear(6, 12, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.fc(self.norm(self.emb(tokens))).tanh())
        return logits


class Trained:
    """A model after two steps of AdamW with a decayed and an undecayed group; `named` gives the groups names."""

    def __init__(self, *, named: bool) -> None:
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        self.model = Small()
        pairs = list(self.model.named_parameters())
        decayed = [pair for pair in pairs if pair[1].ndim >= 2]
        rest = [pair for pair in pairs if pair[1].ndim < 2]

        def members(group: list[tuple[str, nn.Parameter]]) -> list[Any]:
            return list(group) if named else [parameter for _, parameter in group]

        self.optimizer = torch.optim.AdamW(
            [{"params": members(decayed)}, {"params": members(rest), "weight_decay": 0.0}], lr=1e-2
        )
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)
        for _ in range(2):
            self.optimizer.zero_grad()
            tokens = torch.randint(0, 12, (8,))
            nn.functional.cross_entropy(self.model(tokens), tokens).backward()
            self.optimizer.step()
            self.scheduler.step()

    def state(self) -> State:
        """What a training script would save."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "rng": {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()},
            "step": 2,
        }


def flattened(value: Any, path: str = "") -> dict[str, Any]:
    """Dotted keys down to tensors and values; lists of plain values are one value."""
    is_long = isinstance(value, list) and any(isinstance(one, dict) for one in value)
    if isinstance(value, dict) and value:
        items = value.items()
    elif is_long:
        items = enumerate(value)  # type: ignore[assignment]
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for key, one in items:
        found |= flattened(one, f"{path}.{key}" if path else str(key))
    return found


def _flat(state: State) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    # The generators' states are tuples and arrays that JSON does not hold.
    flat = flattened({key: value for key, value in state.items() if key != "rng"})
    rng = {"rng.torch": state["rng"]["torch"]}
    tensors = {key: value for key, value in (flat | rng).items() if isinstance(value, torch.Tensor)}
    # Memory of their own, tied ones twice, as safetensors has to have them.
    apart = {key: value.clone().contiguous() for key, value in tensors.items()}
    return apart, {key: json.dumps(value) for key, value in flat.items() if key not in tensors}


def write_zip(run: Trained, folder: Path) -> Path:
    torch.save(run.state(), folder / "zip.pt")
    return folder / "zip.pt"


def write_zip_protocol_5(run: Trained, folder: Path) -> Path:
    torch.save(run.state(), folder / "five.ckpt", pickle_protocol=5)
    return folder / "five.ckpt"


def write_legacy(run: Trained, folder: Path) -> Path:
    torch.save(run.state(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    return folder / "legacy.pt"


def write_safetensors(run: Trained, folder: Path) -> Path:
    tensors, texts = _flat(run.state())
    save_file(tensors, folder / "flat.safetensors", metadata=texts)
    return folder / "flat.safetensors"


def write_sharded(run: Trained, folder: Path) -> Path:
    tensors, texts = _flat(run.state())
    target = folder / "sharded"
    target.mkdir()
    weight_map = {}
    for place in range(3):
        file = f"model-{place + 1:05}-of-00003.safetensors"
        part = dict(list(tensors.items())[place::3])
        save_file(part, target / file, metadata=texts)
        weight_map |= dict.fromkeys(part, file)
    total = sum(one.nbytes for one in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    return target


def write_dcp(run: Trained, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "assuming the intent is to save in a single process"
        dcp.save(run.state(), checkpoint_id=folder / "dcp", no_dist=True)
    return folder / "dcp"


def write_dcp_of_two_ranks(run: Trained, folder: Path) -> Path:
    torch.save(run.state(), folder / "state.pt")
    target = folder / "dcp2"
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.readers.same_content",
        str(folder / "state.pt"),
        str(target),
    ]
    ranks = [subprocess.Popen([*command, str(rank)], cwd=Path(__file__).parents[2]) for rank in range(2)]
    assert [one.wait(60) for one in ranks] == [0, 0]
    return target


def write_store(run: Trained, folder: Path) -> Path:
    ckptcheck.save(folder / "store", model=run.model, optimizer=run.optimizer, scheduler=run.scheduler, step=2)
    return folder / "store"


WRITERS: dict[str, Callable[[Trained, Path], Path]] = {
    "torch zip": write_zip,
    "torch zip, protocol 5": write_zip_protocol_5,
    "torch legacy": write_legacy,
    "safetensors": write_safetensors,
    "sharded safetensors": write_sharded,
    "DCP": write_dcp,
    "DCP of two ranks": write_dcp_of_two_ranks,
    "our store": write_store,
}


def save_one_rank(state_file: str, target: str, rank: int) -> None:
    """One of two processes that save a state together, its tensors cut in two."""
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    distributed.init_process_group("gloo", init_method=f"file://{target}.meeting", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cut(one) for key, one in value.items()}
        is_large = isinstance(value, torch.Tensor) and value.ndim and value.is_floating_point()
        return distribute_tensor(value, mesh, [Shard(0)]) if is_large else value

    dcp.save(cut(torch.load(state_file, weights_only=False)), checkpoint_id=target)
    distributed.barrier()
    os._exit(0)  # gloo's threads now and then end a process badly that takes its time to leave


if __name__ == "__main__":
    save_one_rank(sys.argv[1], sys.argv[2], int(sys.argv[3]))
