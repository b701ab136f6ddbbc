"""The visible table of report formats: a new format is one file and one line."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ckptcheck.finding import Result
from ckptcheck.reports import github, json, junit, markdown, sarif, text
from ckptcheck.reports.html import render as html
from ckptcheck.reports.page import Page

REPORTS: Final[Mapping[str, Callable[[Result, Page], str]]] = {
    "text": text.render,
    "json": json.render,
    "junit": junit.render,
    "sarif": sarif.render,
    "github": github.render,
    "markdown": markdown.render,
    "html": html.render,
}
"""Format by name: a result and the page it is for, to the whole document, which ends in a newline."""
TOGETHER: Final[Mapping[str, Callable[[Sequence[Result], Page], str]]] = {
    "json": json.render_many,
    "junit": junit.render_many,
    "sarif": sarif.render_many,
    "markdown": markdown.render_many,
    "html": html.render_many,
}
"""Formats in which several results are one document of its own, and not one after the other."""
ENDINGS: Final[Mapping[str, str]] = {
    ".txt": "text",
    ".json": "json",
    ".xml": "junit",
    ".sarif": "sarif",
    ".md": "markdown",
    ".html": "html",
}
"""Ending of a file to the format that `report` writes it in."""
