import base64
import hashlib
import json
import math
import re
import struct
from pathlib import Path

import pytest

import ckptcheck.reports.html
from ckptcheck.finding import Finding, Place, Result, Severity, Verdict
from ckptcheck.reports.html.render import SCRIPTS, STYLES, VENDORED, render, render_many
from ckptcheck.reports.page import Page
from ckptcheck.reports.table import REPORTS
from tests.reports.check_results import FIT, INCOMPLETE
from tests.reports.checkpoint_results import DIFFERENT, INSPECTED
from tests.reports.html.made import HOSTILE, NAMES, RUN, divergence, row
from tests.reports.html.samples import hostile, large, verified
from tests.reports.results import APART, BROKEN, CLEAN, NOISY, RAISED, REFUSED, SAVED

FOLDER = Path(ckptcheck.reports.html.__file__).parent
MOST_BYTES = 15_000_000


def told(document, place=0):
    """The data in a page."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', document, re.DOTALL)[1])[
        place
    ]


def column(text, form="d"):
    data = base64.b64decode(text)
    return [*struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data)]


def tensors(part):
    """Rows of a run's tensors as the page reads them."""
    columns, texts = part["tensors"]["columns"], part["tensors"]["texts"]
    return [
        {
            name: texts[name][values[place]] if name in texts and values[place] is not None else values[place]
            for name, values in columns.items()
        }
        for place in range(part["tensors"]["rows"])
    ]


def test_the_format_is_in_the_table():
    assert REPORTS["html"](CLEAN, Page()).startswith("<!doctype html>")


def test_the_distances_on_the_page_are_those_of_the_result():
    result = verified()
    (part,) = told(render(result, Page()))["distances"]
    rows = result.parts["divergence"][0]["tensors"]
    assert [one["parameter"] for one in tensors(part)] == [one["parameter"] for one in rows]
    for name in ("rel_l2", "max_abs"):
        assert column(part[name]) == [value for one in rows for value in one[name]]
    assert column(part["max_ulp"], "f") == pytest.approx([value for one in rows for value in one["max_ulp"]], rel=1e-6)


def test_a_tensor_that_is_told_at_few_steps_has_as_many_numbers():
    result = verified(NAMES, [11, 12, 13, 14], full=3)
    (part,) = told(render(result, Page()))["distances"]
    lengths = [len(one.get("steps") or part["steps"]) for one in tensors(part)]
    assert lengths == [4, 4, 4] + [2] * (4 * len(NAMES) - 3)
    assert len(column(part["rel_l2"])) == sum(lengths)


def test_two_traces_show_how_far_norms_are_apart():
    steps = [
        {
            "run": "right",
            "step": 5,
            "stage": "param",
            "section": "param",
            "parameter": "w",
            "left_norm": 4.0,
            "right_norm": 5.0,
        },
        {
            "run": "right",
            "step": 7,
            "stage": "param",
            "section": "param",
            "parameter": "w",
            "left_norm": 4.0,
            "right_norm": 3.0,
        },
        {"run": "right", "step": 7, "stage": "loss", "section": "loss", "key": "0", "left": 1.0, "right": 2.0},
    ]
    result = Result("compare", Verdict.FAIL, parts={"trajectory": steps})
    (part,) = told(render(result, Page()))["distances"]
    assert (part["steps"], part["bound"], column(part["rel_l2"])) == ([5, 7], True, [0.25, 0.25])


def test_norms_that_are_the_same_tell_nothing_of_tensors_that_differ():
    steps = [{"run": "right", "step": step, "stage": "param", "section": "param", "parameter": "w", "left_norm": 4.0}
             for step in (5, 7)]  # fmt: skip
    steps[0]["right_norm"], steps[1]["right_norm"] = 4.0, 2.0
    (part,) = told(render(Result("compare", Verdict.FAIL, parts={"trajectory": steps}), Page()))["distances"]
    same, apart = column(part["rel_l2"])
    assert (part["steps"], apart, math.isnan(same)) == ([5, 7], 0.5, True)


def test_ranks_are_runs_of_their_own():
    steps = [
        {
            "run": "right",
            "rank": rank,
            "step": 5,
            "stage": "param",
            "section": "param",
            "parameter": "w",
            "left_norm": 4.0,
            "right_norm": 5.0,
        }
        for rank in (0, 1)
    ]
    parts = told(render(Result("compare", Verdict.FAIL, parts={"trajectory": steps}), Page()))["distances"]
    assert [part["run"] for part in parts] == ["right, rank 0", "right, rank 1"]


def test_more_runs_than_a_page_holds_leave_out_the_last():
    one = divergence(tuple(f"p{place}" for place in range(200)), [*range(11, 211)])
    parts = {"divergence": [{**one, "run": run} for run in "ab"]}
    assert [part["run"] for part in told(render(Result("verify", Verdict.FAIL, parts=parts), Page()))["distances"]] == [
        "a"
    ]


def test_distances_that_are_no_numbers_keep_what_they_are():
    values = [None, "inf", "nan", 0.0]
    result = Result(
        "verify",
        Verdict.FAIL,
        parts={
            "divergence": [
                {
                    "run": RUN,
                    "step": 1,
                    "steps": [2, 3, 4, 5],
                    "tensors": [row("w", "param", None, values)],
                    "left_out": None,
                }
            ]
        },
    )
    found = column(told(render(result, Page()))["distances"][0]["rel_l2"])
    assert found[0] != found[0]
    assert found[1:] == [float("inf"), -1.0, 0.0]


def test_the_policy_names_the_very_scripts_and_styles_of_the_page_and_lets_nothing_else_in():
    document = render(hostile(), Page())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', document)[1]
    parts = dict(one.split(" ", 1) for one in policy.split("; "))
    assert parts["default-src"] == "'none'"
    assert (parts["base-uri"], parts["form-action"]) == ("'none'", "'none'")
    assert set(parts) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    for element, name in ((r"<script>(.*?)</script>", "script-src"), (r"<style>(.*?)</style>", "style-src")):
        bodies = re.findall(element, document, re.DOTALL)
        wanted = [f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in bodies]
        assert parts[name].split() == wanted


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stands_in_no_markup(name):
    document = render(hostile(), Page())
    data = re.search(r'<script type="application/json" id="data">.*?</script>', document, re.DOTALL)[0]
    assert name not in document.replace(data, "")
    assert not re.search(r"<img|<!--", data)
    assert document.count("<script") == 3


def test_a_hole_of_the_template_is_filled_once():
    document = render(Result("verify", Verdict.ERROR, error="@@data@@ and @@script@@"), Page())
    assert "<title>error: @@data@@ and @@script@@</title>" in document


def test_several_results_are_one_page():
    document = render_many([CLEAN, BROKEN, REFUSED], Page())
    assert document.count("<!doctype html>") == 1
    assert [told(document, place)["verdict"] for place in range(3)] == ["pass", "fail", "error"]
    with pytest.raises(ValueError, match="needs a result"):
        render_many([], Page())


@pytest.mark.parametrize(
    "result", [CLEAN, BROKEN, RAISED, APART, SAVED, NOISY, REFUSED, DIFFERENT, INSPECTED, FIT, INCOMPLETE]
)
def test_a_small_page_is_small(result):
    assert len(render(result, Page()).encode()) < 400_000


@pytest.mark.parametrize("result", [large(20_000, 400), large(99_000, 2)], ids=["long", "wide"])
def test_a_page_of_very_many_tensors_fits(result):
    assert len(render(result, Page()).encode()) < MOST_BYTES


def test_a_page_of_very_many_findings_keeps_the_cause_and_the_most_severe():
    one = Finding("CK501", "non-finite", Severity.INFO, "x", Place(parameter="p"))
    bad = Finding("CK502", "negative", Severity.ERROR, "y", Place(parameter="q"))
    data = told(render(Result("check", Verdict.FAIL, findings=(*[one] * 4000, bad)), Page()))
    assert (len(data["findings"]), data["said"]["findings"]) == (3000, 4001)
    assert data["findings"][-1]["code"] == data["findings"][data["said"]["lead"]]["code"] == "CK502"


def test_the_top_tells_the_weightiest_finding_that_is_not_accepted():
    result = verified()
    lone = Result("check", Verdict.FAIL, findings=result.findings[2:])
    assert (
        told(render(lone, Page()))["said"]["lead"] == 1
    )  # an info: of the warnings one is accepted, the other without effect
    assert told(render(Result("check", Verdict.PASS, findings=result.findings), Page()))["said"]["lead"] is None


def test_the_vendored_files_are_what_the_notice_says():
    lines = re.findall(r"^([0-9a-f]{64})  (\S+)$", (FOLDER / "vendor" / "NOTICE").read_text(), re.MULTILINE)
    assert (
        {name for _, name in lines}
        == {*VENDORED, "LICENSE.uPlot"}
        == {one.name for one in (FOLDER / "vendor").iterdir()} - {"NOTICE"}
    )
    for digest, name in lines:
        assert hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(("folder", "listed"), [("script", SCRIPTS), ("style", STYLES)])
def test_every_file_of_the_page_is_listed_and_short(folder, listed):
    assert sorted(listed) == sorted(one.name for one in (FOLDER / folder).iterdir())
    for name in listed:
        assert len((FOLDER / folder / name).read_text().splitlines()) <= 300


def test_scripts_write_text_and_no_markup():
    source = "".join((FOLDER / "script" / name).read_text() for name in SCRIPTS)
    ways = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "fetch(",
        "import(",
    )
    assert not [way for way in ways if way in source]
