"""Several faults of different families in one training: the first in time is the cause, and all are named.

Only faults that stay visible beside each other are put together: where a load has broken what training computes, what
another fault does to the steps that follow cannot be told from that.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any, Final

from tests.catalogue.cells import BACKGROUNDS, STATEFUL
from tests.catalogue.running import Cell
from tests.catalogue.spec import Spec
from tests.catalogue.table import FAULTS

COMBINATIONS: Final[tuple[tuple[str, ...], ...]] = (
    ("state-never-loaded", "generator-of-torch-lost"),
    ("state-never-loaded", "data-begins-anew"),
    ("state-never-loaded", "schedule-not-loaded"),
    ("state-never-loaded", "module-renamed-strict-false"),
    ("state-never-loaded", "average-not-loaded"),
    ("state-of-one-parameter-missing", "schedule-not-loaded"),
    ("state-of-one-parameter-missing", "buffers-not-saved"),
    ("counters-at-zero", "generator-of-python-lost"),
    ("counters-at-zero", "schedule-not-loaded"),
    ("counters-at-zero", "one-bit-flipped"),
    ("moments-through-bfloat16", "data-begins-anew"),
    ("moments-through-bfloat16", "scaler-not-loaded"),
    ("state-of-two-parameters-swapped", "generator-of-numpy-lost"),
    ("state-of-two-parameters-swapped", "schedule-not-loaded"),
    ("schedule-not-loaded", "generator-of-torch-lost"),
    ("schedule-not-loaded", "data-begins-anew"),
    ("schedule-not-loaded", "scaler-not-loaded"),
    ("generator-of-torch-lost", "data-begins-anew"),
    ("generator-of-numpy-lost", "buffers-not-saved"),
    ("generator-of-python-lost", "average-not-loaded"),
    ("data-begins-anew", "gradients-of-the-window-lost"),
    ("buffers-not-saved", "scaler-not-loaded"),
    ("average-not-loaded", "gradients-of-the-window-lost"),
    ("one-bit-flipped", "generator-of-torch-lost"),
    ("one-bit-flipped", "schedule-not-loaded"),
    ("module-renamed-strict-false", "counters-at-zero"),
    ("weights-through-bf16", "data-begins-anew"),
    ("tied-weights-come-back-untied", "generator-of-torch-lost"),
    ("thawed-by-the-load", "schedule-not-loaded"),
    ("thawed-by-the-load", "generator-of-torch-lost"),
    ("decay-of-another-configuration", "generator-of-torch-lost"),
    ("left-in-eval-mode", "data-begins-anew"),
    ("value-set-again-at-start", "generator-of-python-lost"),
    ("counter-one-behind", "generator-of-torch-lost"),
    ("save-draws-a-sample", "state-never-loaded"),
    ("save-takes-a-batch", "schedule-not-loaded"),
    ("save-switches-dropout-off", "counters-at-zero"),
    ("frozen-and-given-zeros", "schedule-not-loaded"),
    ("frozen-and-given-zeros", "save-draws-a-sample"),
    ("frozen-with-a-stale-gradient", "data-begins-anew"),
    ("state-never-loaded", "schedule-not-loaded", "generator-of-torch-lost"),
    ("schedule-not-loaded", "generator-of-torch-lost", "data-begins-anew"),
    ("module-renamed-strict-false", "counters-at-zero", "average-not-loaded"),
    ("thawed-by-the-load", "schedule-not-loaded", "counters-at-zero"),
    ("save-draws-a-sample", "one-bit-flipped", "schedule-not-loaded"),
    ("frozen-and-given-zeros", "state-of-one-parameter-missing", "generator-of-python-lost"),
)
"""Names of faults; each stands for a mechanism of another family."""

OPEN: Final = frozenset(
    {
        ("left-in-eval-mode", "data-begins-anew"),
        ("value-set-again-at-start", "generator-of-python-lost"),
    }
)
"""Combinations of which the second fault is not named yet: the rules cannot tell it from what has no effect."""


def combined_cells() -> Iterator[Cell]:
    """Each combination in one training, with another optimizer from one to the next."""
    optimizers = cycle(STATEFUL[:-1])  # the last one keeps no state
    for names in COMBINATIONS:
        yield Cell(_spec(names, next(optimizers)), names)


def _spec(names: tuple[str, ...], optimizer: str) -> Spec:
    """The first training in which all of them make a difference."""
    needs: dict[str, Any] = {}
    for name in names:
        for key, value in FAULTS[name].specs.items():
            assert needs.setdefault(key, value) == value, f"{' and '.join(names)} need different trainings"
    for other in (optimizer, *STATEFUL):
        for background in BACKGROUNDS:
            spec = replace(Spec(optimizer=other), **{**background, **needs})
            if all(FAULTS[name].applies(spec) for name in names):
                return spec
    raise AssertionError(f"no training has what {' and '.join(names)} need")
