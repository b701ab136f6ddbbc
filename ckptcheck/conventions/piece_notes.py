"""What to know of a file that is one rank's part of a checkpoint, and of files that are not as they should be."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTensor, RawTree, Shard
from ckptcheck.state.training_state import Parameter

FLAT_PARAMETER: Final = "_flat_param"
"""FSDP's name of the parameters of a module laid end to end."""


def piece_notes(checkpoint: Checkpoint) -> Iterator[str]:
    """One sentence where tensors are one rank's pieces, one where parameters are flat."""
    shards = [one for one in map(_shard, checkpoint.state.parameters.values()) if one]
    if shards:
        ranks = sorted({one.rank for one in shards if one.rank is not None})
        whose = f"rank {ranks[0]}'s" if len(ranks) == 1 else "one rank's"
        yield (
            f"parameters are {whose} pieces of larger tensors ({len(shards)} of them): name the folder with the files "
            f"of all ranks to read them whole"
        )
    if any(name.rpartition(".")[2] == FLAT_PARAMETER for name in checkpoint.state.parameters):
        yield "flat parameters hold several parameters each, whose names are not in the file"


def defect_notes(raw: RawTree) -> Iterator[str]:
    """One sentence for each thing that is wrong with the files and did not stop the reading."""
    for one in raw.defects:
        yield f"{one.file}: {one.said}" if one.file else one.said


def _shard(parameter: Parameter) -> Shard | None:
    ref = parameter.entry.ref
    return ref.shard if isinstance(ref, RawTensor) else None
