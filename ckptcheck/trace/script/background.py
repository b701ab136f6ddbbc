"""Digests beside the training: what rests until the next update is measured while the script goes on.

Everything is done in the order in which it was handed over. Tensors handed over are let go of once they are measured.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.items import Item, Sample
from ckptcheck.trace.measuring import Measurer

Samples: TypeAlias = dict[Item, Sample]


class Background:
    """Measures and writes. Whatever goes wrong is raised by the next call."""

    def __init__(self, measurer: Measurer, writer: TraceWriter) -> None:
        self._measurer = measurer
        self._writer = writer

    def measure(self, samples: Samples, leaves: Iterable[tuple[Item, Any]]) -> None:
        """Measure leaves that rest until the next `wait_all`, into `samples`."""
        for item, leaf in leaves:
            samples[item] = self._measurer.leaf(leaf)

    def measure_gradients(self, samples: Samples, gradients: Iterable[tuple[Item, Any]]) -> None:
        """Measure gradients that rest until the next `wait_gradients`, into `samples`; None is one that is absent."""
        for item, gradient in gradients:
            samples[item] = self._measurer.gradient(gradient)

    def wait_gradients(self) -> None:
        """Return when all gradients handed over are measured."""

    def wait_all(self) -> None:
        """Return when everything handed over is measured."""

    def write(self, step: int, moment: str, samples: Samples) -> None:
        """Write a moment whose samples have all been handed over."""
        self._writer.write(step, moment, samples.items())

    def close(self) -> None:
        """Finish everything, and measure no more."""
