"""Which of several processes this one is."""

import os
import sys
from collections.abc import Mapping
from typing import Final

LAUNCHERS: Final = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate, DeepSpeed, Lightning's once it has set them
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # those of srun; a batch script alone has rank 0 of many, and no step
)
"""Pairs of variables with a rank and a number of processes, those first that are nearest to the training."""


def rank_and_world(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """(rank, world size) by torch.distributed where it runs, else by what launchers put into the environment.

    Lightning's ddp leaves RANK unset in all of its processes, and a variable of that name may mean something else: so
    torch.distributed is asked first, and a pair counts only where both are numbers that fit each other.
    """
    distributed = sys.modules["torch"].distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    for names in LAUNCHERS:
        rank, world = (environment.get(name, "") for name in names)
        if rank.isdecimal() and world.isdecimal() and int(rank) < int(world):
            return int(rank), int(world)
    alone = environment.get("LOCAL_RANK", "")
    return (int(alone), int(alone) + 1) if alone.isdecimal() else (0, 1)
