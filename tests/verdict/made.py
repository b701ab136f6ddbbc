"""Checkpoints made by hand: raw tensors over bytes in memory, and the nouns around them."""

import struct
from dataclasses import replace
from pathlib import Path

from ckptcheck.state.checkpoint import Checkpoint, NameSource, Naming
from ckptcheck.state.raw import RawTensor, RawTree, Storage
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState


class Bytes:
    """Where a tensor's bytes come from; `reads` counts how many were asked for."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.reads = 0

    def read_into(self, start_bytes: int, buffer: memoryview) -> None:
        self.reads += len(buffer)
        buffer[:] = self.content[start_bytes : start_bytes + len(buffer)]


def floats(*values: float) -> bytes:
    """The values as little-endian float32."""
    return struct.pack(f"<{len(values)}f", *values)


def tensor(content: bytes, shape: tuple[int, ...], dtype: str = "float32", **more: object) -> RawTensor:
    """A tensor over bytes."""
    return RawTensor(TensorSpec(dtype, shape), Bytes(content).read_into, **more)


def entry(raw: RawTensor) -> Entry:
    """The entry that a convention makes of a tensor."""
    return Entry(raw.spec, None, ref=raw)


def plain(value: object) -> Entry:
    """The entry of a plain value."""
    return Entry(None, None, value=value)


def reads_of(raw: RawTensor) -> int:
    """How many bytes of a tensor were asked for."""
    return raw.read_into.__self__.reads


SHARED = Storage("", "0", 64)
WEIGHT = tensor(floats(*range(4)), (2, 2), storage=SHARED, requires_grad=True, device="cuda:0")
HEAD = tensor(floats(*range(4)), (2, 2), storage=SHARED, device="cuda:0")
BIAS = tensor(floats(1.0, 2.0), (2,), storage=Storage("", "1", 8))
MOMENT = tensor(floats(0.5, 0.25, 0.125, 0.0), (2, 2), storage=Storage("", "2", 16))
STEP = tensor(floats(10.0), (), storage=Storage("", "3", 4))
HALF = NameSource.MODEL_ORDER

STATE = TrainingState(
    source="made by hand",
    step=10,
    parameters={
        "fc.weight": Parameter("fc.weight", entry(WEIGHT)),
        "fc.bias": Parameter("fc.bias", entry(BIAS), ("head.bias",), requires_grad=False),
    },
    buffers={"head.weight": entry(HEAD)},
    optimizers=(
        Optimizer(
            None,
            (
                Group(("fc.weight",), {"lr": plain(0.001), "betas[0]": plain(0.9), "betas[1]": plain(0.999)}),
                Group(("fc.bias", None), {"lr": plain(0.01)}),
            ),
            {"fc.weight": {"exp_avg": entry(MOMENT), "step": entry(STEP)}},
        ),
    ),
    sections={
        "schedule": {"last_epoch": plain(10)},
        "progress": {"epoch": plain(3)},
        "extra": {"args.name": plain("'run'")},
    },
    rng={"torch": entry(tensor(bytes(8), (8,), "uint8"))},
)
TREE = RawTree(
    Path("run/step_10.pt"),
    "torch-zip",
    {"model": {"fc.weight": WEIGHT, "fc.bias": BIAS, "head.weight": HEAD}, "state": [MOMENT, STEP]},
    1234,
)
CHECKPOINT = Checkpoint(
    TREE, "plain", STATE, (Naming(HALF, False, "the order of the model fits"),), stripped=("module.",)
)


def like(**changes: object) -> Checkpoint:
    """The checkpoint with another state."""
    return replace(CHECKPOINT, state=replace(STATE, **changes))
