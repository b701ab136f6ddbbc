"""How many bytes stand behind values of a file: of their texts, and of the tensors among them."""

from collections.abc import Collection
from typing import Final

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.source import Source
from ckptcheck.readers.tensor_bytes import Gathered, Held
from ckptcheck.state.raw import Named, Raw, RawTensor

MAX_EXPANDED_BYTES: Final = 1 << 30
"""Logical bytes that the tensors of one file may have beyond those of their storages, however small these are."""
_VIEWS: Final = 64
"""So often may tensors look at the same bytes of a large file."""
_TEXTS: Final = frozenset({str, Named, bytes})
_LARGE: Final = 1 << 62
"""Integers below are as short as any number."""
_BITS: Final = 8


def check_reach(tensor_bytes: int, storage_bytes: int, source: Source) -> None:
    """CheckpointError where tensors of a file have far more logical bytes together than their storages.

    Strides of 0 make a tensor of any size from one number, and any number of tensors can look into one storage.
    """
    stored = min(storage_bytes, source.nbytes)  # compressed ones are larger than the file
    if tensor_bytes > MAX_EXPANDED_BYTES + storage_bytes + _VIEWS * stored:
        raise CheckpointError(
            f"{source}: its tensors have {tensor_bytes} bytes together and look into {storage_bytes} bytes of "
            f"storages: too much to be read one by one; save expanded tensors as they were before .expand()"
        )


def reach_of(values: Collection[Raw]) -> tuple[int, int]:
    """Bytes of texts, large integers and arrays that lie in the pickle, and logical bytes of tensors, among `values`.

    Containers among them are not looked into.
    """
    kinds = set(map(type, values))
    texts = tensors = 0
    if not kinds.isdisjoint(_TEXTS):
        texts += sum(map(len, values if kinds <= _TEXTS else [one for one in values if type(one) in _TEXTS]))
    if int in kinds:
        texts += _large_bytes(values if len(kinds) == 1 else [one for one in values if type(one) is int])
    if RawTensor in kinds:
        for one in values:
            if type(one) is RawTensor and _is_in_pickle(one):
                texts += one.spec.nbytes
            elif type(one) is RawTensor:
                tensors += one.spec.nbytes
    return texts, tensors


def _large_bytes(numbers: Collection[int]) -> int:
    if min(numbers) > -_LARGE and max(numbers) < _LARGE:
        return 0
    return sum(map(int.bit_length, numbers)) // _BITS


def _is_in_pickle(tensor: RawTensor) -> bool:
    read = tensor.read_into
    return tensor.storage is None and isinstance(read, Gathered) and isinstance(read.run, Held)
