"""The report of what is in a checkpoint: totals of each section, param groups, and what a resume would lack."""

import re
from collections.abc import Mapping
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.files import layout_in_words, pickled
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet

_GROUPS: Final = 6
"""Param groups that are shown unless all are wanted."""
_NAMES: Final = 4
_BLOATED: Final = 3
_BLOAT_BYTES: Final = 1024
"""Less is not worth a row unless all is wanted."""


def headline(result: Result) -> str:
    """Return what the checkpoint is: its path, layout, size and step."""
    size = result.parts.get("bytes")
    told = [layout_in_words(result.parts.get("layout")), words.size(size) if isinstance(size, int) else ""]
    if recorded := result.parts.get("recorded_step"):
        told.append(words.scalar(recorded))
    elif (step := result.parts.get("step")) is not None:
        told.append(f"step {step}")
    if world_size := result.parts.get("world_size"):
        told.append(f"{world_size} ranks" if world_size != 1 else "1 rank")
    return f"{words.scalar(result.parts.get('path'))}: {', '.join(one for one in told if one)}"


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Write what stands below the headline."""
    full = page.detail is Detail.ALL
    _sections(sheet, result)
    sheet.gap()
    for optimizer in entries_of(result, "optimizers"):
        _optimizer(sheet, result, optimizer, full)
    _lists(sheet, result, full)
    _bloat(sheet, entries_of(result, "storage_bloat"), full)
    pickled(sheet, entries_of(result, "globals"), full)
    if full:
        _everything(sheet, result)


def strings(part: Json) -> list[str]:
    """Return a part that is a list of texts; empty where it is none."""
    return [words.scalar(one) for one in part] if isinstance(part, list) else []


def _sections(sheet: Sheet, result: Result) -> None:
    rows = [
        (
            words.scalar(one.get("section")),
            words.scalar(one.get("tensors")),
            words.scalar(one.get("values")),
            words.size(nbytes) if isinstance(nbytes := one.get("bytes"), int) and nbytes else "",
            _dtypes(one.get("dtypes")),
        )
        for one in entries_of(result, "sections")
    ]
    if rows:
        sheet.table(("Section", "Tensors", "Values", "Bytes", "Dtypes"), rows)
    else:
        sheet.row("Sections", "nothing is in it")


def _dtypes(counts: Json) -> str:
    if not isinstance(counts, dict):
        return ""
    return ", ".join(f"{dtype} ({count})" for dtype, count in counts.items()) if len(counts) > 1 else "".join(counts)


def _optimizer(sheet: Sheet, result: Result, one: Entry, full: bool) -> None:
    place = one.get("optimizer")
    called = f"{words.scalar(label)}: " if (label := one.get("label")) else ""
    sheet.row(f"Optimizer {place}", f"{_class(one)}: {_state(one)}", lead=called)
    if isinstance(naming := one.get("naming"), Mapping):
        sure = "names" if naming.get("certain") else "names (not certain)"
        lead = "no names" if naming.get("source") == "none" else sure
        sheet.row("", words.scalar(naming.get("reason")), lead=f"{lead}: ")
    groups = [group for group in entries_of(result, "groups") if group.get("optimizer") == place]
    first = _hyperparameters(groups[0]) if groups else {}
    for group in groups[: None if full else _GROUPS]:
        members, values = strings(group.get("parameters")), _hyperparameters(group)
        said = in_words(values if full else _switched_on(values))
        if not full and group is not groups[0]:
            said = _beside(values, first)
        lead = f"group {group.get('group')}, {words.counted(len(members), 'parameter')}: "
        sheet.row("", said, lead=lead)
        if members:
            sheet.row("", words.listed(list(members), None if full else _NAMES), deeper=True, style="dim")
    if len(groups) > _GROUPS and not full:
        sheet.row("", f"and {len(groups) - _GROUPS} more groups (-v shows all)", style="dim")


def _class(one: Entry) -> str:
    names = strings(one.get("classes"))
    if not names:
        return "of a class that is not known here"
    return f"{' or '.join(names)}{'' if one.get('class_certain') else ' (by its keys, not certain)'}"


def _state(one: Entry) -> str:
    keys = one.get("state_keys")
    names = dict.fromkeys(re.sub(r"\[\d+\]", "[]", key) for key in keys) if isinstance(keys, dict) else {}
    kept = ", ".join(names) or "none"
    said = f"state of {one.get('with_state')} of {words.counted(_number(one.get('parameters')), 'parameter')} ({kept})"
    if orphans := strings(one.get("orphans")):
        said += f" and of {words.listed(list(orphans), _NAMES, '')}, in no group"
    steps = [step for step in _mappings(one.get("steps")) if step.get("step") is not None]
    if len(steps) == 1:
        return f"{said}, step {words.exact(steps[0].get('step'))}"
    told = ", ".join(f"{words.exact(step.get('step'))} ({step.get('parameters')})" for step in steps[:_NAMES])
    return f"{said}, steps {told}{', ...' if len(steps) > _NAMES else ''}" if steps else said


def _hyperparameters(group: Entry) -> Mapping[str, Json]:
    values = group.get("hyperparameters")
    return values if isinstance(values, Mapping) else {}


def _switched_on(values: Mapping[str, Json]) -> dict[str, Json]:
    """Hyperparameters without switches that are off."""
    return {key: value for key, value in values.items() if value not in (None, "None", "none") and value is not False}


def _beside(values: Mapping[str, Json], first: Mapping[str, Json]) -> str:
    """What a group has otherwise than the first one."""
    if values == first:
        return "the same hyperparameters"
    lacking = [key for key in first if key not in values]
    own = {key: value for key, value in values.items() if key not in first or first[key] != value}
    said = [in_words(own)] if own else []
    return f"{', '.join([*said, *(f'no {key}' for key in lacking)])}; else as the first"


def in_words(values: Mapping[str, Json]) -> str:
    """Return hyperparameters in words; "betas[0]" and "betas[1]" as one."""
    merged: dict[str, list[str]] = {}
    for key, value in values.items():
        merged.setdefault(re.sub(r"\[\d+\]$", "[]", key), []).append(words.exact(value))
    said = (
        f"{key[:-2]} ({', '.join(told)})" if key.endswith("[]") else f"{key} {told[0]}" for key, told in merged.items()
    )
    return ", ".join(said)


def _lists(sheet: Sheet, result: Result, full: bool) -> None:
    for part, label in (
        ("holds", "Holds"),
        ("lacks", "Not in it"),
        ("models", "Also weights"),
        ("stripped", "Stripped"),
        ("unrecognised", "Unexplained"),
    ):
        if named := strings(result.parts.get(part)):
            everything = full or part in ("holds", "lacks")
            sheet.row(label, words.listed(list(named), None if everything else _NAMES))
    label = "Notes"
    for note in strings(result.parts.get("notes")):
        sheet.row(label, note)
        label = ""


def _bloat(sheet: Sheet, storages: list[Entry], full: bool) -> None:
    stored, used = (sum(_number(one.get(key)) for one in storages) for key in ("bytes", "used_bytes"))
    if stored - used < (1 if full else _BLOAT_BYTES):
        return
    said = f"{words.size(stored - used)} in {words.counted(len(storages), 'storage')} are used by no tensor"
    sheet.row("Bloat", said)
    for one in storages[: None if full else _BLOATED]:
        where = " ".join(words.scalar(one[key]) for key in ("file", "key") if one.get(key))
        sizes = f"{words.size(_number(one.get('used_bytes')))} used of {words.size(_number(one.get('bytes')))}"
        sheet.row("", sizes, lead=f"storage {where}: ", deeper=True)


def _everything(sheet: Sheet, result: Result) -> None:
    """Say every tensor and plain value, a line each."""
    everything = [*entries_of(result, "tensors"), *entries_of(result, "values")]
    present = dict.fromkeys(one.get("section") for one in everything)
    sections = [one.get("section") for one in entries_of(result, "sections")]
    for section in (section for section in dict.fromkeys((*sections, *present)) if section in present):
        sheet.gap()
        sheet.say(words.section(section), style="bold")
        for one in everything:
            if one.get("section") == section:
                sheet.say(f"{named(one)}: {_told(one)}", lead="  ")


def named(one: Entry) -> str:
    """Return which tensor or value it is, with its group where it belongs to no parameter."""
    name = words.thing(one.get("name"), one.get("key"))
    if one.get("name") is None and one.get("group") is not None:
        name = f"group {one.get('group')} / {name}"
    return f"optimizer {one.get('optimizer')}: {name}" if one.get("optimizer") else name


def _told(one: Entry) -> str:
    if one.get("dtype") is None:
        return words.exact(one.get("value"))
    value = one.get("value")
    said = [words.spec(one.get("dtype"), one.get("shape")), words.size(_number(one.get("bytes")))]
    said += [words.exact(value)] if value is not None else []
    said += [words.scalar(one.get("device"))] if one.get("device") else []
    said += ["requires grad"] if one.get("requires_grad") else []
    if one.get("name") is not None and one.get("group") is not None:
        said.append(f"group {one.get('group')}")
    if tied := strings(one.get("tied")):
        said.append(f"the same bytes as {', '.join(tied)}")
    return ", ".join(said)


def _mappings(value: Json) -> list[Mapping[str, Json]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0
