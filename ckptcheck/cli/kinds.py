"""Kinds of option values; each is refused with a line that names what would have been right."""

import math
import re
from ast import literal_eval
from pathlib import Path
from typing import Any, Final

import click

from ckptcheck.config import CONTRACTS
from ckptcheck.state.tensor import ITEMSIZE_BYTES

_SHORT_DTYPES: Final = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32", "fp64": "float64",
    "double": "float64", "fp8": "float8_e4m3fn", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "float8_e4m3": "float8_e4m3fn",
}  # fmt: skip


FORMATS: Final = ("text", "json", "junit", "sarif", "github", "markdown", "html")
"""The formats of reports, known here so that --help need not import what makes them."""


def format_name(value: str) -> str:
    """Read the name of a report format. BadParameter for one that this version does not have."""
    if value not in FORMATS:
        raise click.BadParameter(f"there is no format {value!r} in this version; choose one of {', '.join(FORMATS)}")
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


def rule_codes_or_pattern(value: str) -> tuple[str, ...] | str:
    """Read codes as `rule_codes` does, and anything that does not look like codes as a pattern."""
    return rule_codes(value) if re.fullmatch(r"CK[0-9CK, ]*", value) else pattern(value)


def pattern(value: str) -> str:
    """Read a pattern. BadParameter for an empty one, which would match nothing or everything."""
    if not value:
        raise click.BadParameter("the pattern is empty")
    return value


def renaming(value: str) -> tuple[str, str]:
    """Read PATTERN=REPLACEMENT, split at the last equals sign. BadParameter for what is no regular expression."""
    expression, equals, replacement = value.rpartition("=")
    if not equals or not expression:
        raise click.BadParameter(f"{value!r} is not PATTERN=REPLACEMENT, such as '^backbone\\.=encoder.'")
    try:
        re.sub(expression, replacement, "")
        re.compile(expression).sub(replacement, expression)
    except (re.error, IndexError) as error:
        raise click.BadParameter(f"{value!r} is no regular expression with its replacement: {error}") from error
    return expression, replacement


def tolerance(value: str) -> tuple[str, tuple[float, float]]:
    """Read ROLE[:DTYPE]=RTOL[,ATOL]. BadParameter for numbers that are no tolerances and dtypes that are none."""
    role, _, amounts = value.rpartition("=")
    role, colon, dtype = role.partition(":")
    if not role or (colon and not dtype):
        raise click.BadParameter(f"{value!r} is not ROLE[:DTYPE]=RTOL[,ATOL], such as state:bfloat16=1e-2,1e-6")
    try:
        numbers = [float(amount) for amount in amounts.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(math.isfinite(one) and one >= 0 for one in numbers):
        raise click.BadParameter(f"{amounts!r} is not RTOL or RTOL,ATOL: one or two finite numbers from 0 up")
    told = f"{role}:{dtype_name(dtype)}" if dtype else role
    return told, (numbers[0], numbers[1] if len(numbers) == 2 else 0.0)


def dtype_name(value: str) -> str:
    """Read a dtype by torch's name or a common short one; BadParameter for any other."""
    name = value.removeprefix("torch.")
    name = _SHORT_DTYPES.get(name, name)
    if name not in ITEMSIZE_BYTES:
        raise click.BadParameter(f"there is no dtype {value!r}; name one as torch does, such as bfloat16")
    return name


class Amount(click.FloatRange):
    """A finite number from `min` on."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse nan, which compares with nothing, and infinity."""
        amount = float(super().convert(value, param, ctx))
        if not math.isfinite(amount):
            self.fail(f"{value} is not a finite number", param, ctx)
        return amount


def resume_point(value: str | int) -> str | int:
    """Read a step, or "auto". BadParameter for anything else."""
    text = str(value).strip()
    if text == "auto":
        return text
    if not re.fullmatch(r"[+-]?\d+", text):
        raise click.BadParameter(f"{value!r} is no step to resume after: give a number, or auto")
    return int(text)


def interruption(value: str) -> str:
    """Check SIGNAL@STEP, such as TERM@7. BadParameter for anything else."""
    if not re.fullmatch(r"\w+@[1-9]\d*", value):
        counted = "; steps are counted from 1" if re.fullmatch(r"\w+@0+", value) else ""
        raise click.BadParameter(f"{value!r} is not SIGNAL@STEP, such as TERM@7{counted}")
    return value


_NOT_FINITE: Final = frozenset({"nan", "inf", "-inf"})


def argument(value: str) -> tuple[str, Any]:
    """Read NAME=VALUE, the value as Python writes numbers, strings, tuples and the like, else as text."""
    name, equals, text = value.partition("=")
    if not equals or not name.isidentifier():
        raise click.BadParameter(f"{value!r} is not NAME=VALUE, such as lr=0.1")
    try:
        return name, literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name, float(text) if text.lower() in _NOT_FINITE else text


def setting(value: str) -> tuple[str, str]:
    """Read NAME=VALUE, split at the first equals sign. BadParameter for what names no variable."""
    name, equals, text = value.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{value!r} is not NAME=VALUE, such as OMP_NUM_THREADS=1")
    return name, text
