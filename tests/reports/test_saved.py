"""Results read back: what was saved reads as it was, and what is no result is refused in one line."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ckptcheck.errors import UsageError
from ckptcheck.finding import Place, Result
from ckptcheck.reports import text
from ckptcheck.reports.json import document, render, render_many
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.saved import results_of
from ckptcheck.reports.schema import checker
from ckptcheck.reports.table import REPORTS
from tests.reports import check_results, checkpoint_results, results
from tests.reports.awkward import NAMES, awkward, refused
from tests.reports.pipeline_results import ACCEPTED
from tests.reports.validity import OURS, breaches_of

BY_HAND = {name: one for module in (results, check_results, checkpoint_results) for name, one in vars(module).items()
           if isinstance(one, Result) and name != "HOSTILE"}  # fmt: skip
SCHEMA = json.loads((OURS / "result.schema.json").read_text())
ODD: tuple[Any, ...] = (None, 5, -1, True, "x", "", [], {}, [[]], [{}], {"a": [1]}, 1e308, 0.5, "nan")
"""What stands in the place of what belongs there."""


def read_back(result: Result) -> Result:
    (told,) = results_of(render(result, Page()), "saved.json")
    return told


@pytest.mark.parametrize("name", [*BY_HAND, *NAMES])
def test_a_saved_result_reads_as_it_was(name):
    result = BY_HAND[name] if name in BY_HAND else awkward(NAMES[name])
    told = read_back(result)
    assert document(told) == json.loads(json.dumps(document(result)))
    for page in (Page(), Page(width=40), Page(detail=Detail.ALL), Page(detail=Detail.VERDICT, ascii_only=True)):
        assert text.render(told, page) == text.render(result, page)


def test_what_a_project_accepts_and_an_error_are_read_too():
    assert read_back(ACCEPTED).findings == ACCEPTED.findings
    assert read_back(refused("no such file")).error == "no such file"


def test_a_cause_that_shows_in_a_file_is_still_told_by_its_own_finding():
    """`first_divergence` has no path in JSON, and the finding that stands for the cause is found by its place."""
    first = results.BROKEN.findings[0]
    own = replace(first, message="in b.pt", where=Place(path="b.pt", step=4, stage="extra"))
    other = replace(first, message="in a.pt", where=Place(path="a.pt", step=6, stage="extra"))
    result = replace(results.BROKEN, findings=(other, own), first_divergence=own.where)
    assert read_back(result) == replace(result, parts=read_back(result).parts, environment=result.environment)
    assert text.render(read_back(result), Page()) == text.render(result, Page())


def test_a_list_of_results_is_several():
    both = (results.CLEAN, results.BROKEN)
    assert [one.verdict for one in results_of(render_many(both, Page()), "x")] == [one.verdict for one in both]


def nested(levels: int, inner: str = "1") -> str:
    return "[" * levels + inner + "]" * levels


def with_part(value: str) -> str:
    """A result whose part `note` is written so."""
    return render(results.SAVED, Page()).rstrip()[:-1].rstrip() + f', "note": {value}}}'


@pytest.mark.parametrize(("written", "said"), [
    ("", "is no JSON: expecting value (line 1); give what --report json=FILE wrote"),
    ("PASS  nothing was found", "is no JSON"),
    ("{}", "is no result of ckptcheck: give what --report json=FILE wrote"),
    ("[]", "is no result of ckptcheck: give what"),
    ("[[]]", "is no result of ckptcheck: give what"),
    ("null", "is no result of ckptcheck: give what"),
    ('{"version": "2.1.0", "runs": []}', "is no result of ckptcheck: give what"),
    ('{"schema": 2, "tool": {"name": "ckptcheck"}}', "has schema 2, and this version reads schema 1: update ckptcheck"),
    ('{"schema": true, "tool": {"name": "ckptcheck"}}', "it has no command"),
    (nested(100_000), "its values nest too deep"),
    (with_part(nested(60)), "its values nest too deep"),
    (with_part("NaN"), "NaN is no number of JSON"),
    (with_part("-Infinity"), "-Infinity is no number of JSON"),
    (with_part("1e999"), "the number 1e999 is too large for any that a result has"),
    (with_part("9" * 5000), "a number of 5000 digits is none that a result has"),
    (with_part("1") + "x", "is no JSON"),
])  # fmt: skip
def test_what_is_no_result_is_refused_in_a_line(written, said):
    with pytest.raises(UsageError) as caught:
        results_of(written, "r.json")
    assert str(caught.value).startswith("r.json ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("change", "said"), [
    (lambda told: told.pop("findings"), "has no findings"),
    (lambda told: told["findings"][0]["where"].update(step=-1), "findings[0].where.step must be 0 or more, and is -1"),
    (lambda told: told["findings"][0].update(severity="fatal"),
     "findings[0].severity must be one of 'error', 'warning', 'info', and is 'fatal'"),
    (lambda told: told["findings"][1].update(note=1), "findings[1].note does not belong there"),
    (lambda told: told["cause"].update(code="CK202\n"), "cause.code is 'CK202\\n', which is not of the form"),
    (lambda told: told.update(first_divergence=[]), "first_divergence must be an object, and is a list"),
    (lambda told: told.update(schema=True), "schema must be 1, and is true"),
    (lambda told: told["trajectory"][3]["max_abs_at"].append(True), "trajectory[3].max_abs_at[2] must be"),
    (lambda told: told.update(verdict="error"), "has no error"),
    (lambda told: told.update(error="x"), "error does not belong there"),
    (lambda told: told["compared"].update(steps=1.0), "compared.steps must be a whole number, and is 1"),
    (lambda told: told["runs"][0].update(name=None), "runs[0].name must be a text, and is null"),
    (lambda told: told.update(command="rm -rf"), "command is 'rm -rf', which is not of the form"),
])  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(change, said):
    told = json.loads(render(results.BROKEN, Page()))
    change(told)
    with pytest.raises(UsageError) as caught:
        results_of(json.dumps(told), "r.json")
    assert said in str(caught.value)


def places_in(value: Any, trail: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document; of a list the first two elements stand for all."""
    yield trail
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places_in(one, (*trail, key))


def with_value(node: Any, trail: tuple[str | int, ...], value: Any) -> Any:
    if not trail:
        return value
    node = copy.copy(node)
    node[trail[0]] = with_value(node[trail[0]], trail[1:], value)
    return node


BROKEN_PLACES = {
    name: list(places_in(json.loads(render(BY_HAND[name], Page()))))
    for name in ("BROKEN", "DIFFERENT", "INSPECTED", "UNNAMED", "SAVED")
}


@pytest.mark.parametrize("name", BROKEN_PLACES)
def test_a_document_with_something_else_in_any_place_is_refused_or_rendered(name):
    """A few of each odd value in every place: all of them take minutes."""
    told = json.loads(render(BY_HAND[name], Page()))
    rendered = 0
    for number, trail in enumerate(BROKEN_PLACES[name]):
        for value in (ODD[(3 * number) % len(ODD)], ODD[(3 * number + 7) % len(ODD)]):
            try:
                (result,) = results_of(json.dumps(with_value(told, trail, value)), "r.json")
            except UsageError:
                continue
            REPORTS["text"](result, Page(detail=Detail.ALL if number % 2 else Detail.NORMAL))
            rendered += 1
    assert rendered


@pytest.mark.parametrize("name", BROKEN_PLACES)
def test_our_reader_of_the_schema_and_jsonschema_agree(name):
    told, check = json.loads(render(BY_HAND[name], Page())), checker(SCHEMA)
    refused_ones = 0
    for number, trail in enumerate(BROKEN_PLACES[name][::3]):
        value = ODD[number % len(ODD)]
        if value == 1e308:  # in the draft a whole number
            continue
        broken = with_value(told, trail, value)
        ours = check(broken) is not None
        assert ours == bool(breaches_of(broken)), (trail, value)
        refused_ones += ours
    assert refused_ones
