"""Distributed checkpoints written by torch itself, and torch's own reading of them."""

import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import Metadata

from ckptcheck.state.raw import Raw, RawTensor
from ckptcheck.state.tree import flatten
from tests.readers.live_values import bytes_of
from tests.samples import CHECKPOINTS

SAMPLES = CHECKPOINTS / "08_dcp"
NAMES = ("dcp_flatopt", "dcp_fsdp1_uop1_sharded", "dcp_fsdp2", "dcp_plain", "dcp_raw_optim")


def save(state: dict[str, Any], folder: Path, **options: Any) -> Path:
    """One process's save; `options` are those of torch's FileSystemWriter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, **options), no_dist=True)
    return folder


def loaded(folder: Path, beside: Path) -> Any:
    """The nested state_dict as torch reads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp_to_torch_save(folder, beside)
    return torch.load(beside, weights_only=False)


def copied(name: str, folder: Path) -> Path:
    """A sample that a test may change."""
    return Path(shutil.copytree(SAMPLES / name, folder / name))


def patched(folder: Path, change: Callable[[Metadata], object]) -> Path:
    """The folder with its metadata changed."""
    metadata = metadata_of(folder)
    change(metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata, protocol=4))
    return folder


def metadata_of(folder: Path) -> Any:
    """The metadata as torch's own objects; our samples are safe to load."""
    return pickle.loads((folder / ".metadata").read_bytes())  # noqa: S301


def assert_same(found: Raw, wanted: Any) -> None:
    """Each path, type, value and byte of ours is torch's."""
    ours, theirs = dict(flatten(found)), dict(flatten(wanted))
    assert set(ours) == set(theirs)
    for path, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert isinstance(ours[path], RawTensor), path
            assert (ours[path].spec.dtype, ours[path].spec.shape) == (
                str(value.dtype).removeprefix("torch."),
                tuple(value.shape),
            ), path
            assert bytes(ours[path].fetch()) == bytes_of(value), path
        else:
            assert (type(ours[path]), ours[path]) == (type(value), value), path
