"""Two ranks of one training over gloo: `several.py OUT [CHECKPOINT [FAULTY_RANK]]`. Each rank draws data of its own.

They are the processes of torchrun, or forks of this one where nothing has launched it.
"""

import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.nn.parallel import DistributedDataParallel


def train() -> None:
    rank, out = get_rank(), Path(sys.argv[1])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + rank)
    first = 1
    if len(sys.argv) > 2:
        saved = torch.load(sys.argv[2], weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        if str(rank) not in sys.argv[3:]:
            torch.set_rng_state(torch.load(Path(sys.argv[2]).with_name(f"rng-{rank}.pt"), weights_only=True))
        first = 4
    for step in range(first, 7):
        optimizer.zero_grad()
        wrapped(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
        if step == 3:
            torch.save(torch.get_rng_state(), out / f"rng-{rank}.pt")
            if rank == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, out / "last.pt")
    destroy_process_group()


def join(rank: int, meeting: str) -> None:
    init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=2)
    train()


if "RANK" in os.environ:
    init_process_group("gloo")
    train()
else:
    with tempfile.TemporaryDirectory() as folder:
        fork = multiprocessing.get_context("fork")
        ranks = [fork.Process(target=join, args=(rank, f"{folder}/meeting")) for rank in (0, 1)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
        sys.exit(max(abs(one.exitcode) for one in ranks))
