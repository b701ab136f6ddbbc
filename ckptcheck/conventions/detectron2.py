"""Files of fvcore's `Checkpointer`, as detectron2 writes them.

Source: fvcore 0.1.5, `fvcore.common.checkpoint`; detectron2, `detectron2.engine.train_loop`. Older ones keep optimizer
and scheduler at the root, newer ones in a trainer and its hooks.
"""

import re
from collections.abc import Mapping
from typing import Final

from ckptcheck.conventions.parts import Parts
from ckptcheck.conventions.progress import number_of
from ckptcheck.conventions.single_file import Root, SingleFile, sorted_beside

ITERATION: Final = "iteration"
TRAINER: Final = "trainer"
INNER: Final = "_trainer"
"""The loop that a detectron2 trainer wraps, which has the optimizer."""
OLDER: Final = frozenset({"model", "optimizer", "scheduler", ITERATION})
_FILE: Final = re.compile(r"model_(final|(?P<number>\d{7,}))\.pth")


def _wrote(root: Root, file: str) -> bool:
    """The trainer tells it; of an older one, whose keys are anybody's, that its iterations count from 0."""
    iteration = number_of(root.get(ITERATION))
    if iteration is None or not isinstance(root.get("model"), Mapping):
        return False
    trainer = root.get(TRAINER)
    if isinstance(trainer, Mapping):
        return ITERATION in trainer and isinstance(trainer.get(INNER, trainer.get("optimizer")), Mapping)
    return set(root) == OLDER and _counts_from_0(root["scheduler"], iteration, file)


def _counts_from_0(scheduler: object, iteration: int, file: str) -> bool:
    """Its schedule has come one further than it says, or the file has the name that goes with it."""
    last_epoch = number_of(scheduler.get("last_epoch")) if isinstance(scheduler, Mapping) else None
    if last_epoch is not None and 0 <= last_epoch - iteration <= 1 and last_epoch:
        return last_epoch == iteration + 1
    match = _FILE.fullmatch(file)
    return match is not None and (match["number"] is None or int(match["number"]) == iteration)


def _sort(root: Root) -> Parts:
    """The iteration is that of the last completed step, from 0."""
    parts = sorted_beside(root)
    iteration = number_of(root[ITERATION])
    if iteration is not None:
        parts.step, parts.recorded_step = iteration + 1, f"{ITERATION} {iteration}, from 0"
    return parts


DETECTRON2: Final = SingleFile("detectron2", _wrote, _sort)
