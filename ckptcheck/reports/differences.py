"""The report of two checkpoints: whether they are the same, where they differ, and the largest differences."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ckptcheck.finding import Json, Result, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.contents import strings
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.files import layout_in_words
from ckptcheck.reports.findings import other_findings
from ckptcheck.reports.margin import not_judged
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet

_ONE_SIDED: Final = {"removed": "only on the left: ", "added": "only on the right: "}
_REGROUPED: Final = 10


def headline(result: Result) -> str:
    """Return whether the contents are the same, or in which sections they differ and how much of each."""
    if result.verdict is Verdict.INCONCLUSIVE:
        unread = result.parts.get("unread")
        if isinstance(unread, int) and unread:
            return f"what could be compared is the same, and {words.counted(unread, 'tensor')} could not"
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
    return said


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Write what stands below the headline: sections first, then the largest differences, then what else to know."""
    full = page.detail is Detail.ALL
    _sides(sheet, result)
    other_findings(sheet, result, full)
    sheet.gap()
    _sections(sheet, result)
    sheet.gap()
    rows = entries_of(result, "differences")
    for section in dict.fromkeys(words.scalar(one.get("section")) for one in rows):
        _section(sheet, section, [one for one in rows if one.get("section") == section], None if full else page.top)
    if not full and any(len(some) > page.top for some in _shown_together(rows)):
        sheet.row("", "--top N shows more, -v all", style="dim")
    _regrouped(sheet, entries_of(result, "groups"), full)
    if rows:
        sheet.gap()
    _measure(sheet, result)
    for part, label in (("not_compared", "Not compared"), ("notes", "Notes")):
        for note in strings(result.parts.get(part)):
            sheet.row(label, note)
            label = ""  # noqa: PLW2901 - said once, above the first
    not_judged(sheet, result, full)


def _sides(sheet: Sheet, result: Result) -> None:
    for name in ("left", "right"):
        side = result.parts.get(name)
        if isinstance(side, Mapping):
            section = f", section {side.get('section')}" if side.get("section") else ""
            step = f", step {side.get('step')}" if side.get("step") is not None else ""
            size = f", {words.size(nbytes)}" if isinstance(nbytes := side.get("bytes"), int) else ""
            said = f"{layout_in_words(side.get('layout'))}{size}{step}{section}"
            sheet.row(name.capitalize(), said, lead=f"{words.scalar(side.get('path'))}: ")


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
        names: list[Json] = [_name(one) for one in tensors]
        label = _named(sheet, label, names, f"{words.counted(len(names), 'tensor')} differing: ", most)
        tensors = []
    for some in (values, tensors):
        label = _lines(sheet, label, some, _changed, most)
    label = _lines(sheet, label, [one for one in rows if one.get("kind") == "shape"], _reshaped, most)
    for kind, said in (("moved", "moved: "), ("renamed", "renamed: ")):
        some = [one for one in rows if one.get("kind") == kind]
        label = _lines(sheet, label, some, lambda one, said=said: (said, f"{_name(one)} -> {one.get('other')}"), most)  # type: ignore[misc]
    for kind, said in _ONE_SIDED.items():
        names = [_name(one) for one in rows if one.get("kind") == kind]
        label = _named(sheet, label, names, f"{words.counted(len(names), 'entry', 'entries')} {said}", most)


def _named(sheet: Sheet, label: str, names: list[Json], lead: str, most: int | None) -> str:
    """Write the first names in one row; return the label for what comes next."""
    if names:
        sheet.row(label, words.listed(names, most, ""), lead=lead)
    return "" if names else label


def _changes(rows: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Plain values that changed, and tensors, the largest difference first."""
    changed = [one for one in rows if one.get("kind") in ("changed", "dtype")]
    tensors = sorted(filter(_is_tensor, changed), key=_weight, reverse=True)
    return [one for one in changed if not _is_tensor(one)], tensors


def _shown_together(rows: Sequence[Entry]) -> list[list[Entry]]:
    """The rows by what is counted when only so many are shown."""
    alike: dict[Json, list[Entry]] = {}
    for one in rows:
        kind = "changed" if one.get("kind") == "dtype" else one.get("kind")
        alike.setdefault(f"{one.get('section')} {kind} {_is_tensor(one) if kind == 'changed' else ''}", []).append(one)
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


def _changed(one: Entry) -> tuple[str, str]:
    lead = f"{_name(one)}: "
    if not _is_tensor(one):
        return lead, f"{words.exact(one.get('left'))} -> {words.exact(one.get('right'))}"
    said = [f"{one.get('left_dtype')} -> {one.get('right_dtype')}"] if one.get("kind") == "dtype" else []
    if one.get("left") is not None and one.get("right") is not None:
        said.append(f"{words.exact(one.get('left'))} -> {words.exact(one.get('right'))}")
    if one.get("section") == "rng" and one.get("differing") is not None:  # a generator's state has no magnitude
        return lead, f"{one.get('differing')} of {one.get('numel')} bytes differ"
    return lead, ", ".join(said + measured(one)) or "differs"


def _reshaped(one: Entry) -> tuple[str, str]:
    sides = (words.spec(one.get(f"{side}_dtype"), one.get(f"{side}_shape")) for side in ("left", "right"))
    return f"{_name(one)}: ", " -> ".join(sides)


def measured(one: Entry) -> list[str]:
    """Return how far two tensors are apart: counts, places and distances, as far as they were measured."""
    said = []
    is_one = one.get("numel") == 1
    if (differing := one.get("differing")) is not None and not is_one:
        first = f", first at {words.scalar(one.get('first_at'))}" if one.get("first_at") is not None else ""
        said.append(f"{differing} of {one.get('numel')} differ{first}")
    if (max_abs := one.get("max_abs")) is not None:
        at = one.get("max_abs_at")
        said.append(f"max abs {words.scalar(max_abs)}" + (f" at {words.scalar(at)}" if at and not is_one else ""))
    for key, label in (("rel_l2", "rel L2"), ("max_ulp", "max ULP"), ("median_ulp", "median ULP")):
        if one.get(key) is not None and not (key == "median_ulp" and is_one):
            said.append(f"{label} {words.scalar(one.get(key))}")
    for key, noun in (("sign_flips", "sign flip"), ("signed_zeros", "signed zero")):
        said += [words.counted(number, noun)] if isinstance(number := one.get(key), int) and number else []
    for key, label in (
        ("nan", "NaN"),
        ("inf", "inf"),
        ("nan_payloads", "NaN of other bits"),
        ("beyond", "beyond the tolerance"),
    ):
        said += [f"{one.get(key)} {label}"] if one.get(key) else []
    if one.get("rounded_through"):
        said.append(f"as if rounded through {one.get('rounded_through')}")
    return said


def _regrouped(sheet: Sheet, groups: Sequence[Entry], full: bool) -> None:
    label = "Groups"
    for one in groups[: None if full else _REGROUPED]:
        sides = (_group(one.get("left_group")), _group(one.get("right_group")))
        optimizer = f" (optimizer {one.get('optimizer')})" if one.get("optimizer") else ""
        sheet.row(label, f"{' -> '.join(sides)}{optimizer}", lead=f"{words.scalar(one.get('parameter'))}: ")
        label = ""
    if len(groups) > _REGROUPED and not full:
        sheet.row("", f"and {len(groups) - _REGROUPED} more (-v shows all)", style="dim")


def _group(number: Json) -> str:
    return "no group" if number is None else f"group {number}"


def _measure(sheet: Sheet, result: Result) -> None:
    """Say by which measure things count as equal, and how parameters were paired."""
    tolerance = result.parts.get("tolerance")
    if isinstance(tolerance, Mapping):
        roles = tolerance.get("roles")
        named = {"": tolerance, **roles} if isinstance(roles, Mapping) else {"": tolerance}
        said = [
            f"{role or 'every role'} rtol {words.exact(one.get('rtol'))} atol {words.exact(one.get('atol'))}"
            for role, one in named.items()
            if isinstance(one, Mapping) and (role or one.get("rtol") or one.get("atol"))
        ]
        sheet.row("Tolerance", "; ".join(said))
    cast = result.parts.get("cast")
    if isinstance(cast, Mapping):
        sheet.row(
            "Cast", f"{words.counted(_count(cast, 'equal'), 'tensor')} equal only after a cast to {cast.get('dtype')}"
        )
    for place, paired in enumerate(strings(result.parts.get("paired_by"))):
        if paired != "name":
            how = "by position" if paired == "position" else "not at all"
            sheet.row("Paired", f"optimizer {place} {how}: a side has no parameter names")


def _name(one: Entry) -> str:
    """Return which tensor or value: "fc.weight / exp_avg", "group 0 lr", "optimizer 1, group 0 lr"."""
    name = words.thing(one.get("parameter"), one.get("key"))
    if one.get("parameter") is None and one.get("group") is not None:
        name = f"group {one.get('group')} {name}"
    return f"optimizer {one.get('optimizer')}, {name}" if one.get("optimizer") else name


def _is_tensor(one: Entry) -> bool:
    return one.get("left_dtype") is not None or one.get("right_dtype") is not None


def _weight(one: Entry) -> tuple[float, ...]:
    """How much a difference matters: relative distance, then ULP, then how many; what has no number the most."""
    return tuple(map(_size, (one.get("rel_l2"), one.get("max_ulp"), one.get("differing"))))


def _size(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else math.inf


def _count(one: Mapping[str, Json], key: str) -> int:
    return value if isinstance(value := one.get(key), int) else 0
