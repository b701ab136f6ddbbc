"""The end of memory, told as any other bound."""

from collections.abc import Iterator
from contextlib import contextmanager

from ckptcheck.errors import CheckpointError


@contextmanager
def memory_is_bounded() -> Iterator[None]:
    """CheckpointError in place of MemoryError, wherever within it was raised; also a decorator."""
    try:
        yield
    except MemoryError:
        said = "reading this needs more memory than there is: give the process more, or name a smaller part of it"
        raise CheckpointError(said) from None
