"""Two places with traces, compared and judged: of several processes, in any order, placed by content."""

import itertools
import json
from pathlib import Path

import pytest

from ckptcheck import verbs
from ckptcheck.errors import TraceError
from ckptcheck.finding import Verdict
from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.items import END, LOAD, STEP, Item, Sample
from ckptcheck.trace.measuring import plain
from tests.comparison.written import frozen, gradient, groups, tensor

SCRIPT = {"digest": "xxh3_128", "driver": "script"}
NAMES = ("a", "b")
MODES = {Item("structure", name): plain("{}" if name != "eval" else "[]") for name in ("ties", "eval", "flags")}
BOUND = {**groups([["a", "b"]]), **frozen()}
LAST = 8


def hyper(step: int) -> dict[Item, Sample]:
    return {Item("hyper", "", "lr", 0, 0): plain(1 / (1 + step))}


def after(step: int, **wrong: int) -> dict[Item, Sample]:
    """What a script holds after a step; `wrong` gives kinds as after another step."""
    at = {kind: wrong.get(kind, step) for kind in ("param", "state", "schedule")}
    held = {Item("param", name): tensor(f"{name}{at['param']}") for name in NAMES}
    if at["state"]:
        held |= {Item("state", name, "m", 0): tensor(f"m{name}{at['state']}") for name in NAMES}
    return {
        **held,
        Item("buffer", "mean"): tensor(f"mean{step}"),
        Item("schedule", "last_epoch"): plain(at["schedule"]),
    }


def begin(step: int, **wrong: int) -> dict[Item, Sample]:
    """The load of a script that goes on after a step."""
    return {**after(step, **wrong), Item("rng", "torch"): tensor(f"rng{step}"), **hyper(step), **BOUND, **MODES}


def record(step: int, **wrong: int) -> dict[Item, Sample]:
    """The record of one step."""
    entered = {Item("rng", "torch"): tensor(f"rng{step - 1}"), **hyper(step - 1), **BOUND}
    return {**after(step, **wrong), **entered, **{Item("grad", name): gradient(step) for name in NAMES},
            Item("updates", optimizer=0): plain(1)}  # fmt: skip


def script(after_step: int = 0, last: int = LAST, **wrong: int) -> dict:
    """The moments of a script that goes on after a step, and counts from 1; `wrong` are kinds that it holds wrongly."""
    steps = {(step - after_step, STEP): record(step, **wrong) for step in range(after_step + 1, last + 1)}
    return {
        (0, LOAD): begin(after_step, **wrong),
        **steps,
        (last - after_step, END): {Item("rng", "torch"): tensor("e")},
    }


def write(path: Path, moments: dict, clean: bool = True, **header: object) -> Path:
    writer = TraceWriter(path, {**SCRIPT, **header})
    for (step, moment), samples in moments.items():
        writer.write(step, moment, samples.items())
    writer.close(clean)
    return path


numbers = itertools.count()


@pytest.fixture
def compare(tmp_path):
    """Compares the moments of one process, or of several by the name of their file: (header, moments)."""

    def place(side) -> Path:
        folder = tmp_path / f"side{next(numbers)}"
        for name, (header, moments) in side.items():
            write(folder / f"{name}.trace", moments, **header)
        return folder

    def run(left, right, **options):
        sides = [side if isinstance(next(iter(side)), str) else {"rank-0": ({}, side)} for side in (left, right)]
        return verbs.compare(*map(place, sides), **options)

    return run


def test_a_resumed_script_is_placed_by_content_from_either_side(compare):
    for sides in ((script(), script(3)), (script(3), script())):
        result = compare(*sides)
        assert (result.verdict, result.parts["steps"]) == (Verdict.PASS, [4, LAST])
        (row,) = result.parts["alignment"]
        assert (row["step"], row["by"], row["matched"], row["of"]) == (3, "content", 4, 4)
        assert {"CK201", "CK601", "CK603"}.isdisjoint(one.code for one in result.not_judged)


def test_the_report_says_which_side_is_the_reference_where_it_was_given_second(compare):
    assert "reference" not in compare(script(), script(3)).parts
    result = compare(script(3), script())
    assert result.parts["reference"].startswith(result.parts["left"])


@pytest.mark.parametrize(
    ("wrong", "cause", "stage"),
    [({"state": 0}, "CK201", "load"), ({"schedule": 0}, "CK602", "load"), ({"state": 2}, "CK601", "load")],
)
def test_what_a_script_lost_is_the_cause_from_either_side(compare, wrong, cause, stage):
    bad = script(3, **wrong)
    later = {key: {**one, Item("param", "a"): tensor("off")} if key[1] == STEP else one for key, one in bad.items()}
    for sides in ((script(), later), (later, script())):
        result = compare(*sides)
        assert (result.verdict, result.cause.code) == (Verdict.FAIL, cause)
        assert (result.first_divergence.step, result.first_divergence.stage) == (3, stage)
        assert result.first_divergence.rank is None


def test_scripts_that_begin_alike_are_compared_from_their_first_step(compare):
    result = compare(script(), script())
    assert (result.verdict, result.parts["steps"], result.parts["alignment"][0]["by"]) == (
        Verdict.PASS,
        [1, LAST],
        "start",
    )
    other = compare(script(), {**script(), (5, STEP): record(5, param=1)})
    assert (other.verdict, other.first_divergence.step, other.first_divergence.stage) == (Verdict.FAIL, 5, "param")


def test_steps_after_the_end_of_the_other_side_are_not_compared(compare):
    result = compare(script(last=LAST + 4), script(3))
    assert (result.verdict, result.parts["steps"], result.compared.steps) == (Verdict.PASS, [4, LAST], LAST - 3)


@pytest.mark.parametrize("gone", ["schedule", "buffer", "state", "param"])
@pytest.mark.parametrize("side", [0, 1])
def test_what_the_last_step_of_an_ended_script_lacks_is_no_difference(compare, side, gone):
    sides = [script(last=LAST + 4 * (side == 1)), script(3, LAST + 4 * (side == 0))]
    last = (LAST, LAST - 3)[side], STEP
    sides[side][last] = {item: one for item, one in sides[side][last].items() if item.kind != gone}
    assert compare(*sides).verdict is Verdict.PASS
    earlier = last[0] - 1, STEP
    sides[side][earlier] = {item: one for item, one in sides[side][earlier].items() if item.kind != gone}
    result = compare(*sides)
    assert (result.verdict, result.first_divergence.step, result.first_divergence.stage) == (
        Verdict.FAIL, LAST - 1, {"buffer": "buffers"}.get(gone, gone),
    )  # fmt: skip


def test_what_a_script_never_had_is_missed_in_its_last_step_too(compare):
    short = {key: {item: one for item, one in samples.items() if item.kind != "schedule"}
             for key, samples in script(3, 4).items()}  # fmt: skip
    result = compare(script(), short)
    assert (result.verdict, result.compared.steps) == (Verdict.FAIL, 1)


def test_what_was_not_asked_for_is_no_difference(compare):
    def only(moments, *kept):
        return {key: {item: one for item, one in samples.items() if item.kind in kept or item.name != "b"}
                for key, samples in moments.items()}  # fmt: skip

    narrow = {"rank-0": ({"only": ["a", "mean"]}, only(script(3)))}
    assert compare({"rank-0": ({}, script())}, narrow).verdict is Verdict.PASS
    bare = {
        key: {item: one for item, one in samples.items() if item.kind != "grad"} for key, samples in script(3).items()
    }
    assert compare({"rank-0": ({}, script())}, {"rank-0": ({"grads": False}, bare)}).verdict is Verdict.PASS
    assert compare({"rank-0": ({}, script())}, {"rank-0": ({}, bare)}).verdict is Verdict.FAIL


def test_of_a_trace_of_every_second_step_the_common_steps_are_compared(compare):
    def every(moments, count):
        return {key: one for key, one in moments.items() if key[1] != STEP or key[0] % count == 0}

    sides = [{"rank-0": ({"every": 2}, every(one, 2))} for one in (script(), script(4))]
    result = compare(*sides)
    assert (result.verdict, result.compared.steps, result.parts["alignment"][0]["by"]) == (Verdict.PASS, 2, "content")
    with pytest.raises(TraceError, match=r"no step in common.*--every 1"):
        compare(sides[0], {"rank-0": ({"every": 2}, every(script(3), 2))})


def ranks(**moments):
    return {name: ({"rank": int(name[-1]), "world_size": len(moments)}, one) for name, one in moments.items()}


def test_ranks_are_compared_one_by_one_and_a_fault_is_found_on_its_own(compare):
    left = ranks(one0=script(), two1=script())
    result = compare(left, ranks(b0=script(3), a1=script(3)))
    assert (result.verdict, result.parts["ranks"], result.compared.steps) == (Verdict.PASS, 2, 2 * (LAST - 3))
    assert [row["rank"] for row in result.parts["alignment"]] == [0, 1]
    bad = {**script(3), (2, STEP): record(5, param=1)}
    result = compare(left, ranks(b0=script(3), a1=bad))
    place = result.first_divergence
    assert (result.verdict, place.rank, place.step, place.stage) == (Verdict.FAIL, 1, 5, "param")
    assert {one.where.rank for one in result.findings} <= {1}
    assert {row["rank"] for row in result.parts["trajectory"]} == {1}


def test_a_fault_on_all_ranks_is_told_once_with_all_ranks(compare):
    bad = {**script(3), (0, LOAD): begin(3, state=0), (1, STEP): record(4, param=1)}
    result = compare(ranks(a0=script(), a1=script()), ranks(a0=bad, a1=bad))
    told = [one for one in result.findings if one.code == "CK201"]
    assert [(one.where.rank, one.evidence["ranks"]) for one in told] == [(0, [0, 1])]
    assert (result.cause.code, result.first_divergence.rank) == ("CK201", 0)


def test_a_rank_that_loaded_nothing_is_placed_where_the_others_are(compare):
    lost = {**script(3), (0, LOAD): begin(0), (1, STEP): record(4, param=1)}
    result = compare(ranks(a0=script(), a1=script()), ranks(a0=script(3), a1=lost))
    assert [(row["rank"], row["step"], row["by"]) for row in result.parts["alignment"]] == [
        (0, 3, "content"), (1, 3, "start"),
    ]  # fmt: skip
    assert (result.verdict, result.first_divergence.rank, result.first_divergence.stage) == (Verdict.FAIL, 1, "load")


def test_processes_of_one_rank_are_paired_by_their_start(compare):
    def side(first, second, **headers):
        starts = headers.get("starts", ("2026-01-01T10", "2026-01-01T11"))
        return {name: ({"rank": 0, "started": start} if start else {"rank": 0}, one)
                for name, start, one in zip(headers["names"], starts, (first, second), strict=True)}  # fmt: skip

    early, late = script(), {**script(), (0, LOAD): begin(0), (2, STEP): record(2, param=7)}
    left, right = side(early, late, names=("x", "y")), side(early, late, names=("y", "x"))
    assert compare(left, right).verdict is Verdict.PASS
    assert compare(left, side(late, early, names=("y", "x"))).verdict is Verdict.FAIL
    with pytest.raises(TraceError, match=r"2 traces of rank 0.*which started first"):
        compare(left, side(early, late, names=("y", "x"), starts=("", "")))


def test_processes_without_a_partner_are_refused_in_one_line(compare):
    two = ranks(a0=script(), a1=script())
    for right, said in (
        (ranks(a0=script(), a2=script()), "ranks 0, 1, .* of ranks 0, 2"),
        (ranks(a0=script()), "ranks 0, 1, .* of ranks 0:"),
        ({**two, "b1": ({"rank": 1, "started": "x"}, script())}, "1 trace of rank 1, .* 2: they cannot be paired"),
        ({**two, "a1": ({"rank": "one"}, script())}, "its rank is 'one'"),
    ):
        with pytest.raises(TraceError, match=said) as raised:
            compare(two, right)
        assert "\n" not in str(raised.value)


def test_one_file_of_each_side_is_compared_whatever_its_rank(compare):
    assert compare({"x": ({"rank": 1}, script())}, {"y": ({"rank": 0}, script(3))}).verdict is Verdict.PASS


def target(first: int, last: int, load: int | None = None) -> dict[str, tuple]:
    """A trace of a target, whose steps are numbered by the experiment itself."""
    moments = {} if load is None else {(load, LOAD): begin(load)}
    moments |= {(step, STEP): record(step) for step in range(first, last + 1)}
    return {"rank-0": ({"driver": "target"}, moments)}


def test_a_resumed_target_may_be_given_first(compare):
    for sides in ((target(1, 8, 0), target(4, 8, 3)), (target(4, 8, 3), target(1, 8, 0))):
        result = compare(*sides)
        assert (result.verdict, result.parts["steps"]) == (Verdict.PASS, [4, 8])
        assert "alignment" not in result.parts
        assert "CK601" not in {one.code for one in result.not_judged}


def test_what_cannot_be_compared_is_said_in_one_line(tmp_path, compare):
    whole = write(tmp_path / "whole.trace", script())
    other = write(tmp_path / "other.trace", script(), digest="linear_128")
    (tmp_path / "text.trace").write_text("no trace at all, but long enough to be something" * 9)
    (tmp_path / "empty.trace").touch()
    (tmp_path / "cut.trace").write_bytes(whole.read_bytes()[:9000])
    (tmp_path / "none").mkdir()
    for name, said in (("other.trace", "unlike digests"), ("text.trace", "cannot be read as a trace"),
                       ("empty.trace", "is empty"), ("cut.trace", "cannot be read as a trace"),
                       ("none", "no trace in"), ("nowhere", "no trace at")):  # fmt: skip
        for sides in ((whole, tmp_path / name), (tmp_path / name, whole)):
            with pytest.raises(TraceError, match=said) as raised:
                verbs.compare(*sides)
            assert "\n" not in str(raised.value)
    with pytest.raises(TraceError, match=r"steps 1 to 8, .* steps 9 to 10: no step in common"):
        compare(target(1, 8, 0), target(9, 10, 8))
    assert other.stat().st_size


def test_a_run_that_was_cut_short_is_said(tmp_path):
    sides = [write(tmp_path / f"{name}.trace", script(), clean) for name, clean in (("a", True), ("b", False))]
    notes = [one.reason for one in verbs.compare(*sides).not_judged if "cut short" in one.reason]
    assert [str(sides[1]) in one for one in notes] == [True]


def test_numbers_within_a_tolerance_are_no_difference(compare):
    off = {**script(3), (2, STEP): {**record(5), Item("loss", "backward"): plain(1.0001)}}
    left = {**script(), (5, STEP): {**record(5), Item("loss", "backward"): plain(1.0)}}
    assert compare(left, off).verdict is Verdict.FAIL
    assert compare(left, off, rtol=1e-3).verdict is Verdict.PASS


def test_parts_are_plain_json(compare):
    result = compare(
        ranks(a0=script(), a1=script()), ranks(a0=script(3), a1={**script(3), (2, STEP): record(5, param=1)})
    )
    assert json.loads(json.dumps(dict(result.parts))) == dict(result.parts)
