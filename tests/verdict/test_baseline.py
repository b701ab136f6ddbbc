"""A baseline: what is the same of a finding in every run, what is new beside it, and what is no baseline."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ckptcheck.config import Acceptance
from ckptcheck.errors import OutputError, UsageError
from ckptcheck.finding import Finding, NotJudged, Place, Severity
from ckptcheck.verdict import baseline as kept
from ckptcheck.verdict.accepting import asked_and_judged, settle
from ckptcheck.verdict.baseline import read_baseline, write_baseline
from ckptcheck.verdict.decisions import Decisions

WHOLE = Place("run/ckpt-4", "head.w", "exp_avg", 1, 2, 4, "load", 3)
EVERYTHING = asked_and_judged(("CK",), (), ())


def finding(code: str = "CK601", where: Place = WHOLE, **evidence) -> Finding:
    return Finding(code, "load-not-faithful", Severity.ERROR, "it differs", where, evidence)


def at(**changed) -> Finding:
    return finding(where=replace(WHOLE, **changed))


def accepted(then: list[Finding], now: list[Finding], path: Path, judged=EVERYTHING) -> tuple[list[bool], dict]:
    write_baseline(path, "check", then)
    decided = Decisions(baseline=read_baseline(path, "check"))
    told = settle(now, decided, "check", judged=judged)
    assert {one.accepted.source for one in told.findings if one.accepted} <= {f"baseline {path}"}
    return [one.accepted is not None for one in told.findings], told.parts["acceptances"]["baseline"]


def test_a_baseline_is_sorted_stable_and_without_anything_that_changes(tmp_path):
    path = tmp_path / "b.json"
    found = [
        finding("CK602", Place(step=7, stage="schedule")),
        finding("CK601", saved=1.5, parameters=["head.w", "head.b", "head.w.exp_avg"], missing=["3", "torch"]),
        finding("CK101", Place("a")), finding("CK101", Place("b")),
        finding("CK601", where=Place(parameter="\u00e9\x1b")),
    ]  # fmt: skip
    assert write_baseline(path, "check", found) == 5
    text = path.read_bytes()
    assert write_baseline(path, "check", found[::-1]) == 5
    assert path.read_bytes() == text
    assert text.isascii()
    assert json.loads(text) == {
        "baseline": 1,
        "command": "check",
        "findings": [
            {"code": "CK101", "count": 2},
            {"code": "CK601", "parameter": "\u00e9\x1b"},
            {"code": "CK601", "parameter": "head.w", "key": "exp_avg", "optimizer": 1, "group": 2, "rank": 3,
             "stage": "load", "others": ["head.b", "torch"]},
            {"code": "CK602", "stage": "schedule"},
        ],
    }  # fmt: skip
    assert write_baseline(path, "check", []) == 0
    assert json.loads(path.read_text()) == {"baseline": 1, "command": "check", "findings": []}
    assert [one.name for one in tmp_path.iterdir()] == ["b.json"]


HELD = finding(parameters=["head.w", "head.b"])
LAST = finding(where=replace(WHOLE, parameter="head.b"))
CASES = [
    ("the same", [at()], [at()], [True]),
    ("the same at another step, in another file", [at()], [at(step=9, path="run/ckpt-9")], [True]),
    ("with other numbers", [finding(saved=1)], [finding(saved=2)], [True]),
    ("of another code", [at()], [finding("CK602")], [False]),
    *((f"with another {name}", [at()], [at(**{name: other})], [False])
      for name, other in (("parameter", "body.w"), ("key", "step"), ("optimizer", 0), ("group", 0), ("rank", 0),
                          ("stage", "param"))),
    ("twice where it was once", [at()], [at(), at()], [True, False]),
    ("twice where it was twice", [at(), at()], [at(), at()], [True, True]),
    ("at several steps where it was at one", [at()], [at(step=5), at(step=6)], [True, True]),
    ("in one more parameter", [at()], [HELD], [False]),
    ("in one parameter less", [HELD], [at()], [True]),
    ("in one parameter less, which was the first", [HELD], [LAST], [True]),
    ("of another key, in one less", [HELD], [replace(HELD, where=replace(WHOLE, key="step"))], [False]),
    ("nothing", [at()], [], []),
]  # fmt: skip


@pytest.mark.parametrize(("then", "now", "known"), [one[1:] for one in CASES], ids=[one[0] for one in CASES])
def test_of_what_is_found_now_what_was_there_is_accepted(tmp_path, then, now, known):
    assert accepted(then, now, tmp_path / "b.json")[0] == known


def test_what_is_gone_is_told_unless_nobody_looked_or_it_has_grown(tmp_path):
    then = [at(), finding("CK602"), finding("CK603"), finding("CK604"), finding("CK605"), finding("CK605")]
    judged = asked_and_judged(("CK6",), ("CK603",), (NotJudged("CK604", "no data"),))
    _, told = accepted(then, [HELD, finding("CK605")], tmp_path / "b.json", judged)
    where = {"parameter": "head.w", "key": "exp_avg", "optimizer": 1, "group": 2, "rank": 3, "stage": "load"}
    assert told == {
        "path": str(tmp_path / "b.json"),
        "findings": 6,
        "gone": [{"code": code, **where, "count": 1} for code in ("CK602", "CK605")],
        "not_judged": 2,
    }


NO_BASELINE = [
    ("{", "this is no baseline: it is no JSON; write one with --write-baseline"),
    ("[" * 100_000, "it is no JSON"),
    ("[]", "it is no object"),
    ("{}", "it has no key 'baseline'"),
    ('{"baseline": true}', "it has no key 'baseline'"),
    ('{"schema": 1, "verdict": "fail"}', "this is no baseline: it is a result"),
    ('{"baseline": 2}', "it has version 2, and this ckptcheck reads 1: upgrade"),
    ('{"baseline": 1, "command": "diff"}', "it is one of 'diff', and this is check"),
    ('{"baseline": 1, "command": "check"}', "it has no list 'findings'"),
    ('{"baseline": 0, "command": "check", "findings": []}', "it has no list 'findings'"),
    *(('{"baseline": 1, "command": "check", "findings": [{"code": "CK1"}, ' + row + "]}",
       "entry 1 of its findings is no fingerprint")
      for row in ("3", "{}", '{"code": 1}', '{"code": "CK1", "step": 3}', '{"code": "CK1", "group": -1}',
                  '{"code": "CK1", "count": true}', '{"code": "CK1", "others": "a"}', '{"code": "CK1", "others": [1]}',
                  '{"code": "CK1", "parameter": null}')),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), NO_BASELINE, ids=[text[:70] for text, _ in NO_BASELINE])
def test_what_is_no_baseline_is_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_baseline(path, "check")
    assert str(refused.value).startswith(f"--baseline {path}: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_baseline_is_read_from_a_regular_file_of_bounded_size(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="it is no file"):
        read_baseline(tmp_path, "check")
    monkeypatch.setattr(kept, "MAX_BYTES", 1 << 20)
    (tmp_path / "large").write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(UsageError, match="it has more than 1 MiB"):
        read_baseline(tmp_path / "large", "check")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is no JSON"):
        read_baseline(tmp_path / "bytes", "check")


def written(path: Path, *, conclusive: bool = True) -> tuple[list[bool], dict]:
    told = settle([at()], Decisions(keep=path), "check", judged=EVERYTHING, conclusive=conclusive)
    return [one.accepted is not None for one in told.findings], told.parts["acceptances"]["written"]


def test_what_is_written_is_accepted_and_what_cannot_be_is_not(tmp_path):
    path = tmp_path / "b.json"
    assert written(path) == ([True], {"path": str(path), "findings": 1, "error": None})
    old = path.read_bytes()
    gone = tmp_path / "gone" / "b.json"
    known, told = written(gone)
    assert (known, told["findings"]) == ([False], None)
    assert told["error"] == f"cannot write the baseline {gone}: No such file or directory"
    path.write_text("mine")
    assert written(path, conclusive=False)[0] == [False]
    assert path.read_text() == "mine"
    assert written(path) == ([True], {"path": str(path), "findings": 1, "error": None})
    assert path.read_bytes() == old


def test_a_write_that_fails_leaves_the_old_baseline(tmp_path, monkeypatch):
    path = tmp_path / "b.json"
    write_baseline(path, "check", [at()])
    old = path.read_bytes()

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept.os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device"):
        write_baseline(path, "check", [])
    assert path.read_bytes() == old
    assert [one.name for one in tmp_path.iterdir()] == ["b.json"]


def test_a_link_stays_and_a_device_is_written_straight(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_baseline(tmp_path / "link", "check", [])
    assert (tmp_path / "link").is_symlink()
    assert read_baseline(tmp_path / "real", "check").found.total() == 0
    assert write_baseline(Path("/dev/null"), "check", [at()]) == 1
    assert not Path("/dev/null").is_file()


def test_what_the_settings_accept_is_not_written_so_that_its_date_goes_on_counting(tmp_path):
    path = tmp_path / "b.json"
    decided = Decisions(accept=(Acceptance("CK601", "known"),), keep=path)
    told = settle([at(), finding("CK602")], decided, "check", judged=EVERYTHING)
    assert [one.accepted.reason for one in told.findings] == ["known", "it was there when the baseline was written"]
    assert [one.code for one in read_baseline(path, "check").found] == ["CK602"]


def test_a_baseline_that_is_read_and_written_at_once_holds_what_is_there_now(tmp_path):
    path = tmp_path / "b.json"
    write_baseline(path, "check", [at(), finding("CK603")])
    decided = Decisions(baseline=read_baseline(path, "check"), keep=path)
    told = settle([at(), finding("CK602")], decided, "check", judged=EVERYTHING)
    assert all(one.accepted for one in told.findings)
    assert sorted(one.code for one in read_baseline(path, "check").found) == ["CK601", "CK602"]
