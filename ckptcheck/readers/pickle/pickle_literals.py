"""The opcodes of a pickle that push a number, a text or bytes, written binary or as a line of text."""

import codecs
from struct import unpack_from
from typing import Final

from ckptcheck.readers.pickle.pickle_machine import Machine, Opcode

MAX_LONG_BYTES: Final = 4_096
"""Bytes of an integer."""
MAX_DIGITS: Final = 4_300
"""Digits of an integer written as text, and length of a line with a number."""


def line_at(machine: Machine, pos: int, longest: int) -> tuple[bytes, int]:
    """A line of at most `longest` bytes without its end, and the position after it."""
    end = machine.data.find(b"\n", pos, pos + longest + 1)
    if end < 0:
        raise machine.damaged(f"a line is longer than {longest} bytes, or has no end", pos)
    return machine.data[pos:end], end + 1


def _text_int(machine: Machine, pos: int) -> int:
    line, end = line_at(machine, pos, MAX_DIGITS)
    machine.stack.append({b"00": False, b"01": True}[line] if line in (b"00", b"01") else int(line))
    return end


def _text_long(machine: Machine, pos: int) -> int:
    line, end = line_at(machine, pos, MAX_DIGITS)
    machine.stack.append(int(line.removesuffix(b"L")))
    return end


def _text_float(machine: Machine, pos: int) -> int:
    line, end = line_at(machine, pos, MAX_DIGITS)
    machine.stack.append(float(line))
    return end


def _text_string(machine: Machine, pos: int) -> int:
    line, end = line_at(machine, pos, len(machine.data))
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise machine.damaged("a string has no quotes", pos)
    machine.stack.append(_python2_text(codecs.escape_decode(line[1:-1])[0]))
    return end


def _text_unicode(machine: Machine, pos: int) -> int:
    line, end = line_at(machine, pos, len(machine.data))
    machine.stack.append(str(line, "raw-unicode-escape"))
    return end


def _binint(machine: Machine, pos: int) -> int:
    machine.stack.append(unpack_from("<i", machine.data, pos)[0])
    return pos + 4


def _binint1(machine: Machine, pos: int) -> int:
    machine.stack.append(machine.data[pos])
    return pos + 1


def _binint2(machine: Machine, pos: int) -> int:
    machine.stack.append(unpack_from("<H", machine.data, pos)[0])
    return pos + 2


def _binfloat(machine: Machine, pos: int) -> int:
    machine.stack.append(unpack_from(">d", machine.data, pos)[0])
    return pos + 8


def _take(machine: Machine, pos: int, length_code: str, length_size: int) -> tuple[bytes, int]:
    length = unpack_from(length_code, machine.data, pos)[0]
    begin = pos + length_size
    if not 0 <= length <= len(machine.data) - begin:
        raise machine.damaged(f"promises {length} bytes, {max(len(machine.data) - begin, 0)} are left", pos)
    return machine.data[begin : begin + length], begin + length


def _integer(length_code: str, length_size: int) -> Opcode:
    def push(machine: Machine, pos: int) -> int:
        content, end = _take(machine, pos, length_code, length_size)
        if len(content) > MAX_LONG_BYTES:
            raise machine.refused(f"has an integer of {len(content)} bytes, beyond {MAX_LONG_BYTES}", pos)
        machine.stack.append(int.from_bytes(content, "little", signed=True))
        return end

    return push


def _unicode(length_code: str, length_size: int) -> Opcode:
    def push(machine: Machine, pos: int) -> int:
        content, end = _take(machine, pos, length_code, length_size)
        machine.stack.append(str(content, "utf-8", "surrogatepass"))
        return end

    return push


def _bytes(length_code: str, length_size: int) -> Opcode:
    def push(machine: Machine, pos: int) -> int:
        content, end = _take(machine, pos, length_code, length_size)
        machine.stack.append(content)
        return end

    return push


def _string(length_code: str, length_size: int) -> Opcode:
    def push(machine: Machine, pos: int) -> int:
        content, end = _take(machine, pos, length_code, length_size)
        machine.stack.append(_python2_text(content))
        return end

    return push


def _python2_text(content: bytes) -> str | bytes:
    return content.decode() if content.isascii() else content


LITERALS: Final[dict[bytes, Opcode]] = {
    b"I": _text_int, b"L": _text_long, b"F": _text_float, b"S": _text_string, b"V": _text_unicode,
    b"J": _binint, b"K": _binint1, b"M": _binint2, b"G": _binfloat,
    b"\x8a": _integer("<B", 1), b"\x8b": _integer("<i", 4),
    b"\x8c": _unicode("<B", 1), b"X": _unicode("<I", 4), b"\x8d": _unicode("<Q", 8),
    b"C": _bytes("<B", 1), b"B": _bytes("<I", 4), b"\x8e": _bytes("<Q", 8), b"\x96": _bytes("<Q", 8),
    b"U": _string("<B", 1), b"T": _string("<i", 4),
}  # fmt: skip
"""Opcodes that push a number or a text, by their byte."""
