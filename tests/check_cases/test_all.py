"""Every case of every family, through the public doors `check` and `diff`."""

from pathlib import Path
from typing import Any

import pytest

from ckptcheck import verbs
from ckptcheck.finding import Result, Severity, Verdict
from tests.check_cases.case import Faulty, Legal, Make
from tests.check_cases.table import FAULTY, LEGAL


def judged(make: Make, folder: Path, options: Any) -> Result:
    made = make(folder)
    if isinstance(made, tuple):
        return verbs.diff(*made, **{"gate": "findings", **options})
    return verbs.check(made, **options)


@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_a_fault_is_told_by_its_code_and_its_place(case: Faulty, tmp_path):
    result = judged(case.make, tmp_path, case.options)
    found = [one for one in result.findings if one.code == case.code]
    assert found, [(one.code, one.message) for one in result.findings]
    assert case.severity in {str(one.severity) for one in found}
    if case.parameter is not None:
        assert any(one.where.parameter == case.parameter or case.parameter in one.message for one in found), found
    assert result.verdict is (Verdict.FAIL if case.severity == "error" else result.verdict)


@pytest.mark.parametrize("case", LEGAL, ids=lambda case: case.name)
def test_what_is_as_it_should_be_gives_no_error(case: Legal, tmp_path):
    result = judged(case.make, tmp_path, case.options)
    assert [(one.code, one.message) for one in result.findings if one.severity is Severity.ERROR] == []
    assert [(one.code, one.message) for one in result.findings if one.code in case.silent] == []
    assert result.verdict is Verdict.PASS


def test_there_are_as_many_cases_as_were_promised():
    assert len({case.name for case in FAULTY}) == len(FAULTY) >= 45
    assert len({case.name for case in LEGAL}) == len(LEGAL) >= 40
