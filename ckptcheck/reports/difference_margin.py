"""What stands beside the differences of two checkpoints: param groups, measures, and how things were paired."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.contents import strings
from ckptcheck.reports.difference_words import is_order, optimizer
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.sheet import Sheet

_REGROUPED: Final = 10
_NAMES_OF_THE_RUN: Final = frozenset(
    {
        "output_dir", "logging_dir", "log_dir", "run_name", "run_id", "dirpath", "best_model_path", "last_model_path",
        "kth_best_model_path", "best_k_models", "best_model_checkpoint", "hostname", "save_dir",
    }
)  # fmt: skip
"""Keys whose values say where and under which name a run went, and nothing of what it trained."""


def about_groups(sheet: Sheet, result: Result, full: bool) -> None:
    """Say which optimizers one side lacks, which groups stand in another order, and who is in another group."""
    rows = entries_of(result, "differences")
    label = "Optimizers"
    for one in entries_of(result, "optimizers"):
        if one.get("left") is None or one.get("right") is None:
            side = "right" if one.get("left") is None else "left"
            named = {"optimizer": one.get(side), "label": one.get(f"{side}_label")}
            count = sum(1 for row in rows if row.get("optimizer") == one.get("optimizer"))
            entries = words.counted(count, "entry", "entries")
            sheet.row(label, f"{optimizer(named, always=True)} only on the {side}: {entries}")
            label = ""
    label = "Groups"
    for one in filter(is_order, rows):
        sheet.row(
            label,
            "its groups or their members stand in another order: load_state_dict binds by position and would mix up "
            "their state",
            lead=f"{optimizer(one, always=True)}: ",
        )
        sheet.row("", f"{words.scalar(one.get('left'))} -> {words.scalar(one.get('right'))}", deeper=True)
        label = ""
    labels = {one.get("optimizer"): one.get("left_label") or one.get("right_label")
              for one in entries_of(result, "optimizers")}  # fmt: skip
    groups = [{**one, "label": labels.get(one.get("optimizer"))} for one in entries_of(result, "groups")]
    _regrouped(sheet, groups, full)


def one_sided(result: Result) -> set[Json]:
    """Return the numbers of the optimizers that one side lacks."""
    optimizers = entries_of(result, "optimizers")
    return {one.get("optimizer") for one in optimizers if one.get("left") is None or one.get("right") is None}


def only_names_of_the_run(rows: Sequence[Entry]) -> str:
    """Return which --ignore leaves all out, where nothing differs but paths and names of the run; "" otherwise."""
    found: dict[str, None] = {}
    for one in rows:
        parts = re.sub(r"\[[^\]]*\]", "", words.scalar(one.get("key"))).split(".")
        known = next((part for part in parts if part in _NAMES_OF_THE_RUN), None)
        if known is None or one.get("parameter") is not None:
            return ""
        found[known] = None
    if not found:
        return ""
    options = " ".join(f"--ignore '*{part}*'" for part in found)
    return f"only paths and names of the run differ; {options} leaves them out"


def _regrouped(sheet: Sheet, groups: Sequence[Entry], full: bool) -> None:
    label = "Groups"
    for one in groups[: None if full else _REGROUPED]:
        sides = (_group(one.get("left_group")), _group(one.get("right_group")))
        which = f" ({said})" if (said := optimizer(one)) else ""
        sheet.row(label, f"{' -> '.join(sides)}{which}", lead=f"{words.scalar(one.get('parameter'))}: ")
        label = ""
    if len(groups) > _REGROUPED and not full:
        sheet.row("", f"and {len(groups) - _REGROUPED} more (-v shows all)", style="dim")


def _group(number: Json) -> str:
    return "no group" if number is None else f"group {number}"


def measure(sheet: Sheet, result: Result) -> None:
    """Say by which measure things count as equal, and which parameters were not paired by name."""
    tolerance = result.parts.get("tolerance")
    if isinstance(tolerance, Mapping):
        sheet.row("Tolerance", "; ".join(_tolerances(tolerance)))
    cast = result.parts.get("cast")
    if isinstance(cast, Mapping):
        equal = cast.get("equal")
        counted = words.counted(equal if isinstance(equal, int) else 0, "tensor")
        sheet.row("Cast", f"{counted} equal only after a cast to {cast.get('dtype')}")
    for one in entries_of(result, "optimizers"):
        if one.get("paired_by") in ("position", "none"):
            how = "by position" if one.get("paired_by") == "position" else "not at all"
            named = {**one, "label": one.get("left_label") or one.get("right_label")}
            sheet.row(
                "Paired", f"{optimizer(named, always=True)} {how}: a side has no parameter names that are certain"
            )


def _tolerances(tolerance: Mapping[str, Json]) -> list[str]:
    """Each role with its tolerance, and those of what no role asks for."""
    roles = tolerance.get("roles")
    rest = ", ".join(strings(tolerance.get("applies_to")))
    named: list[tuple[str, Json]] = [
        *([(rest, {**tolerance})] if rest else []),
        *(roles.items() if isinstance(roles, Mapping) else ()),
    ]
    return [
        f"{role} rtol {words.exact(one.get('rtol'))} atol {words.exact(one.get('atol'))}"
        for role, one in named
        if isinstance(one, Mapping)
    ]
