"""Hand-made results with what matters to a pipeline: accepted findings, very many, and none that explains a fail."""

from dataclasses import replace

from ckptcheck.finding import Accepted, Compared, Finding, Place, Result, Severity, Verdict
from tests.reports import check_results, results

KEPT = Accepted("the head is trained anew", "2027-01-31", "ckptcheck.toml, accept[0]")
ACCEPTED = replace(
    results.BROKEN,
    verdict=Verdict.PASS,
    cause=None,
    first_divergence=None,
    findings=(replace(results.BROKEN.findings[0], accepted=KEPT), results.BROKEN.findings[1]),
)
MANY = replace(
    check_results.FLOODED,
    findings=tuple(
        Finding("CK202", "optimizer-state-missing-for-parameter", severity, f"block {number} has no state",
                Place(parameter=f"blocks.{number}.weight", optimizer=0), {}, "save it whole")
        for number, severity in enumerate([Severity.WARNING, Severity.ERROR, Severity.INFO] * 300)
    ),
)  # fmt: skip
UNEXPLAINED = Result("diff", Verdict.FAIL, Compared(bytes=4), parts={"right": {"path": "b c/%.pt"}})
