"""What is to be seen on a page and on paper: colours of pixels, words of elements."""

import json
import re
import zlib
from collections import Counter
from contextlib import suppress

from tests.reports.html.browser import Browser


def colours(page: Browser, canvas: str) -> Counter[str]:
    """How many pixels of a canvas have which colour, of those that are painted."""
    found = page.run(f"""(() => {{ const one = document.querySelector({json.dumps(canvas)}), seen = {{}};
        const data = one.getContext("2d").getImageData(0, 0, one.width, one.height).data;
        for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 0) {{
            const key = data.slice(at, at + 3).join(","); seen[key] = (seen[key] ?? 0) + 1; }}
        return seen; }})()""")
    return Counter(found)


def painted(paper: bytes) -> Counter[tuple[int, ...]]:
    """How often a PDF takes up which colour."""
    found: Counter[tuple[int, ...]] = Counter()
    for begin in re.finditer(rb"stream\r?\n", paper):
        with suppress(zlib.error):
            told = zlib.decompressobj().decompress(paper[begin.end() :])
            numbers = re.findall(rb"([\d.]+) ([\d.]+) ([\d.]+) rg", told)
            found.update(tuple(round(255 * float(one)) for one in each) for each in numbers)
    return found


def text(page: Browser, selector: str) -> str:
    return page.run(f"document.querySelector({json.dumps(selector)}).innerText")


def texts(page: Browser, selector: str) -> list[str]:
    return page.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.innerText)")


def rgb(page: Browser, name: str) -> str:
    """A colour of the page's style as its pixels have it."""
    value = page.run(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")
    return ",".join(str(int(value[at : at + 2], 16)) for at in (1, 3, 5))
