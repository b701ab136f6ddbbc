"""Files of Megatron-LM's model-parallel ranks that are not there, told by the arguments that each rank's file holds."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ckptcheck.state.raw import Foreign, Raw, RawTree

_FILE: Final = re.compile(r"(?P<folder>(?:.+/)?)(?P<rank>mp_rank_\d{2,6}(?:_\d{1,6}){0,2})/model_optim_rng\.pt")
_BUCKETS: Final = "distrib_optim.pt"
MAX_RANKS: Final = 1 << 16
"""Ranks that arguments may name: they may be damaged."""
MAX_TOLD: Final = 8


def lost_ranks(files: Mapping[str, RawTree]) -> Iterator[tuple[str, str]]:
    """The folder and one sentence for each rank, and each distributed optimizer's file, that is missing."""
    found: dict[str, dict[str, Raw]] = {}
    for label, tree in files.items():
        match = _FILE.fullmatch(label)
        if match:
            found.setdefault(match["folder"], {})[match["rank"]] = tree.root
    for folder, ranks in found.items():
        lacking = [one for one in _expected(next(iter(ranks.values()))) if not _is_there(one, ranks)]
        if lacking:
            more = f" and {len(lacking) - MAX_TOLD} more" if len(lacking) > MAX_TOLD else ""
            told = f"{', '.join(lacking[:MAX_TOLD])}{more}"
            verb = "is" if len(lacking) == 1 else "are"
            said = f"{told} {verb} not there, though the arguments in the other ranks' files name as many ranks"
            yield folder.rstrip("/"), said
        for rank, root in ranks.items():
            if f"{folder}{rank}/{_BUCKETS}" not in files and _keeps_buckets(root):
                said = f"{_BUCKETS} is not there, which holds the state of the distributed optimizer"
                yield f"{folder}{rank}", said


def _expected(root: Raw) -> list[str]:
    """The folders of all tensor- and pipeline-parallel ranks, without the experts'."""
    tensor, pipeline = (_size(root, f"{kind}_model_parallel_size") for kind in ("tensor", "pipeline"))
    if tensor * pipeline > MAX_RANKS:
        return []
    places = [(one, other) for one in range(tensor) for other in range(pipeline)]
    return [f"mp_rank_{one:02d}" + (f"_{other:03d}" if pipeline > 1 else "") for one, other in places]


def _size(root: Raw, name: str) -> int:
    """How many ranks an argument says there are; 1 where it does not say it."""
    held = root.get("args") if isinstance(root, Mapping) else None
    arguments = held.state if isinstance(held, Foreign) else held
    value = arguments.get(name) if isinstance(arguments, Mapping) else None
    return value if type(value) is int and 0 < value <= MAX_RANKS else 1


def _is_there(rank: str, ranks: Mapping[str, Raw]) -> bool:
    return any(one == rank or one.startswith(f"{rank}_") for one in ranks)


def _keeps_buckets(root: Raw) -> bool:
    """Whether an optimizer's groups list no parameters, as those of the distributed optimizer."""
    optimizer = root.get("optimizer") if isinstance(root, Mapping) else None
    chain = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
    return any(_has_bare_groups(one) for one in chain)


def _has_bare_groups(value: Any) -> bool:
    inner = value.get("optimizer") if isinstance(value, Mapping) else None
    groups = inner.get("param_groups") if isinstance(inner, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(groups, list | tuple) or not groups:
        return False
    return "state" not in inner and all(isinstance(one, Mapping) and "params" not in one for one in groups)
