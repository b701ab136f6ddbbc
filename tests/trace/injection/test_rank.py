"""Which rank a process takes itself for."""

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from ckptcheck.trace.script.rank import rank_and_world

ENVIRONMENTS = [
    ({}, (0, 1)),
    ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, (3, 4)),
    ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8"}, (1, 2)),
    ({"RANK": "16"}, (0, 1)),  # a rank of something else, as of low-rank adapters
    ({"RANK": "16", "WORLD_SIZE": "2"}, (0, 1)),
    ({"RANK": "high", "WORLD_SIZE": "2"}, (0, 1)),
    ({"RANK": "-1", "WORLD_SIZE": "2"}, (0, 1)),
    ({"RANK": "", "WORLD_SIZE": ""}, (0, 1)),
    ({"WORLD_SIZE": "4"}, (0, 1)),
    ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
    ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2"}, (1, 2)),
    ({"LOCAL_RANK": "1"}, (1, 2)),
    ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8"}, (5, 8)),
    ({"PMI_RANK": "2", "PMI_SIZE": "3"}, (2, 3)),
    ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "16"}, (2, 4)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16"}, (0, 1)),  # a batch script that starts one process
]


@pytest.mark.parametrize(("environment", "expected"), ENVIRONMENTS)
def test_launchers_are_read_by_pairs_of_numbers_that_fit(environment, expected):
    assert rank_and_world(environment) == expected


def test_torch_distributed_is_asked_first():
    dist.init_process_group("fake", rank=2, world_size=5, store=FakeStore())
    try:
        assert rank_and_world({"RANK": "0", "WORLD_SIZE": "4"}) == (2, 5)
    finally:
        dist.destroy_process_group()
    assert rank_and_world({"RANK": "0", "WORLD_SIZE": "4"}) == (0, 4)
