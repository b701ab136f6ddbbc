"""The result as a page: one file that holds its data, its style and its scripts, and asks the network for nothing.

What may run is named by its digest in the page's policy, so that nothing which came in with a name can; data stands
in an element that is no script, and reaches the document as text only.
"""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Final

from ckptcheck import __version__
from ckptcheck.finding import Result
from ckptcheck.reports.headlines import headline
from ckptcheck.reports.html.encoding import in_script
from ckptcheck.reports.html.model import has_verdict, model
from ckptcheck.reports.page import Page, escaped

SCRIPTS: Final = (
    "text.js", "dom.js", "data.js", "scale.js", "header.js", "strip.js", "detail.js", "matrix.js", "curve.js",
    "heat.js",
    "groups.js", "presence.js", "ulp.js", "table.js", "findings.js", "differences.js", "probe.js", "contents.js",
    "facts.js", "page.js",
)  # fmt: skip
"""In the order in which they are joined: a file uses what stands before it."""
STYLES: Final = ("colours.css", "page.css", "stages.css", "plots.css", "tables.css", "print.css")
VENDORED: Final = ("uPlot.iife.min.js", "uPlot.min.css")


def render(result: Result, page: Page) -> str:
    """Return the document; it is the same on every page."""
    return render_many([result], page)


def render_many(results: Sequence[Result], page: Page) -> str:
    """Return one document of several results, of which one is looked at at a time. ValueError where there is none."""
    del page
    if not results:
        raise ValueError("a page needs a result")
    title = "; ".join(escaped(_line(result)) for result in results)
    library, library_style = (_read("vendor", name) for name in VENDORED)
    script = '"use strict";\n(() => {\n' + "\n".join(_read("script", name) for name in SCRIPTS) + "\n})();\n"
    style = library_style + "\n".join(_read("style", name) for name in STYLES)
    holes = {
        "policy": "; ".join(
            (
                "default-src 'none'",
                f"script-src {_digest(library)} {_digest(script)}",
                f"style-src {_digest(style)}",
                "base-uri 'none'",
                "form-action 'none'",
            )
        ),
        "title": escape(title[:200]),
        "headline": escape(title),
        "version": escape(__version__),
        "style": style,
        "data": in_script([model(result) for result in results]),
        "library": library,
        "script": script,
    }
    document = _read("", "page.html")
    # From the template only: what fills one hole is never looked at for another.
    pieces = document.split("@@")
    return "".join(piece if place % 2 == 0 else holes[piece] for place, piece in enumerate(pieces))


def _line(result: Result) -> str:
    return f"{result.verdict.value}: {headline(result)}" if has_verdict(result) else headline(result)


def _digest(text: str) -> str:
    """A source as a Content Security Policy names it."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def _read(folder: str, name: str) -> str:
    place = files("ckptcheck.reports.html")
    return (place / folder / name if folder else place / name).read_text(encoding="utf-8")
