"""Results of real runs, as JSON, against schema 1."""

import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner

from ckptcheck.cli.demo import TITLES
from ckptcheck.cli.main import door
from ckptcheck.reports.json import document
from tests.catalogue.running import forked_workers
from tests.reports.check_results import DEMANDED, FIT, FLOODED, INCOMPLETE, RELEASED, UNNAMED, UNTRIED, WARNED
from tests.reports.checkpoint_results import DAMAGED, DIFFERENT, GATED, INSPECTED, MATCHING, NOTHING, WHOLE
from tests.reports.contract import breaches
from tests.reports.results import APART, BROKEN, CLEAN, HOSTILE, NOISY, REFUSED, SAVED
from tests.reports.validity import VALID, breaches_of

ROOT = Path(__file__).parents[2]
TARGET = "ckptcheck.experiment.demo_targets:build"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Path]:
    """A folder of its own, and workers that are forks."""
    with forked_workers():
        yield tmp_path_factory.mktemp("runs")


def run(place: Path, *arguments: str) -> list[dict]:
    """Run the command and return its documents.

    Each of its reports is valid, and a text of the saved result is the text of the command.
    """
    reports = {form: place / f"told.{form}" for form in (*VALID, "text")}
    options = [word for form, path in reports.items() for word in ("--report", f"{form}={path}")]
    with chdir(place):
        done = CliRunner().invoke(door, [*arguments, "--format", "json", *options])
        told = {form: path.read_text() for form, path in reports.items()}
        assert told["json"] == done.stdout
        again = CliRunner().invoke(door, ["report", str(reports["json"]), "-o", "again.txt"])
        assert again.exit_code == 0, again.output
        live = "".join(line for line in told["text"].splitlines(True) if line.strip() not in TITLES)
        assert (place / "again.txt").read_text() == live
    for form, check in VALID.items():
        check(told[form])
    found = json.loads(done.stdout)
    return found if isinstance(found, list) else [found]


CHECKPOINTS = (DAMAGED, DIFFERENT, GATED, INSPECTED, MATCHING, NOTHING, WHOLE)
CHECKED = (DEMANDED, FIT, FLOODED, INCOMPLETE, RELEASED, UNNAMED, UNTRIED, WARNED)


@pytest.mark.parametrize("result", [CLEAN, APART, SAVED, NOISY, REFUSED, *CHECKPOINTS, *CHECKED])
def test_a_result_by_hand_keeps_the_contract(result):
    told = json.loads(json.dumps(document(result)))
    assert breaches(told) == []
    assert breaches_of(told) == []


def test_a_breach_is_seen():
    broken = json.loads(json.dumps(document(BROKEN)))
    del broken["first_divergence"]["stage"]
    broken["findings"][0]["where"]["file"] = "x"
    broken["cause"]["code"] = "CK999"
    broken["trajectory"] = [{"run": "r"}]
    found = " ".join(breaches(broken))
    assert all(word in found for word in ("first_divergence: keys", "where 0: file", "stands for the cause"))
    assert "trajectory 0: keys" in found
    assert breaches(document(HOSTILE))


def test_a_breach_in_a_table_of_a_checkpoint_is_seen():
    apart = json.loads(json.dumps(document(DIFFERENT)))
    del apart["differences"][0]["max_ulp"]
    apart["differences"][1]["kind"] = "strange"
    apart["sections"] = None
    apart["left"]["layout"] = {}
    found = " ".join(breaches(apart))
    for word in ("differences 0: keys", "differences 1: kind is 'strange'", "sections is None", "left: layout"):
        assert word in found
    passed = json.loads(json.dumps(document(DIFFERENT))) | {"verdict": "pass"}
    assert breaches(passed) == ["a pass in which something differs"]


def test_a_breach_in_what_a_check_of_a_load_or_of_a_run_tells_is_seen():
    broken = json.loads(json.dumps(document(UNNAMED)))
    broken["target"]["judged"] = ["CK30"]
    broken["target"]["pairs"][1]["class"] = ""
    broken["series"][0]["checked"] = True
    broken["series"][1]["counters"] = {"epochs": 3}
    del broken["older_not_read"], broken["series"][2]["damage"]
    found = " ".join(breaches(broken))
    for word in (
        "target: judged",
        "target: pairs",
        "series 1: counters",
        "series 2: keys",
        "older_not_read",
        "more than",
    ):
        assert word in found


def test_a_real_load_and_a_real_run_keep_it(place):
    own = run(place, "save", TARGET, "--steps", "2", "-o", "mine")[0]["checkpoint"]
    tried = run(place, "check", own, "--target", TARGET)[0]
    run_of_two = run(place, "check", str(ROOT / "fixtures/checkpoints/04_hf_trainer"))[0]
    assert breaches(tried) == breaches(run_of_two) == []
    assert tried["target"]["loaded"]
    assert len(run_of_two["series"]) == 2


def test_a_pass_and_a_fail_of_real_training_keep_it(place):
    documents = run(place, "demo")
    assert [breaches(one) for one in documents] == [[], []]
    assert [one["verdict"] for one in documents] == ["pass", "fail"]
    measured = [row for row in documents[1]["magnitudes"] if row["max_abs"] is not None]
    assert measured, "the step that differs first is measured"


def test_traces_and_what_writes_them_keep_it(place):
    saved = run(place, "save", TARGET, "--steps", "2", "-o", "ckpt", "--trace", "short")
    resumed = run(place, "resume", TARGET, "ckpt", "--steps", "4", "-o", "right")
    longer = run(place, "save", TARGET, "--steps", "4", "-o", "ckpt4", "--trace", "left")
    equal = run(place, "compare", "left", "right")
    assert [breaches(one) for one in saved + resumed + longer + equal] == [[], [], [], []]
    assert equal[0]["verdict"] == "pass"
    assert equal[0]["compared"]["steps"] == 2
    nothing = run(place, "compare", "short", "right")
    assert nothing[0]["verdict"] == "error"
    assert breaches(nothing[0]) == []


def test_checkpoints_by_themselves_and_side_by_side_keep_it(place):
    first, second = (str(ROOT / f"fixtures/checkpoints/04_hf_trainer/checkpoint-{step}") for step in (2, 4))
    assert breaches(run(place, "inspect", first)[0]) == []
    same, apart, judged = (
        run(place, "diff", first, *rest)[0] for rest in ((first,), (second,), (second, "--gate", "findings"))
    )
    assert [breaches(one) for one in (same, apart, judged)] == [[], [], []]
    assert [one["verdict"] for one in (same, apart, judged)] == ["pass", "fail", "pass"]


def test_a_probe_of_an_optimizer_and_of_a_target_keep_the_schema(place):
    (optimizer,) = run(place, "probe", f"{ROOT / 'fixtures/optimizers.py'}:NoneAsZero")
    (target,) = run(place, "probe", TARGET, "--freeze", "*.bias=hold", "--steps", "3")
    assert (optimizer["verdict"], target["verdict"]) == ("fail", "fail")
    assert {one["code"] for one in optimizer["findings"] + target["findings"]} == {"CK701", "CK702"}
