"""The opcodes of a pickle that name a class or function, call it, set an object's state, or refer outside."""

from typing import Final

from ckptcheck.readers.pickle.pickle_globals import todays_name
from ckptcheck.readers.pickle.pickle_literals import line_at
from ckptcheck.readers.pickle.pickle_machine import Machine, Opcode
from ckptcheck.state.raw import Named, Raw

MAX_NAME: Final = 1_000
"""Characters of a module's or a global's name."""
MAX_GLOBALS: Final = 10_000
"""Classes and functions that one pickle names."""


def _push_global(machine: Machine, module: Raw, name: Raw, pos: int) -> None:
    if type(module) is not str or type(name) is not str or not module or not name:
        raise machine.damaged("names a global by something else than two texts", pos)
    if len(module) + len(name) > MAX_NAME:
        raise machine.refused(f"names a global of {len(module) + len(name)} characters", pos)
    symbol = machine.symbols.get((module, name))
    if symbol is None:
        symbol = machine.symbols[module, name] = Named(todays_name(module, name))
    machine.names[module, name] = machine.names.get((module, name), 0) + 1
    if len(machine.names) > MAX_GLOBALS:
        raise machine.refused(f"names more than {MAX_GLOBALS} globals", pos)
    machine.stack.append(symbol)


def _global_lines(machine: Machine, pos: int) -> int:
    module, middle = line_at(machine, pos, MAX_NAME)
    name, end = line_at(machine, middle, MAX_NAME)
    _push_global(machine, str(module, "utf-8"), str(name, "utf-8"), pos)
    return end


def _stack_global(machine: Machine, pos: int) -> int:
    name, module = machine.stack.pop(), machine.stack.pop()
    _push_global(machine, module, name, pos)
    return pos


def _reduce(machine: Machine, pos: int) -> int:
    arguments = machine.stack.pop()
    machine.stack[-1] = machine.call(machine.stack[-1], arguments)
    return pos


def _newobj_ex(machine: Machine, pos: int) -> int:
    keywords, arguments = machine.stack.pop(), machine.stack.pop()
    if type(arguments) is not tuple:
        raise machine.damaged("makes an object without a tuple of arguments", pos)
    machine.spend(len(arguments))
    machine.stack[-1] = machine.call(machine.stack[-1], (*arguments, keywords) if keywords else arguments)
    return pos


def _build(machine: Machine, pos: int) -> int:
    state = machine.stack.pop()
    machine.stack[-1] = machine.set_state(machine.stack[-1], state)
    return pos


def _inst(machine: Machine, pos: int) -> int:
    end = _global_lines(machine, pos)
    symbol = machine.stack.pop()
    items = machine.since_mark()
    machine.stack.append(machine.call(symbol, tuple(items)))
    return end


def _obj(machine: Machine, pos: int) -> int:
    items = machine.since_mark()
    machine.stack.append(machine.call(items[0], tuple(items[1:])))
    return pos


def _binpersid(machine: Machine, pos: int) -> int:
    if machine.persistent is None:
        raise machine.damaged("refers to a value outside of the pickle", pos)
    machine.stack[-1] = machine.persistent(machine.stack[-1])
    return pos


CALLS: Final[dict[bytes, Opcode]] = {
    b"c": _global_lines, b"\x93": _stack_global, b"R": _reduce, b"\x81": _reduce, b"\x92": _newobj_ex, b"b": _build,
    b"i": _inst, b"o": _obj, b"Q": _binpersid,
}  # fmt: skip
"""By their byte."""
