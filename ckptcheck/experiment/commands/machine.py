"""How runs share the machine: how many side by side, and with how many threads each."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final

LAUNCHERS: Final = frozenset({
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "accelerate-launch", "deepspeed",
    "colossalai", "mpirun", "mpiexec", "horovodrun", "srun", "composer",
})  # fmt: skip
"""What starts several processes, shares the cores out among them, and takes a fixed port: no two side by side."""
THREADS: Final = "OMP_NUM_THREADS"


def is_launched(words: tuple[str, ...]) -> bool:
    """Whether a command starts its processes through a launcher."""
    return any(PurePath(one).name in LAUNCHERS for word in words for one in word.split())


def default_at_once(words: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Two on a machine with two cores; one for what a launcher starts, and on a GPU, whose memory they would share."""
    gpu = Path("/dev/nvidiactl").exists() and environment.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1")
    return 1 if gpu or is_launched(words) or (os.cpu_count() or 1) < 2 else 2


def threads(words: tuple[str, ...], at_once: int, environment: Mapping[str, str]) -> dict[str, str]:
    """What to set for every run of an experiment: another thread count is another order of summation."""
    if at_once < 2 or THREADS in environment or is_launched(words):
        return {}
    return {THREADS: str(max(1, (os.cpu_count() or 1) // at_once))}
