"""The time that a script waits for its recording."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Adds up what is spent inside of `runs`, less what of it is spent inside of `rests`, in seconds."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Time that counts."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.spent_s += time.perf_counter() - started

    @contextmanager
    def rests(self) -> Iterator[None]:
        """Time within it that does not: what the parent asked to wait for."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.spent_s -= time.perf_counter() - started
