import pytest

from tests.reports.golden_cases import CASES, FOLDER, rendered


@pytest.mark.parametrize("name", CASES)
def test_a_report_reads_as_the_kept_one(name):
    assert rendered(name) == (FOLDER / name).read_text(encoding="utf-8"), "renew: python -m tests.reports.golden_cases"


def test_every_kept_report_has_its_case():
    assert {path.name for path in FOLDER.iterdir()} == set(CASES)
