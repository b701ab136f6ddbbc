"""A folder that holds several checkpoints beside each other, none of which is a part of another."""

import re
from collections.abc import Mapping
from typing import Any, Final

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.reader import Listing
from ckptcheck.state.raw import RawTree

MAX_LISTED: Final = 12

_MODEL: Final = re.compile(r"(?!.*optim).*(model|module|net|state_dict|weights|params)")
_OPTIMIZER: Final = re.compile(r"optim|.*optimizer|opt(_|$)")
_ONE_OF_MANY: Final = re.compile(r"rank|shard|(^|/)global_step|_states\.pt|(^|[_-])[tp]p[_-]?\d")
"""In the path of a file that holds one process's part of model and optimizer."""
_ROLE: Final = re.compile(
    r"(actor|critic|policy|value|reward|ref|reference|teacher|student|generator|discriminator|gen|disc|net_?[gd]|[gd]|"
    r"encoder|decoder|unet|vae|text_encoder)([._-].*|\d*)",
    re.IGNORECASE,
)
"""The name of one of the networks that are trained together."""


def check_one_checkpoint(listing: Listing, files: Mapping[str, RawTree]) -> None:
    """CheckpointError where two or more of a folder's files or sub-folders each hold a model with its optimizer."""
    whole = [label for label, tree in files.items() if not _ONE_OF_MANY.search(label) and _is_whole(tree)]
    places = list(dict.fromkeys(label.partition("/")[0] for label in whole))
    if len(places) < 2 or all(map(_ROLE.fullmatch, places)):
        return
    more = f" and {len(places) - MAX_LISTED} more" if len(places) > MAX_LISTED else ""
    shown = ", ".join(places[:MAX_LISTED])
    raise CheckpointError(f"{listing.path}: holds several checkpoints ({shown}{more}): name one of them")


def _is_whole(tree: RawTree) -> bool:
    """Whether one file, or one sub-folder of its own kind, holds a model and its optimizer."""
    if tree.container == "store":
        return True
    root = tree.root
    inner = [root, *root.values()] if isinstance(root, Mapping) and len(root) == 1 else [root]
    return any(_holds(one, _MODEL) and _holds(one, _OPTIMIZER) for one in inner)


def _holds(root: Any, form: re.Pattern[str]) -> bool:
    """Whether something that is not empty stands under a key of this form."""
    if not isinstance(root, Mapping):
        return False
    return any(
        isinstance(key, str) and form.match(key) and isinstance(value, Mapping | list | tuple) and len(value) > 0
        for key, value in root.items()
    )
