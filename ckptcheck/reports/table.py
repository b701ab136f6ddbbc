"""The visible table of report formats: a new format is one file and one line."""

from collections.abc import Callable, Mapping
from typing import Final

from ckptcheck.finding import Result
from ckptcheck.reports import json, text
from ckptcheck.reports.page import Page

REPORTS: Final[Mapping[str, Callable[[Result, Page], str]]] = {
    "text": text.render,
    "json": json.render,
}
"""Format by name: a result and the page it is for, to the whole document, which ends in a newline."""
