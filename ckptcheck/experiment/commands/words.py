"""A command as the user wrote it: split as a shell splits it, its placeholders filled in. No shell runs it."""

import re
import shlex
from collections.abc import Collection, Mapping
from typing import Final

from ckptcheck.errors import UsageError

PLACEHOLDER: Final = re.compile(r"\{\{(?P<literal>\w+)\}\}|(?<!\$)\{(?P<name>\w+)\}")
"""`{name}`, or `{{name}}` for the text `{name}`. A shell's `${name}`, and other braces, are text."""
_OPERATORS: Final = frozenset(";|&<>()`\n")
_VARIABLE: Final = re.compile(r"\$[A-Za-z_{(0-9@*#?!$-]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")


def split(text: str, option: str, known: Collection[str]) -> tuple[str, ...]:
    """The words of a command; placeholders stay in place. `option` names the command in messages.

    Raises UsageError for a command without words, an open quote, what only a shell understands, and a placeholder
    that is not `known`.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{option} {text!r} cannot be split into words ({str(error).lower()}): close it") from None
    if not words or not words[0]:
        raise UsageError(f"{option} is empty: give the command that trains, such as 'python train.py'")
    said = _shell_syntax(text) or (_ASSIGNMENT.match(words[0]) and f"{words[0]!r} before the command")
    if said:
        how = f"no shell runs it: use {option} \"bash -c '...'\""
        raise UsageError(f"{option} has {said}, which only a shell understands, and {how}")
    for name in placeholders(words):
        if name not in known:
            told = " and ".join(f"{{{one}}}" for one in known) or "none"
            raise UsageError(f"{option} has {{{name}}}: known here is {told}; write {{{{{name}}}}} for the text itself")
    return words


def placeholders(words: Collection[str]) -> set[str]:
    """The names of the placeholders in words."""
    return {one["name"] for word in words for one in PLACEHOLDER.finditer(word) if one["name"]}


def filled(words: Collection[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """The words with every placeholder replaced; KeyError for one without a value."""
    return tuple(PLACEHOLDER.sub(lambda one: _value(one, values), word) for word in words)


def _value(found: re.Match[str], values: Mapping[str, str]) -> str:
    return f"{{{found['literal']}}}" if found["literal"] else values[found["name"]]


def _shell_syntax(text: str) -> str:
    """What in a command only a shell understands, in words; "" for nothing."""
    quote = ""
    place = 0
    while place < len(text):
        char = text[place]
        if char == "\\" and quote != "'":
            place += 2
            continue
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        elif quote != "'" and _VARIABLE.match(text, place):
            return f"the variable {text[place:].split(maxsplit=1)[0]!r}"
        elif not quote and char in _OPERATORS:
            return repr(text[place : place + 2].strip() if text[place : place + 2] in ("&&", "||", ">>") else char)
        elif not quote and char == "~" and (place == 0 or text[place - 1].isspace()):
            return "'~'"
        place += 1
    return ""
