"""How data goes into the page: compact, exact, and inert wherever a script of HTML may end."""

import json
import math
from array import array
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from sys import byteorder
from typing import Final

from ckptcheck.finding import Json

NOT_A_NUMBER: Final = -1.0
"""Stands for a distance that is NaN; one that nobody knows is a NaN. Distances are never negative."""
_IN_SCRIPT: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029", "\x7f": "\\u007f"}
)


def in_script(value: Json) -> str:
    """Return `value` as JSON that may stand in a script element: no `<`, `>` or `&`, and ASCII only."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_IN_SCRIPT)


def numbers(values: Iterable[Json], wide: bool = True) -> str:
    """Return distances as base64 of little-endian float64, to the bit, or of float32; see `NOT_A_NUMBER`."""
    column = array("d" if wide else "f", map(_number, values))
    if byteorder == "big":
        column.byteswap()
    return b64encode(column.tobytes()).decode("ascii")


def _number(value: Json) -> float:
    if isinstance(value, (int, float)):
        return NOT_A_NUMBER if math.isnan(value) else float(value)
    return {"inf": math.inf, "-inf": -math.inf, "nan": NOT_A_NUMBER}.get(str(value), math.nan)


def table(rows: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """Return rows as columns: a text is the place of its first like, and what is null throughout is left out.

    `{"rows": how many, "columns": {name: [values]}, "texts": {name: [texts]}}`: where a column has `texts`, its
    values are places in these, or null.
    """
    columns: dict[str, Json] = {}
    texts: dict[str, Json] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        if all(value is None for value in values):
            continue
        if all(value is None or isinstance(value, str) for value in values):
            places: dict[Json, int] = {}
            columns[name] = [None if text is None else places.setdefault(text, len(places)) for text in values]
            texts[name] = [*places]
        else:
            columns[name] = values
    return {"rows": len(rows), "columns": columns, "texts": texts}
