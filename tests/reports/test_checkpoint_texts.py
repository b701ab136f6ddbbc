"""What the texts about checkpoints say, beside the kept ones."""

from dataclasses import replace

import pytest

from ckptcheck.finding import Result, Verdict
from ckptcheck.reports import listing
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render
from tests.reports.checkpoint_results import (
    DAMAGED,
    DIFFERENT,
    GATED,
    INSPECTED,
    MATCHING,
    NOTHING,
    WHOLE,
    difference,
    hostile,
    numbers,
    optimizer_pair,
    tensors,
)

ALL = (MATCHING, DIFFERENT, NOTHING, GATED, INSPECTED, WHOLE, DAMAGED)


@pytest.mark.parametrize("detail", list(Detail))
@pytest.mark.parametrize("width", [40, 60, 120])
@pytest.mark.parametrize("result", [*ALL, *map(hostile, ALL)])
def test_no_line_is_wider_than_the_page_or_ends_in_blanks(result, width, detail):
    text = render(result, Page(width=width, detail=detail, ascii_only=True))
    for line in text.splitlines():
        assert len(line) <= width
        assert line == line.rstrip()


@pytest.mark.parametrize("detail", list(Detail))
@pytest.mark.parametrize("result", ALL)
def test_hostile_names_reach_the_page_spelled_out(result, detail):
    assert all(one.isprintable() for one in render(hostile(result), Page(detail=detail)).replace("\n", ""))


def changed(name: str, rel_l2: object, max_ulp: object = 1, differing: int = 1) -> dict:
    return difference(
        "model", name, None, **tensors("float32", [4]), **numbers((differing, 4), [0], 0.5, rel_l2, max_ulp)
    )


def with_rows(*rows: dict) -> Result:
    return replace(DIFFERENT, parts=DIFFERENT.parts | {"differences": list(rows), "groups": []})


def order(text: str, *names: str) -> list[str]:
    return sorted(names, key=text.index)


def test_the_largest_difference_comes_first():
    rows = [changed("small", 1e-9), changed("zero_before", None), changed("infinite", "inf"), changed("large", 0.5),
            changed("ulps", 1e-9, 7), changed("more", 1e-9, 1, 3)]  # fmt: skip
    text = render(with_rows(*rows), Page(width=200))
    names = ("zero_before:", "infinite:", "large:", "ulps:", "more:", "small:")
    assert order(text, *names) == list(names)


def test_a_section_shows_as_many_as_wanted_and_says_how_many_there_are():
    rows = [changed(f"w{place}", place + 1.0) for place in range(12)]
    text = render(with_rows(*rows), Page(width=200, top=4))
    assert text.count(" of 4 differ") == 4
    assert "and 8 more\n             --top N shows more, -v all\n" in text
    assert "--top" not in render(with_rows(*rows), Page(width=200, top=12))
    assert render(with_rows(*rows), Page(width=200, top=4, detail=Detail.ALL)).count(" of 4 differ") == 12


def test_two_floats_that_differ_look_different():
    row = difference("optimizer", None, "lr", optimizer=0, group=0, left=0.1, right=0.1 + 2**-56 * 2)
    assert "group 0 lr: 0.1 -> 0.10000000000000003" in render(with_rows(row), Page(width=200))


@pytest.mark.parametrize(("changes", "said"), [
    ({}, "identical content, different container: torch-zip and dcp"),
    ({"identical_content_different_container": False}, "identical content"),
    ({"identical_content": False, "tolerance": {"rtol": 0.1, "atol": 0.0, "roles": {}}}, "equal within the tolerance"),
    ({"identical_content": False, "cast": {"dtype": "bfloat16", "equal": 3}}, "equal after a cast to bfloat16"),
    ({"identical_content": False, "cast": {"dtype": "bfloat16", "equal": 3},
      "sections": [{"section": "model", "tensors": 9, "tolerated": 5}]},
     "equal after a cast to bfloat16 and within the tolerance"),
    ({"not_compared": ["x"]}, "identical content, different container: torch-zip and dcp; not all was compared"),
])  # fmt: skip
def test_a_pass_says_in_which_sense_the_two_are_the_same(changes, said):
    text = render(replace(MATCHING, parts=MATCHING.parts | changes), Page(width=200))
    assert text.splitlines()[0] == f"PASS  {said}"


def test_a_generator_has_no_magnitude():
    row = difference("rng", None, "torch", **tensors("uint8", [5056]), **numbers((12, 5056), [8], 251.0, 0.7, None))
    assert "RNG          torch: 12 of 5056 bytes differ\n" in render(with_rows(row), Page())


def test_a_little_waste_is_told_only_when_all_is_wanted():
    little = [{"file": "", "key": "4", "bytes": 100, "used_bytes": 90}]
    result = replace(INSPECTED, parts=INSPECTED.parts | {"storage_bloat": little})
    assert "Bloat" not in render(result, Page())
    assert "Bloat        10 bytes in 1 storage" in render(result, Page(detail=Detail.ALL))


def test_a_finding_gate_still_says_that_the_content_differs():
    first = render(GATED, Page(width=300)).splitlines()[0]
    assert first.startswith("PASS  no finding fails the comparison; content differs in model (5 of 12)")


def test_without_statistics_tensors_are_named_in_one_row():
    rows = [difference("model", name, None, **tensors("float32", [4])) for name in "abc"]
    assert "Model        3 tensors differing: a, b and 1 more\n" in render(with_rows(*rows), Page(top=2))


@pytest.mark.parametrize(("paired", "said"), [("position", "by position"), ("none", "not at all")])
def test_a_pairing_without_names_is_said(paired, said):
    pairs = [optimizer_pair(0, 0, 0), optimizer_pair(1, 1, 1, paired_by=paired)]
    text = render(replace(MATCHING, parts=MATCHING.parts | {"optimizers": pairs}), Page())
    assert f"Paired       optimizer 1 {said}: a side has no parameter names that are certain" in text
    assert "optimizer 0" not in text


def test_what_could_not_be_read_keeps_the_rest_from_passing():
    unread = replace(MATCHING, verdict=Verdict.INCONCLUSIVE, parts=MATCHING.parts | {"unread": 2})
    first = render(unread, Page()).splitlines()[0]
    assert first == "INCONCLUSIVE  what could be compared is the same, and 2 tensors could not"


def test_an_inspection_fits_a_screen_and_has_no_verdict():
    text = render(INSPECTED, Page(width=80))
    assert len(text.splitlines()) <= 40
    assert text.startswith("run/step_10.pt: torch-zip, plain, 1.2 MiB, step 10\n")


def test_all_tensors_and_values_are_listed_when_all_is_wanted():
    text = render(INSPECTED, Page(width=200, detail=Detail.ALL))
    for line in ("fc.weight: float32[8, 8], 256 bytes, cuda:0, requires grad, the same bytes as head.weight",
                 "fc.weight / step: float32[], 4 bytes, 10.0, group 0", "group 0 / eps: 1e-08"):  # fmt: skip
        assert f"\n  {line}\n" in text


def listed(*rows: dict, groups: list | None = None) -> list[str]:
    parts = {"tensors": list(rows), "values": [], "groups": groups or []}
    return listing.render(Result("inspect", INSPECTED.verdict, parts=parts)).splitlines()


def test_a_listing_is_sorted_by_section_and_name_and_does_not_depend_on_the_file():
    rows = [{"section": section, "name": name, "key": None, "dtype": "int8", "shape": [2], "digest": "d:1"}
            for section, name in (("other", "a"), ("optimizer", "b"), ("model", "z"), ("model", "c"))]  # fmt: skip
    assert listed(*rows) == listed(*reversed(rows)) == [
        "model c: int8[2] d:1", "model z: int8[2] d:1", "optimizer b: int8[2] d:1", "other a: int8[2] d:1",
    ]  # fmt: skip


def test_a_listing_has_a_line_for_each_membership_so_that_a_move_is_one_line():
    groups = [{"optimizer": 0, "group": place, "parameters": names} for place, names in enumerate((["a", "b"], ["c"]))]
    moved = [{"optimizer": 0, "group": place, "parameters": names} for place, names in enumerate((["a"], ["b", "c"]))]
    assert set(listed(groups=groups)) ^ set(listed(groups=moved)) == {
        "optimizer 0 b / group: 0", "optimizer 0 b / group: 1",
    }  # fmt: skip


def test_a_listing_knows_no_path_and_no_terminal():
    text = listing.render(hostile(INSPECTED))
    assert "run/step_10.pt" not in listing.render(INSPECTED)
    assert all(one.isprintable() for one in text.replace("\n", ""))
    assert len(text.splitlines()) == len(listing.render(INSPECTED).splitlines())
