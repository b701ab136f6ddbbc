"""Which of several processes this one is."""

import os
import sys


def rank_and_world() -> tuple[int, int]:
    """(rank, world size) by torch.distributed where it runs, else by what launchers put into the environment."""
    torch = sys.modules["torch"]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank = next((os.environ[name] for name in ("RANK", "LOCAL_RANK") if os.environ.get(name, "").isdigit()), "0")
    world = os.environ.get("WORLD_SIZE", "1")
    return int(rank), int(world) if world.isdigit() else 1
