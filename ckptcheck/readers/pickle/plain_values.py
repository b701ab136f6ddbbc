"""Values of Python's own library as pickles hold them: containers, bytes, paths, dates."""

from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Final

from ckptcheck.readers.pickle.pickle_calls import MAX_NAME
from ckptcheck.readers.pickle.pickle_globals import grade_getattr
from ckptcheck.readers.pickle.pickle_machine import Builder, Machine, name_of
from ckptcheck.state.raw import Danger, Foreign, Named, Queue, Raw, StateDict


def _ordered_dict(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    made = StateDict()
    if args:
        _fill(machine, made, args[0])
    return made


def _dict(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    made: dict[Raw, Raw] = {}
    if args:
        _fill(machine, made, args[0])
    return made


def _fill(machine: Machine, target: dict[Raw, Raw], source: Raw) -> None:
    if isinstance(source, dict):
        machine.spend(len(source))
        for key in source:
            if type(key) is not str:
                machine.check_key(key)
        target.update(source)
        return
    if not isinstance(source, list | tuple) or any(
        not isinstance(one, list | tuple) or len(one) != 2 for one in source
    ):
        raise machine.damaged(f"makes a dict of a {name_of(source)}")
    machine.spend(len(source))
    machine.set_items(target, [part for pair in source for part in pair])


def _default_dict(_machine: Machine, _args: tuple[Raw, ...]) -> Raw:
    return {}  # what it makes for an absent key is code


def _list(machine: Machine, args: tuple[Raw, ...]) -> list[Raw]:
    given = args[0] if args else []
    if not isinstance(given, list | tuple | set | frozenset):
        raise machine.damaged(f"makes a container of a {name_of(given)}")
    machine.spend(len(given))
    return list(given)


def _queue(machine: Machine, args: tuple[Raw, ...]) -> list[Raw]:
    items = _list(machine, args[:1])
    return Queue(items, args[1]) if len(args) > 1 and type(args[1]) is int else items


def _set(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    made: set[Raw] = set()
    machine.add_to_set(made, _list(machine, args))
    return made


def _frozenset(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    return frozenset(_set(machine, args))


def _tuple(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    return tuple(_list(machine, args))


def _encode(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    """What protocol 2 makes of bytes."""
    if len(args) != 2 or not isinstance(args[0], str) or args[1] not in ("latin1", "latin-1"):
        return Foreign("_codecs.encode", args)
    machine.copy_bytes(len(args[0]))
    try:
        return args[0].encode("latin-1")
    except UnicodeEncodeError:
        raise machine.damaged("has bytes with a character beyond 255") from None


def _bytes(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    if not args:
        return b""
    if len(args) == 1 and isinstance(args[0], bytes):
        return args[0]
    return _encode(machine, args)


def _complex(_machine: Machine, args: tuple[Raw, ...]) -> Raw:
    if len(args) == 2 and all(isinstance(part, float | int) and abs(part) < 1 << 1023 for part in args):
        return complex(*args)
    if len(args) == 2 and all(isinstance(part, float) for part in args):
        return complex(*args)
    return Foreign("builtins.complex", args)


def _getattr(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    """A nested class by name; a bound method stays an object of two arguments."""
    if len(args) != 2 or not isinstance(args[1], str):
        machine.grade_call("builtins.getattr", Danger.RUNS_CODE)
        return Foreign("builtins.getattr", args)
    owner = name_of(args[0])
    machine.grade_call("builtins.getattr", grade_getattr(owner, args[1]))
    if type(args[0]) is Named and len(owner) + len(args[1]) < MAX_NAME:
        return Named(f"{args[0]}.{args[1]}")
    return Foreign("builtins.getattr", args)


def _new(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    """An object by `copyreg.__newobj__`: (class, *arguments)."""
    machine.spend(len(args))
    return machine.call(args[0], args[1:]) if args else Foreign("copyreg.__newobj__", args)


def _new_with_keywords(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    if len(args) != 3 or not isinstance(args[1], tuple):
        return Foreign("copyreg.__newobj_ex__", args)
    machine.spend(len(args[1]))
    return machine.call(args[0], (*args[1], args[2]) if args[2] else args[1])


def _reconstructed(machine: Machine, args: tuple[Raw, ...]) -> Raw:
    """An object of protocol 0 or 1: (class, its built-in part's class, that part's value)."""
    if len(args) != 3 or not isinstance(args[0], Named):
        return Foreign("copyreg._reconstructor", args)
    return machine.call(args[0], () if args[2] is None else (args[2],))


def _path(class_name: str, separator: str) -> Builder:
    def build(machine: Machine, args: tuple[Raw, ...]) -> Raw:
        """The path as text, from its parts."""
        if not all(isinstance(part, str) for part in args):
            return Foreign(class_name, args)
        machine.copy_bytes(sum(map(len, args)))
        if args and args[0].endswith(separator):
            return args[0] + separator.join(args[1:])
        return separator.join(args) or "."

    return build


_POSIX_PATH: Final = _path("pathlib.PosixPath", "/")
_WINDOWS_PATH: Final = _path("pathlib.WindowsPath", "\\")


def _moment(kind: type[datetime | date | time], length: int) -> Builder:
    def build(_machine: Machine, args: tuple[Raw, ...]) -> Raw:
        """The same object with its moment as text instead of packed bytes; what follows is the time zone."""
        name = f"datetime.{kind.__name__}"
        packed = args[0] if args else None
        if isinstance(packed, str) and len(packed) == length and max(packed) < "\u0100":
            packed = packed.encode("latin-1")
        if not isinstance(packed, bytes) or len(packed) != length:
            return Foreign(name, args)
        try:
            said = kind(packed).isoformat()  # type: ignore[call-arg, arg-type] # its pickled form
        except (ValueError, TypeError):
            return Foreign(name, args)
        return Foreign(name, (said, *args[1:]))

    return build


PLAIN_BUILDERS: Final[Mapping[str, Builder]] = {
    "collections.OrderedDict": _ordered_dict, "collections.defaultdict": _default_dict,
    "collections.Counter": _dict, "collections.deque": _queue,
    "builtins.set": _set, "builtins.frozenset": _frozenset, "builtins.list": _list, "builtins.tuple": _tuple,
    "builtins.dict": _dict, "builtins.bytearray": _bytes, "builtins.bytes": _bytes, "builtins.complex": _complex,
    "builtins.getattr": _getattr, "_codecs.encode": _encode, "copyreg.__newobj__": _new,
    "copyreg.__newobj_ex__": _new_with_keywords, "copyreg._reconstructor": _reconstructed,
    "pathlib.Path": _POSIX_PATH, "pathlib.PosixPath": _POSIX_PATH, "pathlib.PurePath": _POSIX_PATH,
    "pathlib.PurePosixPath": _POSIX_PATH, "pathlib.WindowsPath": _WINDOWS_PATH,
    "pathlib.PureWindowsPath": _WINDOWS_PATH, "datetime.datetime": _moment(datetime, 10),
    "datetime.date": _moment(date, 4), "datetime.time": _moment(time, 6),
}  # fmt: skip
"""A builder for each class and function of Python's library that pickles call."""
