"""Files that torch.save writes, read by our reader, and pickles as one reads them alone."""

import io
from pathlib import Path
from typing import Any

import torch

from ckptcheck.readers.pickle.pickles import Pickled, read_pickle
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.torch.torch_zip import read_torch_zip
from ckptcheck.state.raw import Raw, RawTree


def read_zip(path: Path) -> RawTree:
    """The file as the reader of torch's archives describes it."""
    reading = Reading(path, strict=True)
    return read_torch_zip(reading.pool.open(path), reading)


def saved(folder: Path, value: Any, **options: Any) -> RawTree:
    """`value` saved by torch.save, and read."""
    path = folder / "saved.pt"
    torch.save(value, path, **options)
    return read_zip(path)


def unpickled(data: bytes, **options: Any) -> Pickled:
    """A pickle, read."""
    return read_pickle(data, where="a pickle", **options)


def value_of(data: bytes) -> Raw:
    """What a pickle holds."""
    return unpickled(data).value


def saved_bytes(value: Any) -> bytes:
    """`value` as torch.save writes it."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
