import pytest

from ckptcheck.reports.page import Page
from ckptcheck.reports.table import REPORTS
from tests.reports.results import APART, BROKEN, CLEAN, HOSTILE, NOISY, RAISED, REFUSED, SAVED


@pytest.mark.parametrize("form", REPORTS)
@pytest.mark.parametrize("result", [CLEAN, BROKEN, RAISED, APART, SAVED, NOISY, REFUSED, HOSTILE])
def test_every_format_renders_every_verdict_and_ends_in_a_newline(form, result):
    assert REPORTS[form](result, Page()).endswith("\n")
