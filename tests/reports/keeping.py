"""Whether a real result keeps the schema, and can be saved."""

import json as plain_json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from ckptcheck.finding import Result
from ckptcheck.reports import json, text
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.saved import results_of
from ckptcheck.reports.schema import checker

BY_SCHEMA = checker(plain_json.loads(files("ckptcheck").joinpath("schemas", "result.schema.json").read_text()))


def kept(result: Result) -> Result:
    """The same result, which keeps the schema, and of which the text is the same when it was saved and read back."""
    (again,) = results_of(json.render(result, Page()), "the result")
    for page in (Page(), Page(detail=Detail.ALL)):
        assert text.render(again, page) == text.render(result, page)
    return result


def breaks_schema(document: Any) -> Iterator[str]:
    """The first thing that breaks the schema that ships; `test_saved` shows that we read it as others do."""
    if (trouble := BY_SCHEMA(document)) is not None:
        yield f"{trouble.trail} {trouble.said}"
