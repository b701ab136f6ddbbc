"""Every mechanism of the public reports is told from files by some case, or it is said why files cannot tell it."""

from collections.abc import Iterator

import pytest

from ckptcheck.finding import Verdict
from tests.check_cases.case import Faulty
from tests.check_cases.mechanisms import FAULTY, NOT_CAUGHT, NOT_TOLD
from tests.check_cases.reports import REPORTS
from tests.check_cases.table import FAULTY as OF_FAMILIES
from tests.check_cases.test_all import judged

CAUGHT = {case.mechanism for case in (*FAULTY, *OF_FAMILIES)} - {"", *NOT_CAUGHT}
PROMISED = 114
"""Reports that a case tells, of all in the table."""


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_a_mechanism_is_told_by_its_code_and_its_place(case: Faulty, tmp_path):
    result = judged(case.make, tmp_path, case.options)
    found = [one for one in result.findings if one.code == case.code]
    assert case.severity in {str(one.severity) for one in found}, [(one.code, one.message) for one in result.findings]
    if case.parameter is not None:
        assert any(one.where.parameter == case.parameter or case.parameter in one.message for one in found), found
    assert result.verdict is Verdict.FAIL or case.severity != "error"


def reports() -> Iterator[tuple[str, str]]:
    """Each report with its mechanism."""
    yield from ((report, mechanism) for (_, mechanism), ids in REPORTS.items() for report in ids)


@pytest.mark.parametrize("mechanism", sorted({mechanism for _, mechanism in reports()}))
def test_a_mechanism_has_a_case_or_a_reason(mechanism: str):
    assert (mechanism in CAUGHT) != (mechanism in NOT_CAUGHT)


def test_the_tables_name_nothing_else():
    known = dict(reports())
    assert CAUGHT | NOT_CAUGHT.keys() <= set(known.values())
    assert NOT_TOLD.keys() <= {report for report, mechanism in known.items() if mechanism in CAUGHT}
    assert all(len(reason.split()) >= 5 for reason in (*NOT_CAUGHT.values(), *NOT_TOLD.values()))


def test_so_many_reports_are_told():
    told = {report for report, mechanism in reports() if mechanism in CAUGHT and report not in NOT_TOLD}
    assert sum(len(ids) for ids in REPORTS.values()) == len(dict(reports())) == 140
    assert len(REPORTS) == 56
    assert len(told) == PROMISED
