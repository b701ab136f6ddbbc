"""Results in which every text that can come from a file is one that would do harm where it stood raw."""

from dataclasses import replace

from ckptcheck.finding import Accepted, Cause, Compared, Finding, Json, NotJudged, Place, Result, Severity, Verdict

NAMES = {
    "steers a terminal": "w\x1b[31m\x9b1m\x00\x07\x08\r\n\t\x7f\u0085\u2028\u2029",
    "turns lines around": "\u202ereversed\u2066\u200b\ufeff\U000e0041",
    "ends a section": "]]></script></details><script>alert(1)</script><!-- -->",
    "is half a character": "\udc80\ud800 \udfff\ufffe\uffff",
    "is long": "x" * 10_000,
    "is markup": "a|b`c``` **d** _e_ ~~f~~ $g$ <b>h</b> [i](http://evil.example) ![j](//k) &amp; \\ www.evil.example",
    "calls people": "@octocat #12 GH-12 owner/repo#3 user@evil.example https://evil.example mailto:a@b.c",
    "commands a runner": "::error::x%0A::set-output name=a::b,title=c:d\n::stop-commands::e",
    "is a placeholder": "{0} {{1}} [a](1) %s",
    "begins a line": "# - 1. > | ``` ~~~ === ---",
    "is nothing": "",
}  # fmt: skip


def awkward(name: str) -> Result:
    """A verify that fails, with `name` wherever a text stands."""
    where = Place(path=name, parameter=name, key=name, optimizer=0, group=1, step=2, stage="load", rank=3)
    finding = Finding("CK202", name or "-", Severity.ERROR, name or "-", where, {name: name, "list": [name]}, name)
    lived_with = Accepted(name or "-", "2027-01-31", name or "-")
    warning = replace(finding, code="CK205", severity=Severity.WARNING, accepted=lived_with)
    parts: dict[str, Json] = {"target": name, "steps": 4, "run": name, "resume": name, "alignment": [{"why": name}],
                              "notes": [{"note": name}], "crossed": {"covered": [name], "not_covered": [name]},
                              "runs": [{"name": name or "-", "seconds": 0.5}]}  # fmt: skip
    return Result(
        "verify", Verdict.FAIL, Compared(1, 1, 1, 1), Place(parameter=name, key=name, step=2, stage="load"),
        Cause("CK202", "certain"),
        (finding, replace(finding), warning),
        (NotJudged("CK603", name or "-"),), {"python": name}, parts,
    )  # fmt: skip


def refused(name: str) -> Result:
    """An error whose line holds `name`."""
    return Result("check", Verdict.ERROR, error=name)
