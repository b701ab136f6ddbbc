"""Each rank's own file: its pieces have their places, and the files of all ranks are one checkpoint.

Ranks are played one after the other in this process; a piece is what torch.chunk leaves of the whole.
"""

import shutil
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Danger, Flaw, Foreign, RawTensor, tensors_in
from tests.readers.dcp_folders import assert_same
from tests.readers.live_values import bytes_of
from tests.samples import CHECKPOINTS

SAMPLES = CHECKPOINTS / "09_fsdp_ddp"
WHOLE = torch.arange(7 * 5 * 2, dtype=torch.float32).reshape(7, 5, 2)


def as_rank(rank: int, shape: tuple[int, ...], make: Callable[[Any], Any]) -> Any:
    """What a rank of a mesh of this shape makes."""
    dist.init_process_group("fake", rank=rank, world_size=torch.Size(shape).numel(), store=FakeStore())
    try:
        return make(init_device_mesh("cpu", shape))
    finally:
        dist.destroy_process_group()


def chunk(whole: torch.Tensor, places: Sequence[Any], shape: Sequence[int], at: Sequence[int]) -> torch.Tensor:
    """The local piece: each placement cuts what the ones before it left."""
    for place, count, index in zip(places, shape, at, strict=True):
        if isinstance(place, Shard):
            parts = torch.chunk(whole, count, dim=place.dim)
            whole = parts[index] if index < len(parts) else whole.narrow(place.dim, 0, 0)
    return whole.clone()


def save_ranks(folder: Path, shape: tuple[int, ...], places: Sequence[Any], whole: torch.Tensor = WHOLE) -> Path:
    """A file for each rank, with the tensor as a DTensor and what ranks keep beside it."""
    for rank, at in enumerate(product(*map(range, shape))):

        def make(mesh: Any, rank: int = rank, at: Sequence[int] = at) -> None:
            local = chunk(whole, places, shape, at)
            value = DTensor.from_local(
                local, mesh, places, run_check=False, shape=whole.shape, stride=whole.contiguous().stride()
            )
            state = {"model": {"w": value}, "step": 3, "rng": torch.full((8,), rank, dtype=torch.uint8), "seed": rank}
            torch.save(state, folder / f"saved_rank{rank}.pt")

        as_rank(rank, shape, make)
    return folder


MESHES = {
    "one dimension": ((4,), (Shard(0),)),
    "columns": ((3,), (Shard(1),)),
    "more ranks than rows leave the last ones empty": ((9,), (Shard(0),)),
    "the last dimension, one rank short": ((4,), (Shard(2),)),
    "two dimensions of the tensor": ((2, 3), (Shard(0), Shard(1))),
    "replicas (HSDP)": ((2, 2), (Replicate(), Shard(0))),
    "replicas within": ((2, 2), (Shard(1), Replicate())),
    "one dimension cut twice": ((2, 2), (Shard(0), Shard(0))),
    "three mesh dimensions": ((2, 2, 2), (Shard(2), Replicate(), Shard(0))),
}


@pytest.mark.parametrize(("shape", "places"), MESHES.values(), ids=MESHES.keys())
def test_pieces_of_all_ranks_are_joined_to_the_tensor_that_was_cut(tmp_path, shape, places):
    tree = read_raw(save_ranks(tmp_path, shape, places))
    assert list(tree.root) == ["saved.pt"]
    root = tree.root["saved.pt"]
    assert_same(root["model"], {"w": WHOLE})
    assert root["model"]["w"].shard is None
    assert root["step"] == 3


@pytest.mark.parametrize(("shape", "places"), MESHES.values(), ids=MESHES.keys())
def test_a_rank_alone_knows_where_its_piece_lies(tmp_path, shape, places):
    save_ranks(tmp_path, shape, places)
    for rank in range(torch.Size(shape).numel()):
        tree = read_raw(tmp_path / f"saved_rank{rank}.pt")
        piece = tree.root["model"]["w"]
        assert piece.shard.whole_shape == tuple(WHOLE.shape)
        assert piece.shard.rank == rank
        inside = tuple(
            slice(begin, begin + length) for begin, length in zip(piece.shard.offsets, piece.spec.shape, strict=True)
        )
        assert bytes(piece.fetch()) == bytes_of(WHOLE[inside])
        assert {one.danger for one in tree.globals} == {Danger.PLAIN}


def test_a_tensor_that_every_rank_holds_whole_is_no_piece(tmp_path):
    save_ranks(tmp_path, (2,), (Replicate(),))
    piece = read_raw(tmp_path / "saved_rank1.pt").root["model"]["w"]
    assert (piece.shard, bytes(piece.fetch())) == (None, bytes_of(WHOLE))


def test_a_partial_sum_is_not_taken_for_a_piece(tmp_path):
    save_ranks(tmp_path, (2,), (Partial(),))
    value = read_raw(tmp_path / "saved_rank0.pt").root["model"]["w"]
    assert isinstance(value, Foreign)
    assert [bytes(one.fetch()) for one in tensors_in(value) if one.spec.dtype == "float32"] == [bytes_of(WHOLE)]


def test_what_differs_between_ranks_is_kept_for_each(tmp_path):
    root = read_raw(save_ranks(tmp_path, (2,), (Shard(0),))).root["saved.pt"]
    assert [key for key in root if key != "model"] == ["step", "rng", "rng (rank 1)", "seed", "seed (rank 1)"]
    assert (root["seed"], root["seed (rank 1)"]) == (0, 1)
    assert bytes(root["rng (rank 1)"].fetch()) == bytes([1] * 8)


def test_a_missing_rank_makes_the_checkpoint_incomplete(tmp_path):
    save_ranks(tmp_path, (3,), (Shard(0),))
    (tmp_path / "saved_rank1.pt").unlink()
    with pytest.raises(DamagedCheckpointError, match="ranks 0, 2") as caught:
        read_raw(tmp_path)
    assert caught.value.flaw == Flaw.INCOMPLETE
    tree = read_raw(tmp_path, strict=False)
    assert [one.flaw for one in tree.defects] == [Flaw.INCOMPLETE]
    assert tree.root["saved.pt"]["model"] == {}


def test_ranks_of_two_saves_do_not_make_one_tensor(tmp_path):
    save_ranks(tmp_path, (2,), (Shard(0),))
    shutil.copy(tmp_path / "saved_rank0.pt", tmp_path / "kept")
    save_ranks(tmp_path, (2,), (Shard(0),), WHOLE[:5])
    shutil.move(tmp_path / "kept", tmp_path / "saved_rank0.pt")
    with pytest.raises(DamagedCheckpointError, match="another dtype or shape") as caught:
        read_raw(tmp_path)
    assert caught.value.flaw == Flaw.SHARD_SET


def test_other_files_of_ranks_are_left_as_they_are(tmp_path):
    for rank in range(2):
        torch.save({"w": torch.ones(2)}, tmp_path / f"plain_rank{rank}.pt")
    assert sorted(read_raw(tmp_path).root) == ["plain_rank0.pt", "plain_rank1.pt"]


NAMES = [
    ("pytorch_model_fsdp_rank{}.bin", "pytorch_model_fsdp.bin"),
    ("m_rank_{}.pt", "m.pt"),
    ("rank{}-of-2-optimizer.pt", "optimizer.pt"),
]


@pytest.mark.parametrize(("pattern", "name"), NAMES)
def test_names_of_rank_files_are_understood(tmp_path, pattern, name):
    save_ranks(tmp_path, (2,), (Shard(0),))
    for rank in range(2):
        (tmp_path / f"saved_rank{rank}.pt").rename(tmp_path / pattern.format(rank))
    assert list(read_raw(tmp_path).root) == [name]


def copied(folder: Path, *names: str) -> Path:
    for name in names:
        shutil.copy(SAMPLES / name, folder)
    return folder


def full(name: str) -> Any:
    return torch.load(SAMPLES / name, weights_only=False)


@pytest.mark.parametrize("stem", ["fsdp2_dtensor", "fsdp1_uop1_sharded"])
def test_the_samples_of_two_ranks_join_to_the_shapes_of_the_full_save(tmp_path, stem):
    copied(tmp_path, f"{stem}_rank0.pt", f"{stem}_rank1.pt")
    root = read_raw(tmp_path).root[f"{stem}.pt"]
    whole = full("fsdp2_full.pt")
    assert {name: one.spec.shape for name, one in root["model"].items()} == {
        name: tuple(one.shape) for name, one in whole["model"].items()
    }
    for rank in range(2):
        alone = read_raw(SAMPLES / f"{stem}_rank{rank}.pt").root["model"]
        for name, piece in alone.items():
            size = 1
            for length in piece.shard.whole_shape[1:]:
                size *= length
            begin = piece.shard.offsets[0] * size * 4
            whole_bytes = bytes(root["model"][name].fetch())
            assert whole_bytes[begin : begin + piece.spec.nbytes] == bytes(piece.fetch())


def test_a_local_flat_parameter_is_one_ranks_piece(tmp_path):
    piece = read_raw(SAMPLES / "fsdp1_uop0_local_rank0.pt").root["_flat_param"]
    assert isinstance(piece, RawTensor)
    assert (piece.spec.shape, piece.shard.whole_shape, piece.shard.offsets) == ((38,), (76,), (0,))
    copied(tmp_path, "fsdp1_uop0_local_rank0.pt")
    with pytest.raises(DamagedCheckpointError, match="missing"):
        read_raw(tmp_path)
