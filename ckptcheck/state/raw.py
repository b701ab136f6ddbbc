"""A checkpoint as its bytes say, before anybody asks who wrote it: nested plain values with lazy tensors as leaves.

A raw value is None, a bool, int, float, complex, str or bytes; a list, tuple, dict, set or frozenset of raw values;
a `RawTensor`; a `Foreign` object; or, all of them ordinary values to whoever does not ask, a `Named`, `StateDict` or
`Queue`.
Readers see to it that a raw value is finite: it does not contain itself, is at most `MAX_RAW_DEPTH` deep and has at
most `MAX_RAW_VALUES` values, counting one as often as it is reached.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ckptcheck.state.tensor import TensorSpec, fetch
from ckptcheck.state.tree import MAX_DEPTH

Raw: TypeAlias = Any
"""A raw value."""

MAX_RAW_DEPTH: Final = MAX_DEPTH
MAX_UNFOLDED_DEPTH: Final = 2 * MAX_RAW_DEPTH
"""An object that is taken apart counts for up to three levels where a raw value has two: see `Foreign.unfold`."""
MAX_RAW_VALUES: Final = 1 << 20
"""A number counts as much as a container, but for those of a long list of nothing else: see `readers.finite`."""


class Named(str):
    """The name of a class, function or constant that a pickle names: "torch.bfloat16". A str, but not an equal text.

    Nothing was imported. Python 2's module names are replaced by today's.
    """

    __slots__ = ()


class StateDict(dict[Raw, Raw]):
    """An OrderedDict of a pickle.

    `metadata` is what `Module.state_dict` notes beside it, as "features.1" -> {"version": 2} with a key for every
    module of the tree (a batch norm has version 2); None without.
    """

    __slots__ = ("metadata",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.metadata: Raw = None


class Queue(list[Raw]):
    """A deque of a pickle that has a bound, `maxlen`. A list to whoever does not ask."""

    __slots__ = ("maxlen",)

    def __init__(self, items: Iterable[Raw] = (), maxlen: Raw = None) -> None:
        super().__init__(items)
        self.maxlen = maxlen


@dataclass(frozen=True, slots=True)
class Storage:
    """A run of bytes that one tensor or several look into; equal storages are the same bytes.

    `file` is the file's path relative to the checkpoint, "" where the checkpoint is one file; `key` names the
    storage in it; `nbytes` is its whole length.
    """

    file: str
    key: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Shard:
    """Where a tensor that is one rank's piece lies in the whole: both tuples as long as the whole has dimensions."""

    whole_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    rank: int | None = None


ReadInto: TypeAlias = Callable[[int, memoryview], None]


@dataclass(frozen=True, slots=True, eq=False)
class RawTensor:
    """A dense tensor as a file describes it; its bytes are read when somebody asks (a `TensorRef`).

    Attributes:
        spec: dtype and logical shape.
        read_into: fills a buffer with logical row-major little-endian bytes from a byte position on; views,
            strides, byte order and compression are undone. Raises DamagedCheckpointError where bytes are missing.
        storage: what it looks into; None for values that lie in the pickle itself.
        offset: first element in the storage, in elements.
        stride: in elements; None for row-major.
        requires_grad: None where the file does not say.
        is_parameter: whether it was pickled as a Parameter; None where the file does not tell one from a buffer.
        class_name: class of a subclass or wrapper, as "torch.Tensor".
        device: where it was saved from, as "cpu" or "cuda:0"; "" where the file does not say.
        shard: set where these bytes are one rank's piece of a larger tensor.
        attributes: what else was pickled with it, by name: python attributes of a tensor, a buffer or a subclass.
    """

    spec: TensorSpec
    read_into: ReadInto
    storage: Storage | None = None
    offset: int = 0
    stride: tuple[int, ...] | None = None
    requires_grad: bool | None = None
    is_parameter: bool | None = None
    class_name: str = "torch.Tensor"
    device: str = ""
    shard: Shard | None = None
    attributes: Mapping[str, Raw] | None = None

    def fetch(self) -> memoryview:
        """All bytes in fresh memory, `spec.nbytes` long."""
        return fetch(self)

    @property
    def place(self) -> tuple[Storage, int, tuple[int, ...] | None, TensorSpec] | None:
        """What two tied tensors have in common; None where there is no storage or no element."""
        return (self.storage, self.offset, self.stride, self.spec) if self.storage and self.spec.numel else None


@dataclass(slots=True, eq=False)
class Foreign:
    """An object of a class that was not imported: its name and what the pickle would have built it from.

    `class_name` is "module.Name". `arguments` are what its constructor would have got, `state` what would have been
    set (usually a dict of attributes; None without), `items` what would have been appended (a list) or set (a dict).
    A tensor of several parts (sparse, nested, quantised, a wrapper subclass) is Foreign too, with its parts by name
    in `state` and, where the file says it, the logical `spec`.
    """

    class_name: str
    arguments: tuple[Raw, ...] = ()
    state: Raw = None
    items: list[Raw] | dict[Raw, Raw] | None = None
    spec: TensorSpec | None = None

    def unfold(self) -> Raw:
        """What it holds as one plain raw value: its attributes where it has only these, else a dict of all of it."""
        parts: dict[str, Raw] = {}
        if self.arguments:
            parts["args"] = self.arguments
        if self.state is not None:
            parts["state"] = self.state
        if self.items is not None:
            parts["items"] = self.items
        return next(iter(parts.values())) if len(parts) == 1 else parts


class Danger(StrEnum):
    """What a global that a pickle names would do where a pickle is executed."""

    PLAIN = "plain"
    """Builds tensors, containers and numbers."""
    UNKNOWN = "unknown"
    """A class or function of some package: runs that package's code."""
    RUNS_CODE = "runs-code"
    """Can run a command or any code."""


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function that a pickle names. Nothing was imported."""

    file: str
    name: str
    danger: Danger
    count: int = 1


class Flaw(StrEnum):
    """What can be wrong with a checkpoint's files."""

    UNREADABLE = "unreadable"
    CHECKSUM = "checksum"
    INCOMPLETE = "incomplete"
    """A half save: no data.pkl, a missing shard or rank file, a tracker that names a missing folder."""
    SHARD_SET = "shard-set"
    """Shards that do not fit each other or their index: surplus, overlapping, of another save."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is wrong with a file. `file` is relative to the checkpoint; `said` is one sentence."""

    flaw: Flaw
    file: str
    said: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


Watch: TypeAlias = Callable[[Hashable, int, memoryview], None]
"""Sees bytes while they are verified: what their position counts in, that position, and the bytes, which are good only
until the call returns."""


class Stretch(NamedTuple):
    """Neighbouring bytes of a tensor, where a `Watch` sees them.

    `home` is what `begin` counts in: a file's path, or a compressed member, whose unfolded bytes count. `start` is
    the first one's position in the tensor.
    """

    home: Hashable
    begin: int
    start: int
    nbytes: int


def stretches(read_into: ReadInto, start: int, nbytes: int) -> tuple[Stretch, ...] | None:
    """Where `nbytes` bytes of a tensor lie, from byte `start` on, which counts as their first.

    None where they lie in no plain order, or nobody can say. Raises CheckpointError where the place cannot be read.
    """
    find: Callable[[int, int], tuple[Stretch, ...] | None] | None = getattr(read_into, "stretches", None)
    return find(start, nbytes) if find is not None else None


class Verify(Protocol):
    """Reads the bytes of a member, shows them to `watch`, and returns what is wrong with them."""

    def __call__(self, watch: Watch | None = None) -> Defect | None:
        """None where nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Member:
    """A run of stored bytes that carries a checksum, or could: a zip member, a DCP item, a payload.

    `verify` reads the bytes and returns what is wrong with them, None where the checksum holds; on the way it can show
    them to somebody, so that they are read once. `has_checksum` is False where the file carries none: then `verify`
    only reads.
    """

    file: str
    name: str
    nbytes: int
    has_checksum: bool
    verify: Verify


@dataclass(frozen=True, slots=True)
class RawTree:
    """A checkpoint, read as far as its description.

    Attributes:
        path: as the user gave it.
        container: "torch-zip", "torch-legacy", "torch-tar", "torch-sharded", "pickle", "safetensors",
            "safetensors-sharded", "json", "dcp", "folder", "zip", "tar" or "store".
        root: the raw value. Of a folder or an archive: a dict of relative path (with "/") to the file's raw value.
        nbytes: size of all files.
        files: of a folder or an archive, each file's own tree by relative path.
        members: what can be held against a checksum, in file order, those of `files` included.
        globals: what its pickles name, those of `files` included.
        defects: what is wrong and did not stop the reading.
        facts: what the container says beside the content: "byteorder", "checksums", "metadata.format", ...
        check_unchanged: raises DamagedCheckpointError where a file has changed since it was opened.
    """

    path: Path
    container: str
    root: Raw
    nbytes: int
    files: Mapping[str, "RawTree"] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    globals: tuple[Global, ...] = ()
    defects: tuple[Defect, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    check_unchanged: Callable[[], None] = lambda: None

    @property
    def layout(self) -> str:
        """The container in a word: of a folder where only JSON lies beside one set of shards, that set's."""
        held = [one for one in self.files.values() if one.container != "json"]
        return held[0].container if len(held) == 1 and held[0].container.endswith("-sharded") else self.container


_NO_CONTAINERS: Final = frozenset({bool, int, float, str, bytes, complex, type(None), Named})


def tensors_in(value: Raw) -> Iterator[RawTensor]:
    """Every tensor in a raw value, in order, those that it carries after each; one as often as it is reached."""
    waiting: list[Raw] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, RawTensor):
            yield one
            waiting.append(one.attributes)
        elif isinstance(one, Foreign):
            waiting.append(one.unfold())
        elif isinstance(one, Mapping):
            waiting.extend(reversed([inner for inner in one.values() if type(inner) not in _NO_CONTAINERS]))
        elif isinstance(one, list | tuple | set | frozenset) and not _NO_CONTAINERS.issuperset(map(type, one)):
            waiting.extend(reversed([inner for inner in one if type(inner) not in _NO_CONTAINERS]))
