"""The `epoch_N.pt` files of open_clip's trainer.

Source: open_clip_torch 3.3.0, `open_clip_train/main.py`; averages and counters of steps in later ones.
"""

from collections.abc import Mapping
from typing import Final

from ckptcheck.conventions.groups import is_optimizer
from ckptcheck.conventions.parts import Parts
from ckptcheck.conventions.progress import is_counter, number_of
from ckptcheck.conventions.single_file import Root, SingleFile, sorted_beside

TEMPERATURE: Final = "logit_scale"
"""What every model of the library learns beside its encoders."""
DESCRIBED: Final = ("name",)


def _wrote(root: Root, _: str) -> bool:
    """The keys are anybody's; the model's temperature is not."""
    weights = root.get("state_dict")
    return (
        isinstance(root.get("name"), str)
        and is_counter("epoch", root.get("epoch"))
        and is_optimizer(root.get("optimizer"))
        and isinstance(weights, Mapping)
        and any(isinstance(key, str) and key.rpartition(".")[2] == TEMPERATURE for key in weights)
    )


def _sort(root: Root) -> Parts:
    """The schedule follows from the number of steps, which is a multiple of the completed epochs."""
    parts = sorted_beside(root, described=DESCRIBED)
    epoch = number_of(root["epoch"])
    if epoch is not None and number_of(root.get("global_step")) is None:
        parts.recorded_step = f"epoch {epoch}"
    return parts


OPEN_CLIP: Final = SingleFile("open-clip", _wrote, _sort)
