"""The opcodes of pickle protocols 0 to 5, one small function each; what a checkpoint has no use for is refused.

Numbers and texts are in `pickle_literals`, names and calls in `pickle_calls`.

The format: cpython's Lib/pickletools.py.
"""

from struct import Struct
from typing import Final

from ckptcheck.readers.pickle.pickle_calls import CALLS
from ckptcheck.readers.pickle.pickle_literals import LITERALS, line_at
from ckptcheck.readers.pickle.pickle_machine import MAX_MARKS, MAX_MEMO, Growing, Machine, Opcode, PickleEnd
from ckptcheck.state.raw import Raw

_unsigned: Final = Struct("<I").unpack_from


def _put(machine: Machine, place: int) -> None:
    memo = machine.memo
    if len(memo) >= MAX_MEMO:
        raise machine.refused(f"remembers more than {MAX_MEMO} values")
    memo[place] = machine.stack[-1]


def _get(machine: Machine, place: int) -> None:
    value = machine.memo[place]
    if value.__class__ is Growing and value.built is not None:
        value = value.built
    machine.stack.append(value)


def _binput(machine: Machine, pos: int) -> int:
    _put(machine, machine.data[pos])
    return pos + 1


def _long_binput(machine: Machine, pos: int) -> int:
    memo = machine.memo  # as `_put`, which costs a tenth of the time of a large pickle
    if len(memo) >= MAX_MEMO:
        raise machine.refused(f"remembers more than {MAX_MEMO} values")
    memo[_unsigned(machine.data, pos)[0]] = machine.stack[-1]
    return pos + 4


def _memoize(machine: Machine, pos: int) -> int:
    _put(machine, len(machine.memo))
    return pos


def _binget(machine: Machine, pos: int) -> int:
    _get(machine, machine.data[pos])
    return pos + 1


def _long_binget(machine: Machine, pos: int) -> int:
    _get(machine, _unsigned(machine.data, pos)[0])
    return pos + 4


def _text_put(machine: Machine, pos: int) -> int:
    line, end = line_at(machine, pos, 20)
    _put(machine, int(line))
    return end


def _text_get(machine: Machine, pos: int) -> int:
    line, end = line_at(machine, pos, 20)
    _get(machine, int(line))
    return end


def _mark(machine: Machine, pos: int) -> int:
    if len(machine.marks) >= MAX_MARKS:
        raise machine.refused(f"begins more than {MAX_MARKS} containers within each other", pos)
    machine.marks.append(machine.stack)
    machine.stack = []
    return pos


def _pop(machine: Machine, pos: int) -> int:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.since_mark()
    return pos


def _pop_mark(machine: Machine, pos: int) -> int:
    machine.since_mark()
    return pos


def _dup(machine: Machine, pos: int) -> int:
    machine.stack.append(machine.stack[-1])
    return pos


def _constant(value: Raw) -> Opcode:
    def push(machine: Machine, pos: int) -> int:
        machine.stack.append(value)
        return pos

    return push


def _fresh(kind: type) -> Opcode:
    def push(machine: Machine, pos: int) -> int:
        machine.stack.append(kind())
        return pos

    return push


def _tuple(machine: Machine, pos: int) -> int:
    items = machine.since_mark()
    machine.stack.append(tuple(items))
    return pos


def _tuple1(machine: Machine, pos: int) -> int:
    machine.stack[-1] = (machine.stack[-1],)
    return pos


def _tuple2(machine: Machine, pos: int) -> int:
    last = machine.stack.pop()
    machine.stack[-1] = (machine.stack[-1], last)
    return pos


def _tuple3(machine: Machine, pos: int) -> int:
    last, middle = machine.stack.pop(), machine.stack.pop()
    machine.stack[-1] = (machine.stack[-1], middle, last)
    return pos


def _list(machine: Machine, pos: int) -> int:
    items = machine.since_mark()
    machine.stack.append(items)
    return pos


def _dict(machine: Machine, pos: int) -> int:
    items = machine.since_mark()
    made: dict[Raw, Raw] = {}
    machine.set_items(made, items)
    machine.stack.append(made)
    return pos


def _frozenset(machine: Machine, pos: int) -> int:
    items = machine.since_mark()
    for one in items:
        machine.check_key(one)
    machine.stack.append(frozenset(items))
    return pos


def _append(machine: Machine, pos: int) -> int:
    value = machine.stack.pop()
    machine.extend(machine.stack[-1], [value])
    return pos


def _appends(machine: Machine, pos: int) -> int:
    items = machine.since_mark()
    machine.extend(machine.stack[-1], items)
    return pos


def _setitem(machine: Machine, pos: int) -> int:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items(machine.stack[-1], [key, value])
    return pos


def _setitems(machine: Machine, pos: int) -> int:
    items = machine.since_mark()
    machine.set_items(machine.stack[-1], items)
    return pos


def _additems(machine: Machine, pos: int) -> int:
    items = machine.since_mark()
    machine.add_to_set(machine.stack[-1], items)
    return pos


def _proto(machine: Machine, pos: int) -> int:
    machine.protocol = machine.data[pos]
    if machine.protocol > 5:
        raise machine.damaged(f"is of protocol {machine.protocol}, 5 is the newest known", pos)
    return pos + 1


def _frame(machine: Machine, pos: int) -> int:
    if pos + 8 > len(machine.data):
        raise machine.damaged("the pickle is cut short", pos)
    return pos + 8


def _stop(machine: Machine, pos: int) -> int:
    if machine.marks or len(machine.stack) != 1:
        raise machine.damaged("ends with values left over, or with none", pos)
    raise PickleEnd(pos)


_KNOWN: Final[dict[bytes, Opcode]] = {
    **LITERALS,
    **CALLS,
    b"\x80": _proto, b"\x95": _frame, b".": _stop, b"(": _mark, b"0": _pop, b"1": _pop_mark, b"2": _dup,
    b"q": _binput, b"r": _long_binput, b"\x94": _memoize, b"p": _text_put, b"h": _binget, b"j": _long_binget,
    b"g": _text_get, b"N": _constant(None), b"\x88": _constant(True), b"\x89": _constant(False), b")": _constant(()),
    b"]": _fresh(list), b"}": _fresh(dict), b"\x8f": _fresh(set), b"t": _tuple, b"\x85": _tuple1, b"\x86": _tuple2,
    b"\x87": _tuple3, b"l": _list, b"d": _dict, b"\x91": _frozenset, b"a": _append, b"e": _appends, b"s": _setitem,
    b"u": _setitems, b"\x90": _additems,
}  # fmt: skip
_REFUSED: Final = {
    b"P": "PERSID", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4", b"\x97": "NEXT_BUFFER",
    b"\x98": "READONLY_BUFFER",
}  # fmt: skip


def _not_known(code: int) -> Opcode:
    name = _REFUSED.get(bytes([code]))
    said = f"has the opcode {name}, which no checkpoint has use for," if name else f"has no opcode but byte {code:#04x}"

    def refuse(machine: Machine, pos: int) -> int:
        raise machine.damaged(said, pos - 1)

    return refuse


OPCODES: Final = tuple(_KNOWN.get(bytes([code])) or _not_known(code) for code in range(256))
"""What each byte does where an opcode has to stand."""
