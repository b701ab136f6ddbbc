"""The page in use: keys, filters, dark and light, paper, hostile names, very many tensors."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from ckptcheck.reports.html.render import render
from ckptcheck.reports.page import Page
from tests.reports.html.looking import colours, painted, rgb, text, texts
from tests.reports.html.samples import hostile, large, verified
from tests.reports.results import BROKEN, CLEAN, REFUSED

ROOT = Path(__file__).resolve().parents[3]


def test_findings_are_found_by_words_severity_and_code(show):
    page = show(verified())
    assert len(texts(page, ".card")) == 5
    page.press("/", "/")
    assert page.run("document.activeElement.id") == "search"
    page.type("nan warm-up")
    page.wait("document.querySelectorAll('.card').length === 1")
    assert "accepted" in text(page, ".card summary")
    page.press("Escape")
    page.wait("document.querySelectorAll('.card').length === 5")
    page.run("""(() => { const one = document.querySelector('#findings select');
        one.value = 'error'; one.dispatchEvent(new Event('change')); })()""")
    assert texts(page, ".card .badge") == ["CK301", "CK302"]


def test_a_card_opens_by_keys_and_tells_all(show):
    page = show(verified())
    page.run("document.querySelector('.card:nth-of-type(3) summary').focus()")
    page.press("Enter")
    page.wait("document.querySelector('.card:nth-of-type(3) .card-body') !== null")
    told = re.sub(r"\s+", " ", text(page, ".card:nth-of-type(3)"))
    for wanted in ("holds NaN", "a warm-up artefact (until 2027-01-31) pyproject.toml", "step 12", "explain CK501"):
        assert wanted in told


def test_tab_goes_through_everything_that_can_be_used(show):
    page = show(verified())
    stops = []
    for _ in range(40):
        page.press("Tab")
        stops.append(page.run("(() => { const one = document.activeElement; return one.className || one.tagName; })()"))
    for wanted in ("skip", "stage breaks", "frame", "plot", "INPUT", "SELECT", "SUMMARY"):
        assert any(wanted in one for one in stops), (wanted, stops)


def test_dark_and_light_are_told_apart_and_change_while_it_is_open(show):
    page = show(verified())
    light = page.run("getComputedStyle(document.body).backgroundColor")
    assert rgb(page, "series-1") in colours(page, ".plot canvas")
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    page.call("Emulation.setEmulatedMedia", features=[scheme])
    page.frames(4)
    assert page.run("getComputedStyle(document.body).backgroundColor") != light
    assert rgb(page, "series-1") in colours(page, ".plot canvas")
    assert page.troubles() == []


def test_it_is_printed_in_light_with_its_pictures(show):
    page = show(verified(), width=700, dark=True)
    page.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.frames(3)
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("getComputedStyle(document.querySelector('.bar')).display") == "none"
    for canvas, name in (
        (".plot canvas", "series-1"),
        ("#stages .frame canvas", "good-soft"),
        ("#heat .frame canvas", "heat-5"),
    ):
        assert colours(page, canvas)[rgb(page, name)] > 50, canvas
    assert page.troubles() == []


def test_what_is_printed_in_the_dark_has_the_pictures_in_colours_of_paper(show):
    paper = painted(show(verified(), dark=True).printed())
    assert paper[31, 95, 191] >= 4  # the line of the parameters
    assert paper[207, 230, 217] >= 2  # stages that agree
    assert paper[94, 22, 56] >= 2  # the far end of the heat, in the map and beside it


def test_nothing_is_asked_of_the_network_and_nothing_else_may_run(show):
    page = show(hostile())
    assert [one for one in page.requests() if not one.startswith("file:")] == []
    assert len(page.requests()) == 1
    assert page.run("performance.getEntriesByType('resource').length") == 0
    assert page.run("fetch('https://example.org').then(() => 'went out', () => 'held back')") == "held back"
    page.run("""(() => { const one = document.createElement('script'); one.textContent = "window.injected = 1";
        document.body.append(one); })()""")
    assert page.run("window.injected") is None


def test_hostile_names_are_words_and_nothing_more(show):
    page = show(hostile())
    page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.frames(2)
    assert page.run("document.title").startswith("fail: ")
    assert page.run("document.images.length") == 0
    assert (
        page.run("document.querySelectorAll('main script, main style, main iframe, main a[href^=javascript]').length")
        == 0
    )
    told = page.run("document.querySelector('main').textContent")
    assert "</script><img src=x onerror=\"document.title='hit'\">" in told
    assert "\\u202eevil\\u2066\\x00\\x1b[31m\\u2028\\u2029\\x7f" in told
    assert not set("\u202e\u2066\x00\x1b\u2028\u2029\x7f") & set(told)
    assert "10,000 characters" in told
    assert "x" * 5000 not in told
    assert page.run("document.documentElement.scrollWidth") == 1280


def test_very_many_tensors_are_gathered_and_open_on_demand(show):
    page = show(large(8_000, 100))
    page.run("document.querySelector('#heat').scrollIntoView()")
    page.wait("document.querySelector('#heat .frame') !== null")
    page.frames(3)
    assert page.run("document.querySelectorAll('*').length") < 4000
    rows = int(page.run("document.querySelector('#heat .frame').getAttribute('aria-rowcount')"))
    assert rows == 1 + 250  # a row a layer, and one above them
    assert page.run("document.querySelectorAll('#heat .name').length") < 40
    page.run("document.querySelectorAll('#heat .name')[1].click()")
    assert int(page.run("document.querySelector('#heat .frame').getAttribute('aria-rowcount')")) == 1 + 250 + 4
    assert page.troubles() == []


def test_of_several_results_one_is_looked_at(show):
    page = show(CLEAN, BROKEN, REFUSED)
    assert texts(page, ".others .word") == ["PASS", "FAIL", "ERROR"]
    page.run("document.querySelectorAll('.others button')[1].click()")
    page.frames(2)
    assert text(page, "h1 .word") == "FAIL"
    assert page.troubles() == []


def test_a_part_that_is_not_as_it_is_known_takes_no_other_along(browser, tmp_path):
    path = tmp_path / "page.html"
    broken = replace(verified(), parts={**verified().parts, "stages": [{"run": "x"}]})
    path.write_text(render(broken, Page()))
    browser.open(path)
    assert "could not be drawn" in text(browser, "[id^=failed]")
    assert "Findings" in texts(browser, "h2")


def test_a_command_writes_a_page_that_opens(browser, tmp_path):
    samples = ROOT / "fixtures" / "checkpoints" / "04_hf_trainer"
    path = tmp_path / "report.html"
    command = [sys.executable, "-m", "ckptcheck", "diff", str(samples / "checkpoint-2"), str(samples / "checkpoint-4"),
               "--report", f"html={path}", "--quiet"]  # fmt: skip
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False).returncode == 1
    browser.open(path)
    assert browser.troubles() == []
    assert text(browser, "h1 .word") == "FAIL"
    assert len(texts(browser, ".histogram")) >= 3
