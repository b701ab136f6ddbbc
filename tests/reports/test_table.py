import pytest

from ckptcheck.reports.page import Page
from ckptcheck.reports.table import REPORTS
from tests.reports.results import BROKEN, CLEAN, HOSTILE, NOISY, REFUSED


@pytest.mark.parametrize("form", REPORTS)
@pytest.mark.parametrize("result", [CLEAN, BROKEN, NOISY, REFUSED, HOSTILE], ids=lambda result: result.verdict.value)
def test_every_format_renders_every_verdict_and_ends_in_a_newline(form, result):
    assert REPORTS[form](result, Page()).endswith("\n")
