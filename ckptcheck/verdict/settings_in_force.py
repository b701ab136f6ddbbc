"""The settings in force: every key with its value, and where that comes from."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from ckptcheck.config import KEYS, TABLE, VERIFY, Config
from ckptcheck.finding import Json, Result, Verdict
from ckptcheck.verdict.asking import check_policy
from ckptcheck.verdict.decisions import Decisions, check_codes

Keys: TypeAlias = tuple[str | int, ...]
"""The way to a value: keys of tables, and places in lists."""

DEFAULTS: Final[Mapping[str, Json]] = {
    "select": ["CK"], "ignore": [], "fail-on": "error", "require": [], "severity": {}, "freeze": {}, "tolerance": {},
    "accept": [],
    "verify.target": None, "verify.run": None, "verify.resume": None, "verify.steps": None, "verify.resume-at": None,
    "verify.device": "cpu", "verify.repeats": 1, "verify.policy": "exact", "verify.on-inconclusive": None,
}  # fmt: skip
"""What holds where nothing is set; null for nothing, or what `NOTES` says."""
NOTES: Final[Mapping[str, str]] = {
    "tolerance": "none: everything is held byte for byte",
    "verify.steps": "20 of a target; a script goes on to its own end",
    "verify.resume-at": "half of the steps; a script where it saves",
    "verify.on-inconclusive": "an exit code of its own, 3",
}
"""What a default means that does not say it itself."""
MAX_LINES: Final = 5000
"""In a file of more lines none is looked for."""


def settings_in_force(config: Config) -> Result:
    """Every setting, a row each: `key`, `value`, `source` ("default" or the file's name), `line` and `note`.

    The result's part "settings" has them, its part "accept" the acceptances with whether they are in force today, and
    "file" is the file. Raises UsageError for a code or dtype in it that there is not.
    """
    check_codes(config.severity, config.accept)
    check_policy("exact", 0.0, 0.0, config.tolerance)
    lines = _Lines(config.path)
    return Result(
        "config",
        Verdict.PASS,
        parts={
            "file": str(config.path) if config.path is not None else None,
            "settings": list(_rows(config, lines)),
            "accept": _acceptances(config, lines),
        },
    )


def _rows(config: Config, lines: "_Lines") -> Iterator[Json]:
    tables: dict[str, Mapping[str, Any]] = {
        "severity": config.severity,
        "freeze": config.freeze,
        "tolerance": {role: {"rtol": rtol, "atol": atol} for role, (rtol, atol) in config.tolerance.items()},
        "verify": config.verify,
    }
    for key in (one for one in KEYS if one not in ("verify", "accept")):
        if key in config.settings:
            yield _row(config, lines, (key,), config.settings[key])
        elif entries := tables.get(key):
            yield from (_row(config, lines, (key, name), value) for name, value in entries.items())
        else:
            yield _default(key)
    for name in VERIFY:
        if name in config.verify:
            yield _row(config, lines, ("verify", name), config.verify[name])
        else:
            yield _default(f"verify.{name}")


def _row(config: Config, lines: "_Lines", keys: Keys, value: Json) -> Json:
    assert config.path is not None
    key = ".".join(map(str, keys))
    return {"key": key, "value": value, "source": config.path.name, "line": lines.of(keys), "note": None}


def _default(key: str) -> Json:
    return {"key": key, "value": DEFAULTS[key], "source": "default", "line": None, "note": NOTES.get(key)}


def _acceptances(config: Config, lines: "_Lines") -> list[Json]:
    today = Decisions()
    return [
        {
            "code": one.code,
            "parameter": one.parameter,
            "reason": one.reason,
            "until": one.until.isoformat() if one.until is not None else None,
            "in_force": today.is_in_force(one),
            "source": one.source,
            "line": lines.of(("accept", place)),
        }
        for place, one in enumerate(config.accept)
    ]


class _Lines:
    """Where settings stand in their file.

    A value stands at the first line of the shortest beginning of the file in which a parser finds it.
    """

    def __init__(self, path: Path | None) -> None:
        text = path.read_text(encoding="utf-8") if path is not None else ""
        # As the parser has lines: others that python knows may stand within a text.
        self._lines: Sequence[str] = [f"{line}\n" for line in text.split("\n")]
        self._front: Keys = tuple(TABLE.split(".")) if path is not None and path.name == "pyproject.toml" else ()

    def of(self, keys: Keys) -> int | None:
        """The line of a value, from 1; None where it was not found."""
        word = next(str(key) for key in reversed(keys) if isinstance(key, str))
        way, count = (*self._front, *keys), len(self._lines)
        for place, line in enumerate(self._lines if count <= MAX_LINES else ()):
            if word not in line or self._holds(place, way) is not False:
                continue  # within another value, or behind this one
            ends = (told for end in range(place + 1, count + 1) if (told := self._holds(end, way)) is not None)
            if next(ends, False):
                return place + 1
        return None

    def _holds(self, count: int, way: Keys) -> bool | None:
        """Whether a value is in the first so many lines; None where these are no TOML, as they end within a value."""
        import tomllib

        try:
            value: Any = tomllib.loads("".join(self._lines[:count]))
        except tomllib.TOMLDecodeError:
            return None
        for key in way:
            listed = isinstance(value, list) and isinstance(key, int) and key < len(value)
            if not (listed or (isinstance(value, dict) and key in value)):
                return False
            value = value[key]
        return True
