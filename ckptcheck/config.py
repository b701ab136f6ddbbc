"""The settings of a project: `[tool.ckptcheck]` in pyproject.toml, or the same keys at the top of ckptcheck.toml."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

from ckptcheck.errors import UsageError

FILES: Final = ("ckptcheck.toml", "pyproject.toml")
"""Where settings stand; of two in one folder the first one holds."""
TABLE: Final = "tool.ckptcheck"

Check: TypeAlias = Callable[[Any], str]
"""Says what a value must be, "" where it is that."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a project has set; what it has not is absent, and the command line wins.

    Attributes:
        path: the file; None where there is none.
        settings: of `select`, `ignore`, `fail-on` and `require`, those that are set.
        freeze: contracts by glob over parameter names.
        verify: what the table `verify` sets, by its own keys.
    """

    path: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    freeze: Mapping[str, str] = field(default_factory=dict)
    verify: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Demands:
    """What a file demands of the commands that can judge it; what it selects and ignores itself stands beside that.

    `require` are codes or their beginnings; `select` and `ignore` are what the file says, where it is in force.
    """

    path: Path | None
    require: tuple[str, ...]
    select: tuple[str, ...] = ("CK",)
    ignore: tuple[str, ...] = ()


def load_config(given: Path | None, start: Path) -> Config:
    """The settings in the file `given`, else in the nearest file from the folder `start` up; none without one.

    Raises UsageError for a file that cannot be read, a key that is none, and a value that its key does not take.
    """
    if given is not None:
        found = _table_of(given)
        if found is None:
            raise UsageError(f"--config {given}: there is no table [{TABLE}] in it")
        return _config(given, found)
    for folder in (start, *start.parents):
        for name in FILES:
            path = folder / name
            if path.is_file() and (found := _table_of(path)) is not None:
                return _config(path, found)
    return Config()


def _table_of(path: Path) -> Mapping[str, Any] | None:
    """The settings in a file as they stand; None for a pyproject.toml that is not about us."""
    is_project = path.name == "pyproject.toml"
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot read the settings in {path}: it is no regular file")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the settings in {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read the settings in {path}: it is no UTF-8 text") from error
    if is_project and "ckptcheck" not in text:
        return None
    import tomllib

    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"cannot read the settings in {path}: it is no TOML: {error}") from error
    except RecursionError:
        raise UsageError(f"cannot read the settings in {path}: its values nest too deep") from None
    tool = whole.get("tool", {}) if is_project else {"ckptcheck": whole}
    table = tool.get("ckptcheck") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{path}: [{TABLE}] is no table")
    return table


def _config(path: Path, table: Mapping[str, Any]) -> Config:
    _check_keys(path, "", table, KEYS)
    verify = table.get("verify", {})
    _check_keys(path, "verify.", verify, VERIFY)
    for place, entry in enumerate(table.get("accept", ())):
        _check_keys(path, f"accept[{place}].", entry, ACCEPT)
        if lacking := [key for key in ("code", "reason") if key not in entry]:
            raise UsageError(f"{path}: accept[{place}] has no {lacking[0]}: say what is accepted, and why")
    for key in LATER:
        if table.get(key):
            raise UsageError(f"{path}: {key} is not supported yet: take it out")
    settings = {key: table[key] for key in SETTINGS if key in table}
    points = {"resume-at": ["auto"]} if verify.get("resume-at") == "auto" else {}
    return Config(path, settings, table.get("freeze", {}), {**verify, **points})


def _check_keys(path: Path, where: str, table: Mapping[str, Any], known: Mapping[str, Check]) -> None:
    for key, value in table.items():
        if key not in known:
            near = get_close_matches(key.replace("_", "-"), known, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
            raise UsageError(f"{path}: there is no key {where}{key}; {hint}")
        if wrong := known[key](value):
            raise UsageError(f"{path}: {where}{key} must be {wrong}, and is {_spelled(value)}")


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)[:80]


def _codes(value: Any) -> str:
    """What `select`, `ignore` and `require` take."""
    asked = 'a list of rule codes or their beginnings, such as ["CK2", "CK501"]'
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return asked
    odd = next((one for one in value if not re.fullmatch(r"CK([1-7]\d{0,2})?", one)), None)
    return "" if odd is None else f"{asked} (no code begins with {odd[:20]!r})"


def _code(value: Any) -> str:
    return "" if _codes([value]) == "" else 'a rule code, such as "CK501"'


def _one_of(*words: str) -> Check:
    return lambda value: "" if value in words and isinstance(value, str) else f"one of {_listed(words)}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)


def _text(value: Any) -> str:
    return "" if isinstance(value, str) and value else "a text"


def _from(least: int) -> Check:
    return lambda value: "" if _is_whole(value, least) else f"a whole number from {least} up"


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _steps(value: Any) -> str:
    """What `resume-at` takes."""
    good = isinstance(value, list) and value and all(_is_whole(one, 1) or one == "auto" for one in value)
    return "" if good or value == "auto" else 'a list of steps, such as [10, 20], or "auto"'


def _contracts(value: Any) -> str:
    good = isinstance(value, dict) and all(isinstance(one, str) and one in CONTRACTS for one in value.values())
    return "" if good else f'a table of patterns with one of {_listed(CONTRACTS)}, such as "backbone.*" = "hold"'


def _tolerances(value: Any) -> str:
    good = isinstance(value, dict) and all(
        isinstance(one, dict) and set(one) <= {"rtol", "atol"} and all(_is_amount(amount) for amount in one.values())
        for one in value.values()
    )
    return "" if good else "a table of roles, such as param = {rtol = 0.0, atol = 0.0}"


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _table(value: Any) -> str:
    return "" if isinstance(value, dict) else "a table"


def _tables(value: Any) -> str:
    good = isinstance(value, list) and all(isinstance(one, dict) for one in value)
    return "" if good else "a list of tables, [[accept]]"


def _day(value: Any) -> str:
    return "" if isinstance(value, date) else "a date, such as 2027-01-31"


CONTRACTS: Final = ("no-grad", "no-update", "hold", "removed", "reset")
"""What "frozen" may mean."""
MOVES: Final = ("no-update", "hold")
"""Contracts under which the value must rest."""
SETTINGS: Final = ("select", "ignore", "fail-on", "require")
LATER: Final = ("tolerance", "accept")
"""Keys that a later version will heed."""
KEYS: Final[Mapping[str, Check]] = {
    "select": _codes,
    "ignore": _codes,
    "fail-on": _one_of("error", "warning", "never"),
    "require": _codes,
    "freeze": _contracts,
    "tolerance": _tolerances,
    "verify": _table,
    "accept": _tables,
}
"""Every key, with what it takes."""
VERIFY: Final[Mapping[str, Check]] = {
    "target": _text,
    "run": _text,
    "resume": _text,
    "steps": _from(2),
    "resume-at": _steps,
    "device": _text,
    "repeats": _from(1),
    "policy": _one_of("exact", "state-exact"),
    "on-inconclusive": _one_of("fail", "pass"),
}
"""Every key of the table `verify`."""
ACCEPT: Final[Mapping[str, Check]] = {"code": _code, "parameter": _text, "reason": _text, "until": _day}
"""Every key of a table in `accept`."""
