"""The report of two checkpoints: whether they are the same, where they differ, and the largest differences."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ckptcheck.finding import Json, Result, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.accepted import acceptances
from ckptcheck.reports.contents import strings
from ckptcheck.reports.difference_margin import about_groups, measure, one_sided, only_names_of_the_run
from ckptcheck.reports.difference_words import (
    changed,
    is_membership,
    is_order,
    is_size,
    is_tensor,
    moved,
    name,
    reshaped,
)
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.files import layout_in_words
from ckptcheck.reports.findings import FEW, other_findings
from ckptcheck.reports.margin import not_judged
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet

_ONE_SIDED: Final = {"removed": "only on the left: ", "added": "only on the right: "}


def headline(result: Result) -> str:
    """Return whether the contents are the same, or in which sections they differ and how much of each."""
    if result.verdict is Verdict.INCONCLUSIVE:
        unread = result.parts.get("unread")
        if isinstance(unread, int) and unread:
            return f"what could be compared is the same, and {words.counted(unread, 'tensor')} could not"
        if reason := result.parts.get("unjudged"):
            return f"{words.scalar(reason)}; {_contents(result)}"
        return "nothing was compared"
    if result.parts.get("gate") == "findings":
        judged = words.headline(result) if result.verdict is Verdict.FAIL else "no finding fails the comparison"
        return f"{judged}; {_contents(result)}"
    return _contents(result)


def _contents(result: Result) -> str:
    left_out = strings(result.parts.get("not_compared"))
    rest = "; not all was compared" if left_out else ""
    if parts := _differing(result):
        return f"content differs in {', '.join(parts)}{rest}"
    cast = result.parts.get("cast")
    if isinstance(cast, Mapping) and (equal := _count(cast, "equal")):
        within = sum(_count(one, "tolerated") for one in entries_of(result, "sections")) > equal
        return f"equal after a cast to {cast.get('dtype')}{' and within the tolerance' if within else ''}{rest}"
    if not result.parts.get("identical_content"):
        return f"equal within the tolerance{rest}"
    if not result.parts.get("identical_content_different_container"):
        return f"identical content{rest}"
    containers = " and ".join(_container(result.parts.get(side)) for side in ("left", "right"))
    return f"identical content, different container: {containers}{rest}"


def _container(side: Json) -> str:
    layout = side.get("layout") if isinstance(side, Mapping) else None
    return words.scalar(layout.get("container")) if isinstance(layout, Mapping) else "?"


def _differing(result: Result) -> list[str]:
    said = []
    for one in entries_of(result, "sections"):
        apart = sum(_count(one, key) for key in ("differing", "added", "removed"))
        if apart:
            total = sum(_count(one, key) for key in ("tensors", "values", "added", "removed"))
            said.append(f"{one.get('section')} ({apart} of {total})")
    if groups := entries_of(result, "groups"):
        said.append(f"param groups ({words.counted(len(groups), 'parameter')})")
    if any(map(is_order, entries_of(result, "differences"))):
        said.append("the order of param groups")
    if any(map(is_size, entries_of(result, "differences"))):
        said.append("the sizes of param groups")
    return said


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Write what stands below the headline: sections first, then the largest differences, then what else to know."""
    full = page.detail is Detail.ALL
    _sides(sheet, result)
    sheet.gap()
    other_findings(sheet, result, full, most=FEW)
    acceptances(sheet, result, full)
    sheet.gap()
    _sections(sheet, result)
    sheet.gap()
    told_at_once = set() if full else one_sided(result)
    rows = [one for one in entries_of(result, "differences")
            if not is_membership(one) and one.get("optimizer") not in told_at_once]  # fmt: skip
    for section in dict.fromkeys(words.scalar(one.get("section")) for one in rows):
        _section(sheet, section, [one for one in rows if one.get("section") == section], None if full else page.top)
    if not full and any(len(some) > page.top for some in _shown_together(rows)):
        sheet.row("", "--top N shows more, -v all", style="dim")
    about_groups(sheet, result, full)
    if hint := only_names_of_the_run(entries_of(result, "differences")):
        sheet.row("Hint", hint)
    sheet.gap()
    measure(sheet, result)
    for part, label in (("not_compared", "Not compared"), ("notes", "Notes")):
        for note in strings(result.parts.get(part)):
            sheet.row(label, note)
            label = ""  # noqa: PLW2901 - said once, above the first
    not_judged(sheet, result, full)


def _sides(sheet: Sheet, result: Result) -> None:
    for which in ("left", "right"):
        side = result.parts.get(which)
        if isinstance(side, Mapping):
            section = f", section {side.get('section')}" if side.get("section") else ""
            step = f", step {side.get('step')}" if side.get("step") is not None else ""
            size = f", {words.size(nbytes)}" if isinstance(nbytes := side.get("bytes"), int) else ""
            said = f"{layout_in_words(side.get('layout'))}{size}{step}{section}"
            sheet.row(which.capitalize(), said, lead=f"{words.scalar(side.get('path'))}: ")


def _sections(sheet: Sheet, result: Result) -> None:
    sections = entries_of(result, "sections")
    within = any(_count(one, "tolerated") for one in sections)
    rows = [
        (
            words.scalar(one.get("section")),
            str(_count(one, "tensors") + _count(one, "values")),
            str(_count(one, "differing")),
            *([str(_count(one, "tolerated"))] if within else []),
            str(_count(one, "removed")),
            str(_count(one, "added")),
            words.size(_count(one, "bytes")) if _count(one, "bytes") else "",
        )
        for one in sections
    ]
    if rows:
        tolerated = ["Tolerated"] if within else []
        sheet.table(("Section", "Compared", "Differ", *tolerated, "Only left", "Only right", "Bytes compared"), rows)


def _section(sheet: Sheet, section: str, rows: Sequence[Entry], most: int | None) -> None:
    """Say what differs in one section: plain values, then the largest tensors, then what has moved or is missing."""
    values, tensors = _changes(rows)
    label = words.section(section)
    if all(one.get("differing") is None for one in tensors):
        names: list[Json] = [name(one) for one in tensors]
        label = _named(sheet, label, names, f"{words.counted(len(names), 'tensor')} differing: ", most)
        tensors = []
    for some in (values, tensors):
        label = _lines(sheet, label, some, changed, most)
    label = _lines(sheet, label, [one for one in rows if one.get("kind") == "shape"], reshaped, most)
    for kind, said in (("moved", "moved: "), ("renamed", "renamed: ")):
        some = [one for one in rows if one.get("kind") == kind]
        label = _lines(sheet, label, some, lambda one, said=said: (said, moved(one)), most)  # type: ignore[misc]
    for kind, said in _ONE_SIDED.items():
        names = [name(one) for one in rows if one.get("kind") == kind]
        label = _named(sheet, label, names, f"{words.counted(len(names), 'entry', 'entries')} {said}", most)


def _named(sheet: Sheet, label: str, names: list[Json], lead: str, most: int | None) -> str:
    """Write the first names in one row; return the label for what comes next."""
    if names:
        sheet.row(label, words.listed(names, most, ""), lead=lead)
    return "" if names else label


def _changes(rows: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Plain values that changed, and tensors, the largest difference first."""
    apart = [one for one in rows if one.get("kind") in ("changed", "dtype")]
    tensors = sorted(filter(is_tensor, apart), key=_weight, reverse=True)
    return [one for one in apart if not is_tensor(one)], tensors


def _shown_together(rows: Sequence[Entry]) -> list[list[Entry]]:
    """The rows by what is counted when only so many are shown."""
    alike: dict[Json, list[Entry]] = {}
    for one in rows:
        kind = "changed" if one.get("kind") == "dtype" else one.get("kind")
        alike.setdefault(f"{one.get('section')} {kind} {is_tensor(one) if kind == 'changed' else ''}", []).append(one)
    return list(alike.values())


def _lines(
    sheet: Sheet, label: str, rows: Sequence[Entry], told: Callable[[Entry], tuple[str, str]], most: int | None
) -> str:
    """Write the first rows; return the label for what comes next."""
    for one in rows[:most]:
        lead, said = told(one)
        sheet.row(label, said, lead=lead)
        label = ""
    if len(rows) > len(rows[:most]):
        sheet.row(label, f"and {len(rows) - len(rows[:most])} more", style="dim")
        label = ""
    return label


def _weight(one: Entry) -> tuple[float, ...]:
    """How much a difference matters: relative distance, then ULP, then how many; what has no number the most."""
    return tuple(map(_size, (one.get("rel_l2"), one.get("max_ulp"), one.get("differing"))))


def _size(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else math.inf


def _count(one: Mapping[str, Json], key: str) -> int:
    return value if isinstance(value := one.get(key), int) else 0
