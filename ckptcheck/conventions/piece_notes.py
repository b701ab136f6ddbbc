"""What to know of a file that holds one rank's part of a checkpoint only."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTensor, Shard
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


def _shard(parameter: Parameter) -> Shard | None:
    ref = parameter.entry.ref
    return ref.shard if isinstance(ref, RawTensor) else None
