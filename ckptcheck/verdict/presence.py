"""Gradient presence over time: none, zero or nonzero for each parameter in each step, the same ones told once.

A run's part is `{"run", "steps", "every", "letters", "rows"}`: a row has the `parameters` that share it, a letter for
each step and side (`right` is null where it says what the left does in every step that it has), where `requires_grad`
is off (`frozen`: a letter a step, null where it never is), and the freeze contract they are under. Of several updates
in a step the most present gradient counts. Where there are very many cells only one in `every` steps is told.
"""

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from ckptcheck.finding import Json
from ckptcheck.trace.items import STEP, Item
from ckptcheck.trace.reading import Trace
from ckptcheck.verdict.stage_strip import Sight

LETTERS: Final = {"-": "none", "0": "zero", "+": "nonzero", " ": "not recorded", "f": "frozen"}
_IN_ORDER: Final = "-0+"
"""The letter of each gradient presence, by its number in a trace."""
UNSEEN: Final = " "
FROZEN: Final = "f"
MAX_CELLS: Final = 1_000_000
"""Parameters times steps that are looked at."""


def presence(sight: Sight) -> dict[str, Json] | None:
    """The part of one resumed run; None where neither side recorded a gradient."""
    traces = [trace for trace in (sight.left, sight.right) if trace is not None]
    steps = sorted({step for trace in traces for step in trace.steps})
    names = [*dict.fromkeys(item.name for trace in traces for item, _ in trace.tensors() if item.kind == "grad")]
    if not steps or not names:
        return None
    every = -(-len(steps) * len(names) // MAX_CELLS)
    steps = steps[::every]
    sides = [_letters(trace, steps) if trace is not None else {} for trace in (sight.left, sight.right)]
    frozen = _frozen(traces, steps)
    rows: dict[tuple[str, str | None, str | None, str | None], list[str]] = {}
    for name in names:
        left, right = (side.get(name, UNSEEN * len(steps)) for side in sides)
        key = (left, _unlike(left, right), frozen.get(name), _contract(name, sight.contracts or {}))
        rows.setdefault(key, []).append(name)
    return {
        "run": sight.run,
        "steps": [*steps],
        "every": every,
        "letters": dict(LETTERS),
        "rows": [
            {"parameters": [*names], "left": left, "right": right, "frozen": rests, "contract": contract}
            for (left, right, rests, contract), names in rows.items()
        ],
    }


def _letters(trace: Trace, steps: Sequence[int]) -> dict[str, str]:
    """By parameter, a letter a step."""
    found: dict[str, list[str]] = {}
    names = {what: item.name for what, (item, _) in trace.table.items() if item.kind == "grad"}
    for place, step in enumerate(steps):
        for what, number in trace.presences(step, STEP) if (step, STEP) in trace.moments else ():
            letters = found.setdefault(names[what], [UNSEEN] * len(steps))
            if letters[place] == UNSEEN or _IN_ORDER.index(letters[place]) < number:
                letters[place] = _IN_ORDER[number]
    return {name: "".join(letters) for name, letters in found.items()}


def _unlike(left: str, right: str) -> str | None:
    """The right side where it says something else than the left at any step that it has."""
    same = all(other in (one, UNSEEN) for one, other in zip(left, right, strict=True))
    return None if same else right


def _frozen(traces: Sequence[Trace], steps: Sequence[int]) -> dict[str, str]:
    """By parameter that is ever frozen, a letter a step: what the first trace says that has the step."""
    found: dict[str, list[str]] = {}
    texts: dict[str | None, list[str]] = {}
    for place, step in enumerate(steps):
        trace = next(one for one in traces if (step, STEP) in one.moments)
        text = trace.text(trace.digest(step, STEP, Item("structure", "frozen")))
        if text not in texts:
            texts[text] = json.loads(text or "[]")
        for name in texts[text]:
            found.setdefault(name, [UNSEEN] * len(steps))[place] = FROZEN
    return {name: "".join(letters) for name, letters in found.items()}


def _contract(name: str, contracts: Mapping[str, str]) -> str | None:
    """The contract of the last pattern that fits, which binds."""
    return next((kind for glob, kind in reversed([*contracts.items()]) if fnmatchcase(name, glob)), None)
