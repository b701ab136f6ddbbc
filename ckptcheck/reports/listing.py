"""A checkpoint as stable lines for `git diff`: content only, in an order that does not depend on the file."""

from typing import Final

from ckptcheck.finding import Result
from ckptcheck.reports import words
from ckptcheck.reports.contents import strings
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.page import escaped

_ORDER: Final = ("model", "optimizer", "scheduler", "scaler", "ema", "rng", "data", "progress", "other")


def render(result: Result) -> str:
    """Return one line for each tensor, value and group membership, sorted by section and name; ASCII or UTF-8 text."""
    lines = [(_place(one), _line(one)) for one in [*entries_of(result, "tensors"), *entries_of(result, "values")]]
    for group in entries_of(result, "groups"):
        for member in strings(group.get("parameters")):
            said = f"{_section('optimizer', group)} {member} / group: {words.scalar(group.get('group'))}"
            lines.append((_place({"section": "optimizer"}), said))
    return "".join(f"{escaped(line)}\n" for _, line in sorted(lines))


def unreadable(reason: str) -> str:
    """Return the one line for a file that cannot be read: `git log -p` goes on to the next where there is no error."""
    return f"unreadable: {escaped(reason)}\n"


def _place(one: Entry) -> int:
    section = words.scalar(one.get("section"))
    return _ORDER.index(section) if section in _ORDER else len(_ORDER)


def _line(one: Entry) -> str:
    name = words.thing(one.get("name"), one.get("key"))
    if one.get("name") is None and one.get("group") is not None:
        name = f"group {one.get('group')} / {name}"
    said = [words.spec(one.get("dtype"), one.get("shape"))] if one.get("dtype") is not None else []
    if one.get("value") is not None or not said:
        said.append(words.exact(one.get("value")))
    said += [words.scalar(one.get("digest"))] if one.get("digest") is not None else []
    if one.get("section") == "model" and (tied := strings(one.get("tied"))):
        said.append(f"tied to {', '.join(tied)}")
    return f"{_section(words.scalar(one.get('section')), one)} {name}: {' '.join(said)}"


def _section(section: str, one: Entry) -> str:
    return section if one.get("optimizer") is None else f"{section} {one.get('optimizer')}"
