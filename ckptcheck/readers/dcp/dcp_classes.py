"""The classes that a `.metadata` file is made of. A name that torch does not know is damage: its own reader raises."""

from collections.abc import Iterable
from typing import Final

from ckptcheck.state.raw import Danger, Foreign, Global, Raw

WHOLE: Final = frozenset({"Metadata"})
TENSOR: Final = frozenset({"TensorStorageMetadata"})
VALUE: Final = frozenset({"BytesStorageMetadata"})
CHUNK: Final = frozenset({"ChunkStorageMetadata"})
PROPERTIES: Final = frozenset({"TensorProperties"})
INDEX: Final = frozenset({"MetadataIndex"})
EXTENT: Final = frozenset({"_StorageInfo", "_HFStorageInfo"})

_TORCH: Final = "torch.distributed."
_METADATA: Final = "torch.distributed.checkpoint.metadata."
_COMMON: Final = (
    *(
        f"{_METADATA}{name}"
        for name in (
            "StorageMeta", *WHOLE, "_MEM_FORMAT_ENCODING", *TENSOR, *VALUE, *CHUNK, *PROPERTIES, *INDEX,
        )
    ),
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.serialization._get_layout", "torch.Size", "pathlib.PosixPath", "pathlib.PurePosixPath",
    "pathlib.WindowsPath", "collections.OrderedDict",
)  # fmt: skip
"""What nearly every `.metadata` names."""
MAX_CHANGED: Final = 2
"""Letters of a name that differ, in place, where it was changed and is not another's."""


def is_of(value: Raw, names: frozenset[str]) -> bool:
    """Whether an object is of one of torch's classes of these names, from whichever module of torch's."""
    if not isinstance(value, Foreign):
        return False
    return value.class_name.startswith(_TORCH) and value.class_name.rpartition(".")[2] in names


def is_extent(value: Raw) -> bool:
    """Whether an object says where bytes lie: of torch's class, or of a storage writer's of another package."""
    return is_of(value, EXTENT) or (isinstance(value, Foreign) and not value.class_name.startswith("torch."))


def named(value: Raw) -> str:
    """The class of an object, in a short text for a message."""
    name = value.class_name if isinstance(value, Foreign) else type(value).__name__
    return ascii(name[:120])[1:-1]


def changed_name(globals_: Iterable[Global]) -> str | None:
    """The first name that is one of torch's with a letter or two changed; None where there is none.

    Other names may be a planner's, or those of a newer torch.
    """
    unknown = [one.name for one in globals_ if one.danger is not Danger.PLAIN and one.name not in _COMMON]
    return next((name for name in unknown if any(_is_changed(name, known) for known in _COMMON)), None)


def _is_changed(name: str, known: str) -> bool:
    if len(name) != len(known):
        return False
    return sum(one != other for one, other in zip(name, known, strict=True)) <= MAX_CHANGED
