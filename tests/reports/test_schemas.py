"""The schemas that ship: of results, and of settings."""

import json
import tomllib
from importlib.resources import files

import pytest

from ckptcheck import config
from ckptcheck.comparison.checkpoint_diff import CONTENT_SECTIONS
from ckptcheck.errors import UsageError
from ckptcheck.finding import Compared, Finding, Place, Severity, Verdict
from ckptcheck.reports.json import document
from ckptcheck.state.stages import STAGES
from tests.reports import results
from tests.reports.golden_cases import CASES, FOLDER
from tests.reports.validity import OURS, breaches_of

RESULT, SETTINGS = (json.loads((OURS / f"{name}.schema.json").read_text()) for name in ("result", "config"))


def test_the_schemas_are_in_the_package():
    assert {one.name for one in files("ckptcheck").joinpath("schemas").iterdir()} == {
        "result.schema.json", "config.schema.json",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", [name for name, (form, _, _) in CASES.items() if form == "json" and "hostile" not in name]
)
def test_a_kept_report_keeps_the_schema(name):
    assert breaches_of(json.loads((FOLDER / name).read_text())) == []


def test_the_schema_knows_every_word_of_the_frame():
    told = RESULT["$defs"]
    assert told["stage"]["enum"] == [*STAGES]
    assert {*told["section"]["enum"]} == {*CONTENT_SECTIONS}
    assert told["severity"]["enum"] == [*Severity]
    assert told["result"]["properties"]["verdict"]["enum"] == [*Verdict]
    assert {*told["where"]["properties"]} == {*Place.__dataclass_fields__}
    assert {*told["finding"]["properties"]} == {*Finding.__dataclass_fields__}
    assert {*told["compared"]["properties"]} == {*Compared.__dataclass_fields__}


@pytest.mark.parametrize(("change", "said"), [
    (lambda told: told.update(schema=2), "1 was expected"),
    (lambda told: told["tool"].update(url="x"), "Additional properties"),
    (lambda told: told["findings"][0].update(extra=1), "Additional properties"),
    (lambda told: told["findings"][0]["where"].update(line=1), "Additional properties"),
    (lambda told: told["findings"][0].update(accepted={"reason": "x"}), "'until' is a required property"),
    (lambda told: told["first_divergence"].pop("rank"), "is not valid under any of the given schemas"),
    (lambda told: told["trajectory"][0].update(step="10"), "is not of type 'integer'"),
    (lambda told: told["magnitudes"][0].pop("stage"), "'stage' is a required property"),
])  # fmt: skip
def test_a_breach_is_seen(change, said):
    told = json.loads(json.dumps(document(results.BROKEN)))
    assert breaches_of(told) == []
    change(told)
    assert any(said in one for one in breaches_of(told))


def test_a_part_that_is_new_and_a_new_column_of_a_row_may_stand_there():
    told = json.loads(json.dumps(document(results.BROKEN)))
    told["novelty"] = {"a": 1}
    told["trajectory"][0]["novelty"] = 1
    assert breaches_of(told) == []


# -- settings


def test_the_schema_of_settings_has_the_keys_that_are_read():
    told = SETTINGS["properties"]
    assert {*told} == {*config.KEYS}
    assert {*told["verify"]["properties"]} == {*config.VERIFY}
    assert {*told["accept"]["items"]["properties"]} == {*config.ACCEPT}


SETTINGS_OF_A_PROJECT = """
select = ["CK"]
ignore = ["CK207"]
fail-on = "warning"
require = ["CK603"]
severity = {CK205 = "error", CK2 = "info"}
freeze = {"backbone.*" = "hold"}
tolerance = {param = {rtol = 0.0, atol = 1e-6}, "state:bfloat16" = {rtol = 0.01}}
verify = {target = "train.py:build", steps = 20, resume-at = [10, "auto"], policy = "exact", on-inconclusive = "fail"}
accept = [{code = "CK501", parameter = "head.*", reason = "new", until = 2027-01-31}]
"""
CHANGES = (
    ("select", '"CK"'), ("select", '["CK9"]'), ("ignore", "[1]"), ("fail-on", '"info"'), ("require", '["ck2"]'),
    ("severity", '{CK2 = "fatal"}'), ("severity", '{X = "error"}'),
    ("freeze", '{a = "melt"}'), ("freeze", '"hold"'), ("tolerance", "{weights = {rtol = 1}}"),
    ("tolerance", "{param = {rtol = -1}}"), ("tolerance", "{param = {rtol = true}}"), ("tolerance", "{param = 1}"),
    ("tolerance", "{param = {ulp = 1}}"), ("verify", "{steps = 1}"), ("verify", "{steps = 2.5}"),
    ("verify", "{resume-at = []}"), ("verify", '{resume-at = "never"}'), ("verify", "{resume-at = [0]}"),
    ("verify", '{resume-at = "auto"}'), ("verify", "{repeats = 0}"), ("verify", '{target = " "}'),
    ("verify", '{policy = "loose"}'), ("verify", '{on-inconclusive = "skip"}'), ("verify", "{device = 1}"),
    ("verify", "{stepz = 1}"), ("accept", '[{code = "CK5", reason = "x"}]'), ("accept", '[{code = "CK501"}]'),
    ("accept", '[{reason = "x"}]'), ("accept", '[{code = "CK501", reason = ""}]'),
    ("accept", '[{code = "CK501", reason = "x", parameter = ""}]'), ("accept", "{}"), ("colour", "1"),
    ("accept", '[{code = "CK501", reason = "x", until = 2027-01-31T10:00:00}]'),
)  # fmt: skip
"""A key and what is set in its place."""


@pytest.mark.parametrize(("key", "value"), [("", ""), *CHANGES])
def test_the_schema_takes_what_is_read_and_refuses_what_is_refused(tmp_path, key, value):
    lines = [one for one in SETTINGS_OF_A_PROJECT.splitlines() if not key or not one.startswith(f"{key} =")]
    told = "\n".join([*lines, f"{key} = {value}" if key else ""])
    path = tmp_path / "ckptcheck.toml"
    path.write_text(told)
    try:
        config.load_config(path, tmp_path)
        taken = True
    except UsageError:
        taken = False
    as_json = json.loads(json.dumps(tomllib.loads(told), default=lambda one: one.isoformat()))
    assert (breaches_of(as_json, OURS / "config.schema.json") == []) is taken
    assert taken == (key == "" or value == '{resume-at = "auto"}')
