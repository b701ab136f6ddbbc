"""The `.pth.tar` files of timm's `CheckpointSaver`, which are zip archives of torch's.

Source: timm 1.0.31, `timm.utils.checkpoint_saver` and `timm.models._helpers.resume_checkpoint`.
"""

from collections.abc import Mapping
from typing import Final

from ckptcheck.conventions.parts import Parts
from ckptcheck.conventions.progress import number_of
from ckptcheck.conventions.single_file import Root, SingleFile, sorted_beside

DESCRIBED: Final = ("arch", "version", "args", "metric", "saver")
EPOCH: Final = "epoch"


def _wrote(root: Root, _: str) -> bool:
    """The version of the format tells it from the many scripts that save an epoch, an architecture and a state_dict."""
    return (
        isinstance(root.get("arch"), str)
        and type(root.get("version")) is int
        and isinstance(root.get("state_dict"), Mapping)
        and EPOCH in root
        and "optimizer" in root
    )


def _sort(root: Root) -> Parts:
    """The schedule follows from the epoch and is not saved. Steps are not counted.

    Of version 2 the epoch is the last that was completed, from 0; before it is the one to begin with.
    """
    parts = sorted_beside(root, described=DESCRIBED)
    epoch = number_of(root[EPOCH])
    if epoch is not None:
        parts.recorded_step = f"{EPOCH} {epoch}" + (", from 0" if root["version"] > 1 else "")
    return parts


TIMM: Final = SingleFile("timm", _wrote, _sort)
