"""Whatever a case holds, it is judged, and its cause is the first of its findings."""

import pytest

from ckptcheck.rules.runs.judge import judge
from ckptcheck.rules.runs.table import CAUSES
from tests.rules.faults import is_legible
from tests.rules.runs.any_case import any_case, origins

CASES = range(400)
TOGETHER = 20


@pytest.mark.parametrize("first", range(CASES.start, CASES.stop, TOGETHER))
def test_any_case_is_judged_legibly_and_its_cause_is_one_of_its_findings(first, tmp_path):
    known = origins(tmp_path)
    for seed in range(first, first + TOGETHER):
        told = judge(any_case(seed, known))
        assert is_legible(told.findings), seed
        assert told.cause is None or told.cause.code in CAUSES
        assert told.cause is None or told.cause.code == told.findings[0].code, seed
    known._trace.close()
