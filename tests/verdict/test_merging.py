"""What two kinds of rules say of one fault comes once."""

from ckptcheck.finding import Finding, Place, Severity
from ckptcheck.verdict.merging import told_once


def finding(code: str, message: str, severity: Severity = Severity.ERROR, **place: object) -> Finding:
    return Finding(code, "a-name", severity, message, Place(**place))


def test_what_both_say_is_said_by_the_rules_of_the_load():
    stored = finding("CK202", "the file", parameter="a", optimizer=0)
    load = finding("CK202", "the load", parameter="a", optimizer=0, group=1, stage="load")
    assert told_once([stored], [load]) == [load]


def test_other_places_and_other_codes_stay_apart():
    stored = [finding("CK202", "the file", parameter="a"), finding("CK203", "the file", parameter="b")]
    load = finding("CK202", "the load", parameter="b")
    assert told_once(stored, [load]) == [*stored, load]


def test_the_weightier_severity_of_both_stays():
    stored = finding("CK204", "the file", Severity.ERROR, path="scheduler.pt")
    load = finding("CK204", "the load", Severity.WARNING)
    assert told_once([stored], [load]) == [finding("CK204", "the load", Severity.ERROR)]
    assert told_once([finding("CK204", "the file", Severity.INFO)], [load]) == [load]
