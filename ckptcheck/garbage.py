"""Python's search for unreachable cycles, kept from walking over large descriptions again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_search() -> Iterator[None]:
    """Searches no garbage meanwhile: among the many containers of a description there is none, and it takes long.

    It holds for the whole process. Afterwards it is as it was before; also a decorator.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
