"""A file of one rank says that it is one; whole checkpoints say nothing."""

import pytest

from ckptcheck.conventions.explaining import explain
from ckptcheck.readers.reading import read_raw
from tests.samples import CHECKPOINTS

SAMPLES = CHECKPOINTS / "09_fsdp_ddp"
CASES = {
    "fsdp2_dtensor_rank1.pt": ["parameters are rank 1's pieces"],
    "fsdp1_uop1_sharded_rank0.pt": ["parameters are rank 0's pieces"],
    "fsdp1_uop0_local_rank0.pt": ["parameters are rank 0's pieces", "flat parameters hold several"],
    "fsdp2_full.pt": [],
    "zero_redundancy_ddp.pt": [],
}


@pytest.mark.parametrize(("name", "wanted"), CASES.items(), ids=CASES.keys())
def test_a_file_says_whether_its_tensors_are_pieces(name, wanted):
    notes = explain(read_raw(SAMPLES / name)).notes
    assert [note.startswith(start) for note, start in zip(notes, wanted, strict=True)] == [True] * len(wanted)
