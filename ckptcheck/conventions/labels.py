"""What a file calls each of its optimizers and schedulers, where it calls them anything."""

import re
from collections.abc import Collection
from typing import Final

OPTIMIZER_KEYS: Final = frozenset(
    {"optimizer", "optimizer_state_dict", "optim", "optimizers", "optimizer_state", "opt"}
)
"""Usual names of an optimizer, which do not tell it from another."""
_IN_LIST: Final = re.compile(r"\[\d+\]$")


def optimizer_labels(paths: Collection[str]) -> tuple[str, ...]:
    """The label of each optimizer by its path in the file; "" for items of a list, and for one under a usual name."""
    if len(paths) == 1:
        return tuple("" if _is_usual(path) else path for path in paths)
    return tuple("" if _IN_LIST.search(path) else path for path in paths)


def item_places(paths: Collection[str]) -> dict[str, str]:
    """The place of each, as "[0]", where all are items of one list; else none."""
    of_lists = {_IN_LIST.sub("", path) for path in paths}
    if len(of_lists) != 1 or not all(_IN_LIST.search(path) for path in paths):
        return {}
    return {path: path[path.rindex("[") :] for path in paths}


def _is_usual(path: str) -> bool:
    return re.split(r"[./]", path)[-1].lower() in OPTIMIZER_KEYS or bool(_IN_LIST.search(path))
