"""Runs the stack machine of a pickle without the pickle module: nothing is imported, nothing of the file is called.

A global becomes its name (`Named`), a call of it a value from our own table of builders or a `Foreign` object. The
opcodes are in `ckptcheck.readers.pickle.pickle_opcodes`. Time and memory are linear in the length of the pickle.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Final, TypeAlias

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.state.raw import MAX_RAW_VALUES, Danger, Foreign, Named, Raw, RawTensor, StateDict
from ckptcheck.state.tensor import TensorSpec

MAX_OPCODES: Final = 16_000_000
"""Opcodes of one pickle; its stack can hold no more values than that."""
MAX_MEMO: Final = MAX_RAW_VALUES
"""Values that one pickle remembers."""
MAX_MARKS: Final = 10_000
"""Containers begun and not ended."""
MAX_SPENT: Final = MAX_RAW_VALUES
"""Values hashed or copied from one container into another, over a whole pickle."""
MAX_KEY_DEPTH: Final = 32
"""Nesting of a tuple that is a key; hashing one goes as deep."""
MAX_CALLS: Final = 16
"""Builders that call each other."""
MAX_CROWDED_KEYS: Final = 4_000
"""Keys of one pickle that may be crowded, see `is_crowded`: each is compared with all before it."""
_SURE_INT: Final = 1 << 60
"""Integers beyond are hashed modulo 2**61 - 1, so that a file could make them collide."""
_SLOW_KEY: Final = 500
_KEY_COST: Final = 4
"""What a number that may collide, and a value in a tuple that is a key, count for."""

Builder: TypeAlias = "Callable[[Machine, tuple[Raw, ...]], Raw]"
"""Makes a value from the arguments that a pickle calls a global with."""
Opcode: TypeAlias = "Callable[[Machine, int], int]"
"""Does what an opcode says, its operand at the given position; returns the position after it."""
Persistent: TypeAlias = Callable[[Raw], Raw]
"""What a persistent id stands for."""

_TEXTS: Final = frozenset({str, Named, bytes})
"""Are hashed with a secret of the process: no file can make them collide, nor tuples of them."""
_PLAIN_KEYS: Final = _TEXTS | {bool, float, type(None)}


class PickleEnd(Exception):  # noqa: N818 - no error: the machine has come to the STOP opcode
    """The pickle has ended; `args[0]` is the position after it."""


class Pending(ABC):
    """A value that is not settled before the whole pickle is read."""

    __slots__ = ()

    @property
    @abstractmethod
    def spec(self) -> TensorSpec:
        """Dtype and length of it."""

    @abstractmethod
    def settled(self) -> Raw:
        """The raw value that stands for it in the end."""


@dataclass(slots=True, eq=False)
class Growing(Foreign):
    """An object that a pickle sets the state of after it has named it: `finish` makes the value from its state."""

    finish: Callable[["Machine", Raw], Raw] | None = None
    built: Raw = None


class Machine:
    """One pickle being read.

    `names` counts the globals that it names by (module, name) as spelled there; `graded` says of functions whose danger
    is in their arguments what their worst call would do.
    """

    __slots__ = (
        "builders", "calls", "copied_bytes", "crowded_keys", "data", "graded", "marks", "memo", "names", "persistent",
        "protocol", "specs", "spent", "stack", "symbols", "where",
    )  # fmt: skip

    def __init__(
        self, data: bytes, where: str, builders: Mapping[str, Builder], persistent: Persistent | None, start: int
    ) -> None:
        self.data = data
        self.where = where
        self.builders = builders
        self.persistent = persistent
        self.stack: list[Raw] = []
        self.marks: list[list[Raw]] = []
        self.memo: dict[int, Raw] = {}
        self.names: dict[tuple[str, str], int] = {}
        self.graded: dict[str, Danger] = {}
        self.symbols: dict[tuple[str, str], Named] = {}
        self.protocol = data[start + 1] if data[start : start + 1] == b"\x80" and len(data) > start + 1 else 0
        self.specs: dict[str, TensorSpec] = {}
        self.spent = 0
        self.calls = 0
        self.copied_bytes = 0
        self.crowded_keys = 0

    def run(self, opcodes: tuple[Opcode, ...], start: int) -> int:
        """Run from byte `start` to STOP; returns the position after it, the value is on the stack.

        Raises DamagedCheckpointError where the bytes are no pickle, CheckpointError where a bound is exceeded.
        """
        data = self.data
        pos = start
        try:
            for _ in repeat(None, MAX_OPCODES):
                pos = opcodes[data[pos]](self, pos + 1)
        except PickleEnd as end:
            return int(end.args[0])
        except IndexError:
            what = "the pickle is cut short" if pos >= len(data) - 9 else "takes more than is there"
            raise self.damaged(what, pos) from None
        except KeyError:
            raise self.damaged("refers to a value that was not remembered", pos) from None
        except (struct.error, ValueError):
            raise self.damaged("a number or text is malformed or cut short", pos) from None
        raise self.refused(f"has more than {MAX_OPCODES} opcodes", pos)

    def damaged(self, said: str, pos: int | None = None) -> DamagedCheckpointError:
        """The error for bytes that are no sound pickle."""
        return DamagedCheckpointError(f"{self.where}: {said}{_at(pos)}: damaged, take another copy")

    def refused(self, said: str, pos: int | None = None) -> CheckpointError:
        """The error for a pickle that is beyond our bounds."""
        return CheckpointError(f"{self.where}: {said}{_at(pos)}: not read")

    def since_mark(self) -> list[Raw]:
        """The values since the last MARK, which are taken off."""
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def spend(self, count: int) -> None:
        """Account for `count` values that are hashed or copied; CheckpointError beyond `MAX_SPENT`."""
        self.spent += count
        if self.spent > MAX_SPENT:
            raise self.refused(f"copies or hashes more than {MAX_SPENT} values")

    def copy_bytes(self, count: int) -> None:
        """Account for bytes copied from other values; all together are at most twice what the pickle holds."""
        self.copied_bytes += count
        if self.copied_bytes > 2 * len(self.data):
            raise self.refused(f"copies more than twice its own {len(self.data)} bytes")

    def grade_call(self, name: str, danger: Danger) -> None:
        """Take note of what a call of `name` would do; the worst one counts."""
        self.graded[name] = max(danger, self.graded.get(name, danger), key=list(Danger).index)

    def check_key(self, key: Raw) -> None:
        """DamagedCheckpointError where a key cannot be hashed; bounded however keys are built."""
        waiting = [(key, 0)]
        while waiting:
            one, depth = waiting.pop()
            if type(one) in _PLAIN_KEYS or isinstance(one, Foreign | RawTensor | Pending):
                continue
            if type(one) is int:
                if not -_SURE_INT < one < _SURE_INT:
                    self.spend(_SLOW_KEY)
            elif type(one) is complex:
                self._crowd()
            elif isinstance(one, tuple | frozenset):
                self.spend(_KEY_COST * (len(one) + 1))
                if is_crowded(one):
                    self._crowd()
                if depth > MAX_KEY_DEPTH:
                    raise self.refused(f"has a key nested deeper than {MAX_KEY_DEPTH}")
                waiting.extend((inner, depth + 1) for inner in one)
            else:
                raise self.damaged(f"has a {type(one).__name__} for a key")

    def _crowd(self) -> None:
        self.crowded_keys += 1
        if self.crowded_keys > MAX_CROWDED_KEYS:
            raise self.refused(f"has more than {MAX_CROWDED_KEYS} keys that are tuples, sets or complex numbers")

    def call(self, function: Raw, arguments: Raw) -> Raw:
        """What a call makes: by our own builder, or a `Foreign` that says what was called with what."""
        if type(arguments) is not tuple:
            raise self.damaged(f"calls {name_of(function)} with a {type(arguments).__name__}")
        if type(function) is Named:
            build = self.builders.get(function)
            return self._built(build, arguments) if build else Foreign(str(function), arguments)
        if isinstance(function, Foreign):
            self.spend(len(arguments))
            return Foreign(name_of(function), (function, *arguments))
        raise self.damaged(f"calls a {type(function).__name__}")

    def _built(self, build: Builder, arguments: tuple[Raw, ...]) -> Raw:
        if self.calls > MAX_CALLS:
            raise self.refused(f"calls more than {MAX_CALLS} functions within each other")
        self.calls += 1
        made = build(self, arguments)
        self.calls -= 1
        return made

    def set_state(self, instance: Raw, state: Raw) -> Raw:
        """The instance with its state; another object where it has to be one."""
        if type(instance) is StateDict and isinstance(state, dict):
            instance.metadata = state.get("_metadata")
            return instance
        if type(instance) is Growing and instance.finish and instance.built is None:
            instance.built = instance.finish(self, state)
            return instance.built
        if isinstance(instance, Foreign) and instance.state is None:
            instance.state = state
            return instance
        return Foreign(name_of(instance), (instance,), state)

    def set_items(self, target: Raw, pairs: list[Raw]) -> None:
        """Put keys and values, one after the other in `pairs`, into a dict."""
        if len(pairs) % 2:
            raise self.damaged("has a key without a value")
        if isinstance(target, Foreign):
            target.items = {} if target.items is None else target.items
            target = target.items
        if not isinstance(target, dict):
            raise self.damaged(f"sets items of a {name_of(target)}")
        keys = pairs[::2]
        for key in keys:
            if type(key) is not str:
                self.check_key(key)
        target.update(zip(keys, pairs[1::2], strict=True))

    def extend(self, target: Raw, values: list[Raw]) -> None:
        """Append values to a list."""
        if isinstance(target, Foreign):
            target.items = [] if target.items is None else target.items
            target = target.items
        if not isinstance(target, list):
            raise self.damaged(f"appends to a {name_of(target)}")
        target.extend(values)

    def add_to_set(self, target: Raw, values: list[Raw]) -> None:
        """Add values to a set."""
        if isinstance(target, Foreign):
            self.extend(target, values)
            return
        if not isinstance(target, set):
            raise self.damaged(f"adds to a {name_of(target)}")
        for value in values:
            self.check_key(value)
        target.update(values)


def is_crowded(key: Raw) -> bool:
    """Whether a file can choose keys like this one so that all have one hash: tuples and sets of numbers."""
    if isinstance(key, tuple | frozenset):
        return not _TEXTS.issuperset(map(type, key))
    return type(key) is complex


def _at(pos: int | None) -> str:
    return "" if pos is None else f" at byte {pos}"


def name_of(value: Raw) -> str:
    """What to call a value: the class of an object, the name of a global, else its Python type."""
    if isinstance(value, Foreign | RawTensor):
        return value.class_name
    return str(value)[:200] if type(value) is Named else type(value).__name__
