"""The settings of a project: `[tool.ckptcheck]` in pyproject.toml, or the same keys at the top of ckptcheck.toml."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
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
class Acceptance:
    """A finding that a project lives with.

    `code` is whole, `parameter` a glob over names, None for any. `until` is the last day on which it holds, None for
    good. `source` says where it is written.
    """

    code: str
    reason: str
    parameter: str | None = None
    until: date | None = None
    source: str = "accept"


@dataclass(frozen=True, slots=True)
class Config:
    """What a project has set; what it has not is absent, and the command line wins.

    Attributes:
        path: the file; None where there is none.
        settings: of `select`, `ignore`, `fail-on` and `require`, those that are set.
        freeze: contracts by glob over parameter names.
        verify: what the table `verify` sets, by its own keys.
        severity: severities by code or its beginning.
        tolerance: (rtol, atol) by role, or "role:dtype".
        accept: findings that do not gate.
    """

    path: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    freeze: Mapping[str, str] = field(default_factory=dict)
    verify: Mapping[str, Any] = field(default_factory=dict)
    severity: Mapping[str, str] = field(default_factory=dict)
    tolerance: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    accept: tuple[Acceptance, ...] = ()


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
    verify, tolerance, accept = table.get("verify", {}), table.get("tolerance", {}), table.get("accept", ())
    _check_keys(path, "verify.", verify, VERIFY)
    for role, amounts in tolerance.items():
        if role.partition(":")[0] not in ROLES:
            raise UsageError(f"{path}: there is no role {role} in tolerance; {_nearest(role, ROLES, 'roles')}")
        _check_keys(path, f"tolerance.{role}.", amounts, TOLERANCE)
    for place, entry in enumerate(accept):
        _check_keys(path, f"accept[{place}].", entry, ACCEPT)
        if lacking := [key for key in ("code", "reason") if key not in entry]:
            raise UsageError(f"{path}: accept[{place}] has no {lacking[0]}: say what is accepted, and why")
    points = {"resume-at": ["auto"]} if verify.get("resume-at") == "auto" else {}
    return Config(
        path,
        {key: table[key] for key in SETTINGS if key in table},
        table.get("freeze", {}),
        {**verify, **points},
        table.get("severity", {}),
        {role: (float(one.get("rtol", 0)), float(one.get("atol", 0))) for role, one in tolerance.items()},
        tuple(Acceptance(**entry, source=f"{path.name}, accept[{place}]") for place, entry in enumerate(accept)),
    )


def _check_keys(path: Path, where: str, table: Mapping[str, Any], known: Mapping[str, Check]) -> None:
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"{path}: there is no key {where}{key}; {_nearest(key.replace('_', '-'), known, 'keys')}")
        if wrong := known[key](value):
            raise UsageError(f"{path}: {where}{key} must be {wrong}, and is {_spelled(value)}")


def _nearest(word: str, known: Iterable[str], what: str) -> str:
    """What is said of a word that is none of those known."""
    near = get_close_matches(word, [*known], 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"the {what} are {', '.join(known)}"


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)[:80]


def _codes(value: Any) -> str:
    """What `select`, `ignore` and `require` take."""
    asked = 'a list of rule codes or their beginnings, such as ["CK2", "CK501"]'
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return asked
    odd = next((one for one in value if not _begins_code(one)), None)
    return "" if odd is None else f"{asked} (no code begins with {odd[:20]!r})"


def _begins_code(value: str) -> bool:
    return re.fullmatch(r"CK([1-7]\d{0,2})?", value) is not None


def _code(value: Any) -> str:
    """What `accept` takes: a beginning would let through what nobody has looked at."""
    whole = isinstance(value, str) and re.fullmatch(r"CK[1-7]\d\d", value)
    return "" if whole else 'a whole rule code, such as "CK501"'


def _severities(value: Any) -> str:
    asked = f'a table of rule codes or their beginnings with one of {_listed(SEVERITIES)}, such as "CK205" = "error"'
    if not isinstance(value, dict) or not all(isinstance(one, str) and one in SEVERITIES for one in value.values()):
        return asked
    odd = next((one for one in value if not _begins_code(one)), None)
    return "" if odd is None else f"{asked} (no code begins with {odd[:20]!r})"


def _one_of(*words: str) -> Check:
    return lambda value: "" if value in words and isinstance(value, str) else f"one of {_listed(words)}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)


def _text(value: Any) -> str:
    return "" if isinstance(value, str) and value.strip() else "a text"


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
    good = isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())
    return "" if good else "a table of roles, such as param = {rtol = 0.0, atol = 0.0}"


def _amount(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if is_number and 0 <= value < float("inf") else "a number from 0 up"


def _table(value: Any) -> str:
    return "" if isinstance(value, dict) else "a table"


def _tables(value: Any) -> str:
    good = isinstance(value, list) and all(isinstance(one, dict) for one in value)
    return "" if good else "a list of tables, [[accept]]"


def _day(value: Any) -> str:
    is_day = isinstance(value, date) and not isinstance(value, datetime)
    return "" if is_day else "a date, written without quotes, such as 2027-01-31"


CONTRACTS: Final = ("no-grad", "no-update", "hold", "removed", "reset")
"""What "frozen" may mean."""
MOVES: Final = ("no-update", "hold")
"""Contracts under which the value must rest."""
SEVERITIES: Final = ("error", "warning", "info")
"""What a finding may weigh."""
ROLES: Final = ("param", "buffer", "grad", "state", "ema", "loss")
"""What training computes, and may be given a tolerance."""
SETTINGS: Final = ("select", "ignore", "fail-on", "require")
KEYS: Final[Mapping[str, Check]] = {
    "select": _codes,
    "ignore": _codes,
    "fail-on": _one_of("error", "warning", "never"),
    "require": _codes,
    "severity": _severities,
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
TOLERANCE: Final[Mapping[str, Check]] = {"rtol": _amount, "atol": _amount}
"""Every key of a role in the table `tolerance`; what is left out is 0."""
ACCEPT: Final[Mapping[str, Check]] = {"code": _code, "parameter": _text, "reason": _text, "until": _day}
"""Every key of a table in `accept`."""
