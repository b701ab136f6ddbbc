"""The files of a folder or archive by what trainers call them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ckptcheck.state.raw import Raw, RawTree

UNORDERED: Final = ("safetensors", "safetensors-sharded", "torch-sharded")
"""Containers that sort their tensors, or whose index does, so that a model's order is lost."""
_SUFFIX: Final = re.compile(r"\.(safetensors|bin|pt|pth|pkl|ckpt|json|tar)$")


def files_of(raw: RawTree) -> Mapping[str, Raw]:
    """Each file's raw value by its relative path; empty for a checkpoint that is one file."""
    return raw.root if raw.container in ("folder", "zip", "tar") and isinstance(raw.root, Mapping) else {}


def matching(raw: RawTree, pattern: str) -> Iterator[tuple[re.Match[str], Raw]]:
    """The files at the top whose whole path matches, by the number in the match where there is one."""
    found = [(match, value) for path, value in files_of(raw).items() if (match := re.fullmatch(pattern, path))]
    yield from sorted(found, key=lambda one: int(one[0]["number"] or 0) if "number" in one[0].groupdict() else 0)


def first_of(raw: RawTree, *paths: str) -> str | None:
    """The first of these files that is there."""
    return next((path for path in paths if path in files_of(raw)), None)


def keeps_order(raw: RawTree, path: str) -> bool:
    """Whether a file keeps the order in which a model registered its parameters."""
    tree = raw.files.get(path, raw)
    return tree.container not in UNORDERED and not tree.facts.get("unordered")


def stem(path: str) -> str:
    """A path without the suffix of a known format."""
    return _SUFFIX.sub("", path)


def unwrapped(value: Raw, key: str) -> Raw:
    """What lies under `key` where it is the only one: distributed folders wrap a model or an optimizer in a dict."""
    return value[key] if isinstance(value, Mapping) and set(value) == {key} else value


def by_stem(files: Mapping[str, Raw]) -> dict[str, Any]:
    """The files under their stems where these are unlike, else under their paths."""
    count = Counter(stem(path) for path in files)
    found = {stem(path) if count[stem(path)] == 1 else path: value for path, value in files.items()}
    return found if len(found) == len(files) else dict(files)
