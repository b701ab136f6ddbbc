"""CK2 and CK5: weights that a training keeps twice, and a file that has one of the two: slow, fp32, averaged ones."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.optimizers.table import TORCH
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import completeness, numbers
from ckptcheck.rules.stored.averages import UPDATES, by_ends
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Optimizer, TrainingState
from ckptcheck.trace.items import Item

_SLOW: Final = ("slow", "la_", "lookahead_slow")
"""In the keys of slow weights, whichever implementation of Lookahead keeps them."""
_MASTERS: Final = ("master", "fp32", "high_precision")
_HALF: Final = frozenset({"float16", "bfloat16"})
_SURE: Final = 2
"""Updates after which an average is the model only by chance; the first of most averages copies it."""


@also(completeness.optimizer_state_partial, severity=Severity.WARNING)
def slow_weights_are_there(stored: Stored) -> Iterator[Evidence]:
    """Groups are Lookahead's, and the slow weights that it goes back to are in no part of the file."""
    state = stored.checkpoint.state
    if stored.purpose is not Purpose.RESUME or _anywhere(state, _SLOW):
        return
    for place, optimizer in enumerate(state.optimizers):
        every = [
            value for group in optimizer.groups for path, entry in group.hyperparameters.items()
            if path == "lookahead_k" and (value := finite_number(entry)) is not None
        ]  # fmt: skip
        if every and _most_updates(optimizer) >= min(every):
            yield Evidence(
                f"the groups of optimizer {place} are Lookahead's (lookahead_k {min(every):g}), and no slow weights "
                "are in the file: after a resume they are the fast ones",
                Place(optimizer=place, key="lookahead_k"),
                {"lookahead_k": min(every)},
                "save the state of the wrapper, and not that of the optimizer within it",
            )


def _most_updates(optimizer: Optimizer) -> float:
    counted = (finite_number(one.get("step")) for one in optimizer.state.values())
    return max((value for value in counted if value is not None), default=0.0)


def _anywhere(state: TrainingState, words: tuple[str, ...]) -> bool:
    """Whether a part of the file beside the model has one of these words in its path."""
    paths = [path for entries in state.sections.values() for path in entries]
    paths += [key for one in state.optimizers for held in one.state.values() for key in held]
    return any(word in path.lower() for path in paths for word in words)


@also(numbers.dtype_narrowed, severity=Severity.INFO)
def copies_in_full_precision_are_there(stored: Stored) -> Iterator[Evidence]:
    """Weights are narrower than their moments, as where an optimizer steps fp32 copies that were not saved."""
    checkpoint = stored.checkpoint
    parameters = checkpoint.state.parameters
    if stored.purpose is not Purpose.RESUME or _anywhere(checkpoint.state, _MASTERS):
        return
    for place, optimizer in enumerate(checkpoint.state.optimizers):
        guess = stored.classes[place]
        if not guess.rows or not set(guess.names) <= {row.name for row in TORCH}:
            continue  # others keep their moments in fp32 whatever they step
        narrow = [
            name
            for name, state in optimizer.state.items()
            if name in parameters
            and (own := parameters[name].entry.spec) is not None
            and own.dtype in _HALF
            and any(one.spec is not None and one.spec.dtype == "float32" and one.spec.shape == own.shape != ()
                    for one in state.values())
        ]  # fmt: skip
        if narrow:
            yield Evidence(
                f"{count(narrow, 'parameter')} in half precision {'has' if len(narrow) == 1 else 'have'} moments in "
                f"float32, which torch makes for float32 parameters alone: {names(narrow)}; the copies that the "
                "optimizer steps are not in the file, and a resume makes them anew from the rounded weights",
                Place(parameter=narrow[0], optimizer=place),
                {"parameters": kept(narrow), "count": len(narrow)},
                "save the weights that the optimizer steps, in float32",
            )


@also(completeness.ema_state_inconsistent, "survey")
def average_is_not_in_the_models_place(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """The weights are those of the average, as where it was swapped in when the file was written."""
    assert stored.survey is not None
    contents = stored.survey.contents
    state = stored.checkpoint.state
    averages = {item.name: one for item, one in contents.items() if item.kind == "ema" and one.numel > 1}
    ends = by_ends(averages)
    held = {name: contents[Item("param", name)] for name in state.parameters if Item("param", name) in contents}
    pairs = [(name, own, averages[ends[name]]) for name, own in held.items() if name in ends]
    if stored.purpose is not Purpose.RESUME or len(pairs) < 2 or not state.step:
        return
    is_alias = all(own is other for _, own, other in pairs)
    if not is_alias and all(own == other for _, own, other in pairs):
        updates = _average_updates(state)
        specs = [state.parameters[name].entry.spec for name, _, _ in pairs]
        # In half precision a weight may stand still through many small updates, and its average with it.
        is_sure = updates is not None and updates >= _SURE and not all(one and one.dtype in _HALF for one in specs)
        yield Evidence(
            f"the {len(pairs)} averages have as many zeros and negative elements and the same largest magnitude as "
            "their parameters: the average was written in the weights' place, or has not begun",
            Place(parameter=pairs[0][0], key="ema"),
            {"parameters": kept(name for name, _, _ in pairs), "count": len(pairs), "updates": updates},
            "save before the average is swapped in, or after the weights are back",
            None if is_sure else Severity.INFO,
        )


def _average_updates(state: TrainingState) -> float | None:
    ema = state.sections.get("ema", {})
    counted = [finite_number(one) for path, one in ema.items() if path.rpartition(".")[2] in UPDATES]
    return max((one for one in counted if one is not None), default=None)


@also(completeness.ema_state_inconsistent)
def released_weights_are_the_averaged_ones(stored: Stored) -> Iterator[Evidence]:
    """A schedule-free optimizer was in train mode: the weights are those where gradients are taken."""
    if stored.purpose is not Purpose.RELEASE:
        return
    for place, optimizer in enumerate(stored.checkpoint.state.optimizers):
        modes = [str(one.hyperparameters["train_mode"].value) for one in optimizer.groups
                 if "train_mode" in one.hyperparameters]  # fmt: skip
        if "True" in modes:
            yield Evidence(
                f"optimizer {place} is schedule-free and was in train mode when the file was written: the weights are "
                "those at which it takes gradients, and not the averaged ones",
                Place(optimizer=place, key="train_mode"),
                {"train_mode": True},
                "call optimizer.eval() before a model is saved for others",
            )


RULES: Final[tuple[Rule[Stored], ...]] = (
    slow_weights_are_there,
    copies_in_full_precision_are_there,
    average_is_not_in_the_models_place,
    released_weights_are_the_averaged_ones,
)
