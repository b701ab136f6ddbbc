"""Kinds of option values; each is refused with a line that names what would have been right."""

import math
import re
from pathlib import Path
from typing import Any, Final

import click

CONTRACTS: Final = ("no-grad", "no-update", "hold", "removed", "reset")
"""What "frozen" may mean."""


def format_name(value: str) -> str:
    """Read the name of a report format. BadParameter for one that this version does not have."""
    from ckptcheck.reports.table import REPORTS

    if value not in REPORTS:
        raise click.BadParameter(f"there is no format {value!r} in this version; choose {' or '.join(REPORTS)}")
    return value


def report_file(value: str) -> tuple[str, Path]:
    """Read FORMAT=PATH, split at the first equals sign."""
    form, equals, path = value.partition("=")
    if not equals or not path:
        raise click.BadParameter(f"{value!r} is not FORMAT=PATH, such as json=result.json")
    return format_name(form), Path(path)


def freeze_rule(value: str) -> tuple[str, str]:
    """Read GLOB=CONTRACT, split at the last equals sign. BadParameter for an unknown contract."""
    glob, _, contract = value.rpartition("=")
    if not glob:
        raise click.BadParameter(f"{value!r} is not GLOB=CONTRACT, such as 'backbone.*=hold'")
    if contract not in CONTRACTS:
        raise click.BadParameter(f"there is no contract {contract!r}; choose one of {', '.join(CONTRACTS)}")
    return glob, contract


class Place(click.Path):
    """A path as pathlib has it; an empty one, which a shell makes of an unset variable, is refused."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty path, which pathlib would take for the working directory."""
        if not str(value):
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


def rule_codes(value: str) -> tuple[str, ...]:
    """Read codes or their beginnings, separated by commas. BadParameter for what cannot begin a code."""
    codes = tuple(code.strip() for code in value.split(","))
    for code in codes:
        if not re.fullmatch(r"CK([1-7]\d{0,2})?", code):
            raise click.BadParameter(f"{code!r} is no rule code or its beginning, such as CK202 or CK2")
    return codes


class Amount(click.FloatRange):
    """A finite number from `min` on."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse nan, which compares with nothing, and infinity."""
        amount = float(super().convert(value, param, ctx))
        if not math.isfinite(amount):
            self.fail(f"{value} is not a finite number", param, ctx)
        return amount
