"""How long a page of very many tensors takes to make and to open, and how large it is.

    python -m tests.benchmarks.bench_page [--repeat N]

Results of 12 to 20,000 tensors over up to 400 steps, told as far as a result tells them (200,000 cells), are rendered
and opened in a real browser without a window, N times each; the least is shown. Opened means: from the navigation to
the first picture of the drawn page, by the browser's own clock. The goal for 20,000 tensors is 3 s and 15 MB.
"""

import argparse
import tempfile
import time
from pathlib import Path

from ckptcheck.reports.html.render import render
from ckptcheck.reports.page import Page
from tests.reports.html.browser import Browser, chromium
from tests.reports.html.samples import large

SIZES = ((12, 10), (200, 100), (2_000, 100), (20_000, 10), (20_000, 400))
OPENED_MS = """(() => { const [at] = performance.getEntriesByName("first-contentful-paint");
    return at ? at.startTime : null; })()"""


def main() -> None:
    """Print a row a size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    program = chromium()
    if program is None:
        parser.error("there is no Chromium")
    browser = Browser(program)
    print(f"{'tensors':>8} {'steps':>6} {'render, s':>10} {'size, MB':>9} {'open, s':>8} {'heap, MB':>9}")
    try:
        for tensors, steps in SIZES:
            print(_row(browser, tensors, steps, repeat), flush=True)
    finally:
        browser.close()


def _row(browser: Browser, tensors: int, steps: int, repeat: int) -> str:
    result = large(tensors, steps)
    rendered, opened = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        for _ in range(repeat):
            begin = time.perf_counter()
            path.write_text(render(result, Page()), encoding="utf-8")
            rendered.append(time.perf_counter() - begin)
            browser.open(path)
            browser.wait(f"{OPENED_MS} !== null")
            opened.append(browser.run(OPENED_MS) / 1000)
        heap = browser.run("performance.memory.usedJSHeapSize") / 1e6
        size = path.stat().st_size / 1e6
    return f"{tensors:>8} {steps:>6} {min(rendered):>10.2f} {size:>9.2f} {min(opened):>8.2f} {heap:>9.1f}"


if __name__ == "__main__":
    main()
