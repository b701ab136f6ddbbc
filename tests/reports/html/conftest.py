"""One browser for all tests of the page."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckptcheck.finding import Result
from ckptcheck.reports.html.render import render, render_many
from ckptcheck.reports.page import Page
from tests.reports.html.browser import Browser, chromium

Open = Callable[..., Browser]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        assert not os.environ.get("CI"), "there is no Chromium: .ci/run installs it"
        pytest.skip("there is no Chromium")
    made = Browser(program)
    yield made
    made.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Open:
    """Open the page of a result; its troubles are looked at right away."""

    def opened(*results: Result, **window: object) -> Browser:
        path = tmp_path / "page.html"
        path.write_text(render(results[0], Page()) if len(results) == 1 else render_many(results, Page()))
        browser.open(path, **window)
        assert browser.troubles() == []
        assert browser.run("document.documentElement.dataset.drawn") == "yes"
        return browser

    return opened
