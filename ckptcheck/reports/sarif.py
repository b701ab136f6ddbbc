"""SARIF 2.1.0, as code scanning reads it: a run a result, a result a finding, a rule with its card for each code.

What a rule could not judge is a notification of the invocation. Specification: OASIS SARIF 2.1.0 with errata 01.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Final
from urllib.parse import quote

from ckptcheck import __version__
from ckptcheck.finding import EXIT_PASS, Finding, Json, Place, Result, Severity, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.gating import gating, path_of, subject, weightiest_first
from ckptcheck.reports.headlines import headline
from ckptcheck.reports.json import document, dumped, plain
from ckptcheck.reports.page import Page, escaped

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_UNEXPLAINED: Final = "verdict"
"""Stands for a verdict that no finding explains, such as two checkpoints of which the content differs."""
_MOST: Final = 20_000
"""Results of a run; code scanning refuses more than 25,000."""
_PARTS: Final = (("why", "Why it matters"), ("example", "Example"), ("fix", "What to do"), ("limits", "Limits"))
"""Parts of a card that follow what the rule finds."""


def render(result: Result, page: Page) -> str:
    """Return the log of one result."""
    return render_many((result,), page)


def render_many(results: Sequence[Result], page: Page) -> str:
    """Return one log with a run for each result."""
    log: Json = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(result, page) for result in results]}
    return dumped(log)


def _run(result: Result, page: Page) -> Json:
    findings = weightiest_first(result)
    places = {code: place for place, code in enumerate(_codes(result))}
    seen: Counter[str] = Counter()
    told: list[Json] = [_result(result, finding, fails, places, seen) for finding, fails in findings[:_MOST]]
    if _UNEXPLAINED in places:
        told.insert(0, _unexplained(result, places[_UNEXPLAINED], page))
    frame = document(result)
    kept = ("command", "verdict", "compared", "first_divergence", "cause")
    return {
        "tool": {"driver": {"name": "ckptcheck", "version": __version__, "rules": _rules(result, places, page)}},
        "automationDetails": {"id": "/".join(filter(None, ("ckptcheck", result.command, subject(result)))) + "/"},
        "invocations": [_invocation(result, places, len(findings) - _MOST, page)],
        "columnKind": "unicodeCodePoints",
        "results": told,
        "properties": {key: frame[key] for key in kept},
    }


def _codes(result: Result) -> dict[str, None]:
    """The rules that a run speaks of, each once."""
    explained = any(gating(result)) or (result.verdict is Verdict.INCONCLUSIVE and result.cause is not None)
    fails = result.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)
    found = dict.fromkeys([*(one.code for one in result.findings), *(one.code for one in result.not_judged)])
    return found | ({_UNEXPLAINED: None} if fails and not explained else {})


def _rules(result: Result, places: Mapping[str, int], page: Page) -> list[Json]:
    first = {one.code: one for one in reversed(result.findings)}
    return [_rule(code, first.get(code), page.cards.get(code, {})) for code in places]


def _rule(code: str, finding: Finding | None, card: Mapping[str, Json]) -> Json:
    """A code with its name and what its card says, else what its first finding says is to be done."""
    name = card.get("name") or (finding.name if finding else None)
    what = str(card.get("what") or (finding.name.replace("-", " ") if finding else code))
    parts = [(title, str(card[part])) for part, title in _PARTS if card.get(part)]
    if code == _UNEXPLAINED:
        what, parts = "the verdict of the command, where no finding explains it", [("What to do", "read the message")]
    if not parts:
        parts = [("What to do", finding.fix if finding and finding.fix else f"ask ckptcheck explain {code}")]
    severity = str(card.get("severity") or (finding.severity.value if finding else Severity.WARNING.value))
    rule: dict[str, Json] = {
        "id": code,
        "shortDescription": _message(what),
        "fullDescription": _message(what),
        "help": _message(*(f"{title}: {said}" for title, said in parts)),
        "defaultConfiguration": {"level": _LEVELS[Severity(severity)]},
    }
    if name:
        rule["name"] = escaped(str(name))
    return rule


def _result(result: Result, finding: Finding, fails: bool, places: Mapping[str, int], seen: Counter[str]) -> Json:
    mark = _fingerprint(result, finding)
    seen[mark] += 1
    told: dict[str, Json] = {
        "ruleId": finding.code,
        "ruleIndex": places[finding.code],
        "level": _LEVELS[finding.severity],
        "message": _message(finding.message, *([f"To do: {finding.fix}"] if finding.fix else [])),
        "locations": [_location(path_of(result, finding), finding.where)],
        "partialFingerprints": {
            "ckptcheckFinding/v1": f"{mark}:{seen[mark]}",
            "primaryLocationLineHash": f"{mark[:16]}:{seen[mark]}",
        },
        "properties": {
            "gates": fails,
            "name": finding.name,
            "evidence": plain(finding.evidence),
            "step": finding.where.step,
            "stage": finding.where.stage,
        },
    }
    if finding.accepted is not None:
        said = escaped(words.accepted(finding))
        told["suppressions"] = [{"kind": "external", "status": "accepted", "justification": said}]
    return told


def _unexplained(result: Result, place: int, page: Page) -> Json:
    """What stands for a verdict that no finding explains: a gate that fails shall not look like one without results."""
    level = "error" if result.verdict is Verdict.FAIL else "note" if page.inconclusive_passes else "warning"
    said = f"ckptcheck {result.command}, {result.verdict.value}: {headline(result)}"
    mark = sha256(f"{result.command}\n{subject(result)}".encode()).hexdigest()
    return {
        "ruleId": _UNEXPLAINED,
        "ruleIndex": place,
        "level": level,
        "message": _message(said),
        "locations": [_location(path_of(result), result.first_divergence or Place())],
        "partialFingerprints": {"ckptcheckFinding/v1": f"{mark[:32]}:1", "primaryLocationLineHash": f"{mark[:16]}:1"},
    }


def _location(path: str, where: Place) -> Json:
    """Where: the file, if one is known, and the tensor, value or optimizer; the step is no place in a file."""
    location: dict[str, Json] = {}
    if path:
        artifact: Json = {"uri": _uri(path)}
        # Code scanning takes no location without a line; a checkpoint has none.
        location["physicalLocation"] = {"artifactLocation": artifact, "region": {"startLine": 1}}
    if logical := [*_logical(where)]:
        location["logicalLocations"] = logical
    return location


def _logical(where: Place) -> Iterator[Json]:
    told = (("rank", where.rank), ("optimizer", where.optimizer), ("group", where.group))
    holders = [f"{name} {value}" for name, value in told if value is not None]
    names = [one for one in (where.parameter, where.key) if one is not None]
    for kind, parts in (("object", holders), ("variable", names)):
        if parts:
            whole = "/".join((*holders, *names) if kind == "variable" else holders)
            yield {"name": escaped(parts[-1]), "fullyQualifiedName": escaped(whole), "kind": kind}
    if where.step is not None or where.stage is not None:
        yield {"name": escaped(words.when(where)), "kind": "step"}


def _uri(path: str) -> str:
    """A path as a URI reference: relative as it is, absolute as file:; everything but plain characters encoded."""
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a half of a pair that stands for no byte of a file name
        raw = path.encode("utf-8", "surrogatepass")
    encoded = quote(raw.removeprefix(b"./"), safe="/")
    return f"file://{encoded}" if encoded.startswith("/") else encoded


def _fingerprint(result: Result, finding: Finding) -> str:
    """What stays the same when the same fault is found again: the rule and its place, without numbers and steps."""
    where = finding.where
    numbers = (where.optimizer, where.group, where.rank)
    parts = (result.command, finding.code, where.path, where.parameter, where.key, *numbers)
    return sha256("\n".join(map(ascii, parts)).encode()).hexdigest()[:32]


def _invocation(result: Result, places: Mapping[str, int], left_out: int, page: Page) -> Json:
    passes = result.verdict is Verdict.INCONCLUSIVE and page.inconclusive_passes
    invocation: dict[str, Json] = {
        "executionSuccessful": result.verdict is not Verdict.ERROR,
        "exitCode": EXIT_PASS if passes else result.exit_code,
        "exitCodeDescription": result.verdict.value,
    }
    level = "error" if result.verdict is Verdict.ERROR else "note"
    said: list[Json] = [{"level": level, "message": _message(f"{result.verdict.value}: {headline(result)}")}]
    if left_out > 0:
        more = f"{words.counted(left_out, 'finding')} more than the {_MOST} told here: see the result as JSON"
        said.append({"level": "warning", "message": _message(more)})
    rules: Iterator[Json] = (
        {
            "level": "note",
            "message": _message(f"not judged: {one.reason}"),
            "associatedRule": {"id": one.code, "index": places[one.code]},
        }
        for one in result.not_judged
    )
    invocation["toolExecutionNotifications"] = [*chain(said, rules)]
    return invocation


def _message(*lines: str) -> dict[str, Json]:
    """Lines in which nothing is a placeholder or a link: braces are doubled, as section 3.11.5 has it."""
    said = "\n".join(map(escaped, lines))
    if "](" in said:
        said = said.replace("[", "\\[").replace("]", "\\]")
    return {"text": said.replace("{", "{{").replace("}", "}}")}
