"""CK6: buffers and the gradient scaler that a load must bring back."""

from collections.abc import Iterator

from ckptcheck.finding import Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.forward import forward_apart
from ckptcheck.rules.words import at_load, count, differ, kept, names, place_of, shown


@rule("CK605", "buffers-diverged", Severity.ERROR, "load")
def buffers_diverged(case: Case) -> Iterator[Evidence]:
    """Buffers differ from the uninterrupted run.

    Why: BatchNorm statistics decide what evaluation and export compute; training in train mode never shows it.
    Example: only `named_parameters()` are saved.
    Fix: save `state_dict()`, which has the buffers.
    Limits: buffers that are not persistent have to be rebuilt the same way.
    """
    entries = case.loaded("buffer")
    if entries and case.other_step is None:
        found = [one.name for one in entries]
        yield Evidence(
            f"{count(found, 'buffer')} {differ(found)} after the load: {names(found)}",
            at_load(case.step, key=found[0]),
            {"buffers": kept(found), "saved": shown(entries[0].left), "loaded": shown(entries[0].right)},
            "save model.state_dict(), not named_parameters(), and load it strictly",
        )
    elif case.first is not None and case.first.stage == "buffers" and forward_apart(case) is None:
        yield Evidence(
            f"buffer {case.first.item.name} differs first, at step {case.first.step}, with the same inputs",
            place_of(case.first),
            {"buffers": [case.first.item.name]},
            "look for modules in another mode, or buffers moved outside the forward pass",
        )


@rule("CK608", "scaler-diverged", Severity.ERROR, "load")
def scaler_diverged(case: Case) -> Iterator[Evidence]:
    """The gradient scaler's scale or growth counter differs, or an update was skipped in one run only.

    Why: a fresh scaler starts too high, overflows, and skips updates and with them the schedule.
    Example: `scaler.state_dict()` is not saved.
    Fix: save and load it.
    Limits: in float32 it never shows in the weights.
    """
    entries = case.loaded("scaler")
    if entries and case.other_step is None:
        spelled = [f"{one.name} was {shown(one.left)}, is {shown(one.right)}" for one in entries]
        yield Evidence(
            f"the gradient scaler differs after the load: {names(spelled)}",
            at_load(case.step, key=entries[0].name),
            {
                "saved": {one.name: shown(one.left) for one in entries},
                "loaded": {one.name: shown(one.right) for one in entries},
            },
            "save scaler.state_dict() and load it",
        )
    elif case.first is not None and (
        case.first.item.kind == "scaler" or (case.first.item.kind == "updates" and case.has_scaler)
    ):
        first = case.first
        what = "number of updates" if first.item.kind == "updates" else first.item.name
        yield Evidence(
            f"at step {first.step} the {what} is {shown(first.left)} in the uninterrupted run and "
            f"{shown(first.right)} in the resumed one",
            place_of(first),
            {"left": shown(first.left), "right": shown(first.right)},
            "look for an overflow, or an accumulation counter, that only one run has",
        )


RULES = (buffers_diverged, scaler_diverged)
