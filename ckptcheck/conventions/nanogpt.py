"""The `ckpt.pt` of nanoGPT, llama2.c and their many descendants."""

from collections.abc import Mapping
from typing import Final

from ckptcheck.conventions.parts import Parts
from ckptcheck.conventions.progress import is_counter
from ckptcheck.conventions.single_file import Root, SingleFile, sorted_beside

DESCRIBED: Final = ("model_args", "config", "best_val_loss")


def _wrote(root: Root, _: str) -> bool:
    """How its model is built stands beside the weights. Published files have no optimizer."""
    is_described = isinstance(root.get("model_args"), Mapping) and isinstance(root.get("model"), Mapping)
    return is_described and is_counter("iter_num", root.get("iter_num")) and "best_val_loss" in root


def _sort(root: Root) -> Parts:
    """`iter_num` counts completed steps: the file is written before the step of this number."""
    return sorted_beside(root, described=DESCRIBED)


NANOGPT: Final = SingleFile("nanogpt", _wrote, _sort)
