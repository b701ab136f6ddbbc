"""JUnit XML as Jenkins, GitLab and others read it: a suite a result, a case for the verdict and one for each finding.

The layout is that of junit-10.xsd of Jenkins' xUnit plugin. ASCII only: everything else is a character reference.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ckptcheck import __version__
from ckptcheck.finding import Compared, Finding, Json, Result, Verdict
from ckptcheck.reports import text, words
from ckptcheck.reports.distances import entries_of
from ckptcheck.reports.gating import gating, spot, subject
from ckptcheck.reports.headlines import headline
from ckptcheck.reports.page import Page, escaped

_COUNTED: Final = {"failures": "failure", "errors": "error"}


def render(result: Result, page: Page) -> str:
    """Return the document of one result."""
    return render_many((result,), page)


def render_many(results: Sequence[Result], page: Page) -> str:
    """Return one document with a suite for each result."""
    root = Element("testsuites", {"name": "ckptcheck"})
    suites = [_suite(result, page) for result in results]
    for name, kind in {"tests": "", **_COUNTED}.items():
        root.set(name, str(sum(_count(suite, kind) for suite in suites)))
    root.extend(suites)
    indent(root)
    document: bytes = tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii") + "\n"


def _suite(result: Result, page: Page) -> Element:
    """The suite of a result; a name stands once in it, as tools tell cases by class and name."""
    about = subject(result)
    suite = Element("testsuite", {"name": " ".join(filter(None, ("ckptcheck", result.command, about)))})
    told = ".".join(filter(None, (result.command, about.replace(".", "_"))))
    names: Counter[str] = Counter()

    def case(name: str, seconds: float = 0.0) -> Element:
        name = escaped(name)
        names[name] += 1
        unique = name if names[name] == 1 else f"{name} ({names[name]})"
        attributes = {"classname": f"ckptcheck.{told}", "name": unique, "time": f"{seconds:.3f}"}
        return SubElement(suite, "testcase", attributes)

    properties = SubElement(suite, "properties")
    for key, value in _facts(result).items():
        SubElement(properties, "property", {"name": key, "value": escaped(value)})
    _verdict(case("verdict", _seconds(result)), result, page)
    for finding, fails in zip(result.findings, gating(result), strict=True):
        place = spot(finding.where)
        _finding(case(f"{finding.code} {finding.name}" + (f": {place}" if place else "")), finding, fails)
    for rule in result.not_judged:
        SubElement(case(rule.code), "skipped", {"message": escaped(f"not judged: {rule.reason}")})
    for name, kind in {"tests": "", **_COUNTED, "skipped": "skipped"}.items():
        suite.set(name, str(_count(suite, kind)))
    suite.set("time", f"{_seconds(result):.3f}")
    return suite


def _verdict(case: Element, result: Result, page: Page) -> None:
    """Fail the case as the verdict does; the whole text stands in it whatever the verdict."""
    said, whole = escaped(headline(result)), text.render(result, Page(top=page.top))
    kind = _kind(result, page)
    if not kind:
        SubElement(case, "system-out").text = whole
        return
    SubElement(case, kind, {"type": result.verdict.value, "message": said}).text = whole


def _kind(result: Result, page: Page) -> str:
    """What the verdict is to JUnit: what cannot be told is an error, for a skipped case is green."""
    if result.verdict is Verdict.INCONCLUSIVE:
        return "skipped" if page.inconclusive_passes else "error"
    return {Verdict.FAIL: "failure", Verdict.ERROR: "error"}.get(result.verdict, "")


def _finding(case: Element, finding: Finding, fails: bool) -> None:
    """Fail the case of a finding that gates; any other tells of itself in what the case printed."""
    lines = [
        f"{finding.code} {finding.severity.value}: {finding.message}",
        *([words.accepted(finding)] if finding.accepted else []),
        *_lines("where", words.place(finding.where)),
        *_lines("evidence", words.evidence(finding)),
        *_lines("to do", finding.fix),
    ]
    told = "".join(f"{escaped(line)}\n" for line in lines)
    if fails:
        attributes = {"type": finding.code, "message": escaped(finding.message)}
        SubElement(case, "failure", attributes).text = told
    else:
        SubElement(case, "system-out").text = told


def _lines(label: str, said: str) -> list[str]:
    return [f"{label}: {said}"] if said else []


def _facts(result: Result) -> dict[str, str]:
    """What tools show beside a suite: the tool, the verdict, the cause, and how much was compared."""
    cause, first = result.cause, result.first_divergence
    facts = {
        "ckptcheck.version": __version__,
        "verdict": result.verdict.value,
        "cause": f"{cause.code} ({cause.confidence})" if cause else "",
        "first_divergence": words.place(first) if first else "",
        "compared": words.compared(result.compared) if result.compared != Compared() else "",
    }
    return {key: value for key, value in facts.items() if value}


def _seconds(result: Result) -> float:
    """How long the runs took together."""
    taken: list[Json] = [one.get("seconds") for one in entries_of(result, "runs")] or [result.parts.get("seconds")]
    return sum(float(one) for one in taken if isinstance(one, int | float))


def _count(suite: Element, kind: str) -> int:
    """How many cases of a suite came out so; all for ""."""
    return sum(1 for case in suite.iter("testcase") if not kind or case.find(kind) is not None)
