"""What several ranks say, told once; and what was seen of `load_state_dict` beside it."""

from ckptcheck.finding import Cause, Finding, Place, Severity
from ckptcheck.rules.runs.judge import Judgement
from ckptcheck.verdict.scripts.telling import joined, of_rank, with_cause_of_raise, with_loads


def finding(code, step, stage, parameter=None, severity=Severity.ERROR):
    return Finding(code, code.lower(), severity, "said", Place(parameter=parameter, step=step, stage=stage))


def judgement(*findings):
    cause = Cause(findings[0].code, "certain") if findings else None
    return Judgement(findings, (), cause, findings[0].where if findings else None)


def told(judged):
    return [(one.code, one.where.rank) for judgement in judged for one in judgement.findings]


def test_the_same_on_all_ranks_is_told_by_the_first_with_all_ranks_as_evidence():
    both = [of_rank(judgement(finding("CK201", 6, "load", "a")), rank) for rank in (0, 1)]
    found = joined(both)
    assert told(found) == [("CK201", 0)]
    assert found[0].findings[0].evidence["ranks"] == [0, 1]


def test_what_follows_on_other_ranks_is_left_out_and_what_stands_beside_is_kept():
    zero = of_rank(judgement(finding("CK606", 7, "grad"), finding("CK614", 6, "load")), 0)
    one = of_rank(judgement(finding("CK604", 7, "inputs")), 1)
    assert told(joined([zero, one])) == [("CK614", 0), ("CK604", 1)]


def test_two_faults_at_one_moment_on_two_ranks_are_both_told():
    ranks = [
        of_rank(judgement(finding("CK603", 6, "load")), 0),
        of_rank(judgement(finding("CK201", 6, "load", "a")), 1),
    ]
    assert told(joined(ranks)) == [("CK603", 0), ("CK201", 1)]


def test_frozen_parameters_that_move_are_told_whatever_came_before():
    ranks = [
        of_rank(judgement(finding("CK603", 6, "load")), 0),
        of_rank(judgement(finding("CK401", 9, "param", "a")), 1),
    ]
    assert told(joined(ranks)) == [("CK603", 0), ("CK401", 1)]


def test_a_fault_that_the_load_shows_too_is_told_once():
    own = judgement(finding("CK201", 6, "load", "a"))
    seen = [finding("CK201", 6, "load", "a"), finding("CK201", 6, "load", "b"), finding("CK310", 6, "load", "a")]
    found = with_loads(own, seen, goes_on=False)
    assert [(one.code, one.where.parameter) for one in found.findings] == [
        ("CK201", "a"), ("CK201", "b"), ("CK310", "a"),
    ]  # fmt: skip
    assert [one.severity for one in found.findings] == [Severity.ERROR] * 3


def test_a_load_that_was_odd_and_without_effect_is_a_warning():
    seen = [finding("CK310", 6, "load", "a"), finding("CK504", 6, "load", "b", Severity.INFO)]
    found = with_loads(judgement(), seen, goes_on=True).findings
    assert [one.severity for one in found] == [Severity.WARNING, Severity.INFO]
    assert found[0].evidence["without_effect"] is True
    assert "without effect on the steps that follow" in found[0].message


def test_what_was_seen_of_the_load_is_why_a_run_raised_that_nothing_else_explains():
    seen = [finding("CK601", 6, "load"), finding("CK301", 6, "load"), finding("CK504", 6, "load", "b", Severity.INFO)]
    found = with_cause_of_raise(with_loads(judgement(finding("CK610", 6, "load")), seen, goes_on=False), "ValueError")
    assert [one.code for one in found.findings] == ["CK301", "CK601", "CK504"]
    assert (found.cause, found.place) == (Cause("CK301", "certain"), seen[1].where)
    assert found.findings[0].evidence["raised"] == "ValueError"


def test_a_raise_keeps_its_cause_where_one_is_known_or_nothing_was_seen():
    for own, seen in (("CK201", "CK301"), ("CK610", "CK614")):
        judged = with_loads(judgement(finding(own, 6, "load")), [finding(seen, 6, "load")], goes_on=False)
        assert with_cause_of_raise(judged, "ValueError") == judged
    unexplained = judgement(finding("CK610", 6, "load"))
    assert with_cause_of_raise(unexplained, "ValueError") == unexplained
    assert with_cause_of_raise(judgement(), None) == judgement()
