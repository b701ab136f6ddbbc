"""Which file of a DeepSpeed folder is which: model states, optimizer states of each rank, universal parts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.state.raw import Raw

_MODEL: Final = re.compile(r"(?:zero_pp_rank_(?P<dp>\d+)_)?mp_rank_(?P<mp>\d+)(?:_\d+)?_model_states\.pt")
_OPTIM: Final = re.compile(r"(?:(?:bf16|fp16)_)?zero_pp_rank_(?P<dp>\d+)_mp_rank_(?P<mp>\d+)(?:_\d+)?_optim_states\.pt")
_UNIVERSAL: Final = re.compile(r"zero/(?P<name>[^/]+)/(?P<key>[^/]+)\.pt")
_NUMBER: Final = re.compile(r"(\d+)")
UNIVERSAL_STATE: Final = "zero/optimizer_state.pt"


@dataclass(slots=True)
class Files:
    """One tag's files.

    Attributes:
        tag: the folder's name, "" where the checkpoint is that folder itself.
        model: model states by (tensor-parallel rank, data-parallel rank); stages 0 to 2 have data rank 0 only.
        optim: optimizer states by (tensor-parallel rank, data-parallel rank).
        universal: by parameter name and state key.
        universal_state: what `optimizer_state.pt` holds; None without.
        others: files that are none of these, by path.
        tags: all tags of the folder.
    """

    tag: str = ""
    model: dict[tuple[int, int], Mapping[Any, Raw]] = field(default_factory=dict)
    optim: dict[tuple[int, int], Mapping[Any, Raw]] = field(default_factory=dict)
    universal: dict[str, dict[str, Raw]] = field(default_factory=dict)
    universal_state: Mapping[Any, Raw] | None = None
    others: dict[str, Raw] = field(default_factory=dict)
    tags: tuple[str, ...] = ()

    @property
    def first(self) -> Mapping[Any, Raw]:
        """The model states of the first rank."""
        return self.model[min(self.model)] if self.model else {}


def is_deepspeed(files: Mapping[str, Raw]) -> bool:
    """Whether a folder's files are DeepSpeed's, told by names and by a file's own keys."""
    return any(
        _MODEL.fullmatch(path.rpartition("/")[2]) and isinstance(value, Mapping) and "module" in value
        for path, value in files.items()
    )


def sort_files(root: Mapping[str, Raw]) -> Files:
    """The files of the newest tag, told by its number; a reader that finds a tracker keeps the tracked one only."""
    tags = sorted({path.rpartition("/")[0] for path in root if _MODEL.fullmatch(path.rpartition("/")[2])}, key=_natural)
    files = Files(tags[-1], tags=tuple(tags))
    prefix = f"{files.tag}/" if files.tag else ""
    for path, value in root.items():
        is_inside = path.startswith(prefix)
        if not is_inside and path.rpartition("/")[0] in tags:
            continue
        if not is_inside or not _take(files, path.removeprefix(prefix), value):
            files.others[path] = value
    return files


def _take(files: Files, name: str, value: Raw) -> bool:
    """Put one file where it belongs; False where it is none of DeepSpeed's."""
    if match := _UNIVERSAL.fullmatch(name):
        files.universal.setdefault(match["name"], {})[match["key"]] = value
        return True
    if not isinstance(value, Mapping):
        return False
    if name == UNIVERSAL_STATE:
        files.universal_state = value
        return True
    for pattern, kept in ((_MODEL, files.model), (_OPTIM, files.optim)):
        if match := pattern.fullmatch(name):
            kept[int(match["mp"]), int(match["dp"] or 0)] = value
            return True
    return False


def _natural(tag: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(tag)]
