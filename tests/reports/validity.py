"""What makes a document of each format valid: its published schema, and what its readers do with it.

Each check returns what is in the document, and fails where it is not valid.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from lxml import etree, html
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
SCHEMAS = Path(__file__).parent / "schemas"
OURS = ROOT / "ckptcheck" / "schemas"


@cache
def validator(path: Path) -> Any:
    """What validates against the schema in a file, by the draft that it names; `format` is heeded."""
    schema = json.loads(path.read_text(encoding="utf-8"))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def breaches_of(document: Any, path: Path = OURS / "result.schema.json") -> list[str]:
    """Everything in which a document does not keep to a schema."""
    return [f"{list(one.absolute_path)}: {one.message[:200]}" for one in validator(path).iter_errors(document)]


def as_json(text: str) -> Any:
    """The results in a JSON report: plain ASCII, whole, and of our schema."""
    assert_is_plain(text)
    document = json.loads(text, parse_constant=_no_constant)
    assert breaches_of(document) == []
    return document


def _no_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@cache
def _junit() -> Any:
    return etree.XMLSchema(etree.parse(SCHEMAS / "junit-10.xsd"))


def as_junit(text: str) -> Any:
    """The root of a JUnit report, whose numbers are those of its cases and whose cases have names of their own."""
    assert_is_plain(text)
    root = etree.fromstring(text.encode())
    _junit().assertValid(root)
    for holder in (root, *root.iter("testsuite")):
        for name, kind in {"tests": ".", "failures": "failure", "errors": "error"}.items():
            assert holder.get(name) == str(len(holder.xpath(f".//testcase[{kind}]")))
    for suite in root.iter("testsuite"):
        assert suite.get("skipped") == str(len(suite.findall("testcase/skipped")))
        names = [(case.get("classname"), case.get("name")) for case in suite.iter("testcase")]
        assert len(set(names)) == len(names)
    for one in root.iter():
        for said in (one.text or "", *one.attrib.values()):
            assert said.replace("\n", "").isprintable()
    return root


def as_sarif(text: str) -> Any:
    """A SARIF log whose results name rules that are there, and whose places are URIs."""
    assert_is_plain(text)
    log = json.loads(text)
    assert breaches_of(log, SCHEMAS / "sarif-2.1.0.json") == []
    for run in log["runs"]:
        rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert len(set(rules)) == len(rules)
        notes = run["invocations"][0]["toolExecutionNotifications"]
        told = [(one["ruleIndex"], one["ruleId"]) for one in run["results"]]
        told += [
            (one["associatedRule"]["index"], one["associatedRule"]["id"]) for one in notes if "associatedRule" in one
        ]
        assert all(rules[place] == name for place, name in told)
        prints = [one["partialFingerprints"]["ckptcheckFinding/v1"] for one in run["results"]]
        assert len(set(prints)) == len(prints)
        for said in _values(run, "text") | _values(run, "fullyQualifiedName") | _values(run, "justification"):
            assert said.replace("\n", "").isprintable()
        for uri in _values(run, "uri"):
            assert re.fullmatch(r"(file://)?([\w./~-]|%[0-9A-F]{2})*", uri, re.ASCII)
    return log


def _values(node: Any, key: str) -> set[str]:
    """The texts under a key, wherever it stands."""
    if isinstance(node, list):
        return {one for inner in node for one in _values(inner, key)}
    if not isinstance(node, dict):
        return set()
    own = {node[key]} if isinstance(node.get(key), str) else set()
    return own | {
        one for name, inner in node.items() if name not in ("evidence", "properties") for one in _values(inner, key)
    }


_ANNOTATION = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:\r\n]*)(?:,\w+=[^,:\r\n]*)*)::([^\r\n]*)\n")


def as_github(text: str) -> list[tuple[str, dict[str, str], str]]:
    """The annotations of workflow commands, as the runner reads them: level, properties, message."""
    assert_is_plain(text, ascii_only=False)
    assert "".join(found[0] for found in _ANNOTATION.finditer(text)) == text
    return [
        (level, dict(_undone(one).split("=", 1) for one in told.split(",")), _undone(said))
        for level, told, said in _ANNOTATION.findall(text)
    ]


def _undone(said: str) -> str:
    for escape, meant in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        said = said.replace(escape, meant)
    return said


def as_markdown(text: str) -> Any:
    """The page that Markdown makes: no more than 60,000 characters, no link, image or script, and nobody is called."""
    assert len(text) <= 60_000
    assert_is_plain(text, ascii_only=False)
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    page = html.fromstring(f"<div>{parser.render(text)}</div>")
    allowed = {"div", "h3", "p", "strong", "em", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "pre",
               "details", "summary"}  # fmt: skip
    assert {one.tag for one in page.iter()} <= allowed
    assert all(len(row) == 4 for row in page.iter("tr"))
    outside = " ".join(said for said in page.xpath("//text()[not(ancestor::pre)]"))
    assert not re.search(r"@\w|#\d|GH-\d", outside)
    assert not re.search(
        r"https?://|www\.", re.sub(r"<pre>.*?</pre>|<pre><code.*?</code></pre>", "", _raw(text), flags=re.DOTALL)
    )
    return page


def _raw(text: str) -> str:
    """The Markdown outside of its blocks of code: where a reader that links bare addresses would find them."""
    return re.sub(r"^(`{3,})text$.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)


def assert_is_plain(text: str, *, ascii_only: bool = True) -> None:
    """Nothing in a document steers a terminal through which somebody looks at it."""
    assert text.endswith("\n")
    assert text.isascii() or not ascii_only
    assert all(one.isprintable() for one in text.split("\n"))


VALID = {"json": as_json, "junit": as_junit, "sarif": as_sarif, "github": as_github, "markdown": as_markdown}
"""Format to its check."""
