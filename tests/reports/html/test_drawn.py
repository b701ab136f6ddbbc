"""The page in a real browser: nothing goes wrong, and everything is drawn as the result has it."""

import re
from dataclasses import replace

import pytest

from tests.reports.check_results import FIT, INCOMPLETE
from tests.reports.checkpoint_results import DIFFERENT, INSPECTED
from tests.reports.html.looking import colours, rgb, text, texts
from tests.reports.html.made import NAMES, stages
from tests.reports.html.samples import compared_checkpoints, verified
from tests.reports.results import APART, BROKEN, CLEAN, NOISY, RAISED, REFUSED, SAVED

RESULTS = {"clean": CLEAN, "broken": BROKEN, "raised": RAISED, "apart": APART, "saved": SAVED, "noisy": NOISY,
           "refused": REFUSED, "different": DIFFERENT, "inspected": INSPECTED, "fit": FIT, "incomplete": INCOMPLETE,
           "ulp": compared_checkpoints()}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_every_kind_of_result_is_drawn_without_trouble(show, name):
    page = show(RESULTS[name], width=400)
    assert texts(page, "[id^=failed]") == []
    verdict = RESULTS[name].verdict.value.upper()
    assert texts(page, "h1 .word") == ([] if name in ("saved", "inspected") else [verdict])
    assert page.run("document.documentElement.scrollWidth") == 400


def test_the_verdict_is_told_with_its_cause_place_and_fix(show):
    page = show(verified())
    assert text(page, "h1").startswith("FAIL")
    told = re.sub(r"\s+", " ", text(page, "header .why"))
    assert told.startswith(
        "Cause CK301 rule ck301 certain 2 parameters changed group: embed.weight, layers.0.attn.weight"
    )
    assert "First at step 10, right after the load: embed.weight / exp_avg" in told
    assert told.endswith("To do sort them by the same rule")
    assert texts(page, "main > section > h2") == [
        "Stages", "Divergence over steps", "Tensors by steps", "Group membership", "Gradient presence", "Findings",
        "Not judged", "Environment", "What the resume crossed", "What was compared",
    ]  # fmt: skip


def test_the_strip_says_which_stages_agree_and_where_it_breaks(show):
    page = show(verified())
    told = page.run("[...document.querySelectorAll('.stage')].map(one => one.getAttribute('aria-label'))")
    assert told[:3] == ["load: breaks here, 4 of 145", "rng: agrees, 26", "hyperparameters: agrees, 26"]
    assert told[4].startswith("buffers: nothing there")
    assert told[8:10] == ["state: differs too, 1 of 26", "param: differs too, 1 of 26"]
    assert [one.replace("\n", "") for one in texts(page, ".chips li")] == [
        "✓parameters 26", "✕optimizer state 2 of 52", "✕param groups 2 of 26", "✓hyperparameters 12",
        "≈gradients 26 of 26 without effect", "✓generators 3",
    ]  # fmt: skip
    assert "embed.weight / exp_avg" in text(page, "#stage-detail")


def test_what_differs_after_the_break_follows_from_it(show):
    made = verified()
    clean = stages([11, 12], state=[2, 9], param=[1, 9], rng=[0, 0])
    clean |= {"load": [one | {"differing": 0} for one in clean["load"]]}
    page = show(replace(made, parts={**made.parts, "stages": [clean]}))
    told = page.run("[...document.querySelectorAll('.stage')].map(one => one.getAttribute('aria-label'))")
    assert told[0] == "load: agrees, 145"
    assert told[8:11] == ["state: breaks here, 2 of 26", "param: differs too, 1 of 26", "schedule: agrees, 26"]
    assert text(page, ".lead").startswith(
        "Breaks at state in step 11. load, rng, hyperparameters, inputs, loss, grad, scaler"
    )
    assert text(page, ".lead").endswith("agree before it. In param differs too, which follows.")


def test_the_curve_has_a_line_of_its_own_colour_for_each_section(show):
    page = show(verified())
    seen = colours(page, ".plot canvas")
    assert [re.sub(r"\s+", " ", one) for one in texts(page, ".curve-legend button span:nth-of-type(1)")] == [
        "parameters", "exp_avg", "exp_avg_sq", "gradients"]  # fmt: skip
    for place in range(1, 5):
        assert seen[rgb(page, f"series-{place}")] > 100
    page.run("document.querySelector('.curve-legend button').click()")
    page.frames(2)
    assert colours(page, ".plot canvas")[rgb(page, "series-1")] == 0


def test_the_curve_tells_other_distances_and_the_values_at_a_step_by_keys(show):
    page = show(verified())
    page.run("document.querySelector('input[value=max_ulp]').click()")
    page.frames(3)
    page.run("document.querySelector('.plot').focus()")
    page.press("ArrowLeft")
    assert "step 22" in text(page, "#divergence .readout")
    worst = max(row["max_ulp"][-1] for row in verified().parts["divergence"][0]["tensors"] if row["section"] == "grad")
    assert float(texts(page, ".curve-legend .value")[3].replace(",", "")) == pytest.approx(worst, rel=1e-3)


def test_the_heat_map_is_drawn_and_a_module_opens_by_keys(show):
    page = show(verified())
    assert len([one for one in colours(page, "#heat .frame canvas") if one != rgb(page, "heat-equal")]) > 20
    before = page.run("document.querySelector('#heat .frame').getAttribute('aria-rowcount')")
    page.run("document.querySelector('#heat .frame').focus()")
    for _ in range(5):
        page.press("ArrowDown")
    assert "layers" in text(page, "#heat .readout")
    page.press("Enter")
    assert page.run("document.querySelector('#heat .frame').getAttribute('aria-rowcount')") != before


def test_groups_stand_side_by_side_with_what_moved(show):
    page = show(verified())
    moved = [re.sub(r"\s+", " ", one) for one in texts(page, ".members .moved")]
    half = len(NAMES) // 2
    assert moved == [f"{NAMES[0]} → group 1", f"{NAMES[half]} from group 1", f"{NAMES[half]} → group 0",
                     f"{NAMES[0]} from group 0"]  # fmt: skip


def test_none_zero_and_nonzero_gradients_have_looks_of_their_own(show):
    page = show(verified())
    seen = colours(page, "#gradients .frame canvas")
    for name in ("grad-nonzero", "grad-zero", "grad-none", "frozen"):
        assert seen[rgb(page, name)] > 50, name
    rows = [re.sub(r"\s+", " ", one) for one in texts(page, "#gradients .name")]
    assert rows[:2] == [NAMES[0], f"{NAMES[-1]} hold, frozen"]
    assert rows[2].startswith("▸ layers.*")
