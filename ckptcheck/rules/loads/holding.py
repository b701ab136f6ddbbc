"""CK303-CK305, CK307: who is in the target's groups, and whether the state that it gets fits."""

from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.conventions.weights import whole_shape
from ckptcheck.finding import Json, Severity
from ckptcheck.optimizers.shapes import ShapeTest
from ckptcheck.rules.loads.dry_run import DryRun
from ckptcheck.rules.loads.views import at, refused, rows_of
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored import binding as stored
from ckptcheck.rules.words import KEPT, count, kept, names
from ckptcheck.state.training_state import Entry, TrainingState


@also(runs.trainable_parameter_in_no_group)
def trainable_parameter_in_no_group(dry: DryRun) -> Iterator[Evidence]:
    """A parameter that the target would train is in no group of its optimizers."""
    held = {name for optimizer in dry.now.optimizers for name in optimizer.members}
    if not held or _loose(dry.now):
        return  # no optimizer at all, or a stale one, which CK307 tells
    left = [name for name, one in dry.now.parameters.items() if name not in held and one.requires_grad]
    saved = {name for pair in dry.pairs if pair.file is not None and pair.named for name in pair.file.members}
    lost = [name for name in left if name in saved]
    for listed, severity in ((lost, Severity.ERROR), ([one for one in left if one not in saved], Severity.WARNING)):
        if listed:
            more = "the file's optimizer has them" if severity is Severity.ERROR else "they are never updated"
            yield Evidence(
                f"{count(listed, 'trainable parameter')} of the target {'is' if len(listed) == 1 else 'are'} in no "
                f"param group, {more}: {names(listed)}",
                at(parameter=listed[0]),
                {"parameters": kept(listed), "of": len(dry.now.parameters)},
                "build the optimizer over all trainable parameters, or set requires_grad to False",
                severity,
            )


def _loose(state: TrainingState) -> dict[int, list[tuple[int, int]]]:
    """Slots of each optimizer that hold a tensor which the model does not."""
    found: dict[int, list[tuple[int, int]]] = {}
    for place, optimizer in enumerate(state.optimizers):
        for group, one in enumerate(optimizer.groups):
            slots = [(group, index) for index, name in enumerate(one.members) if name is None]
            if slots:
                found.setdefault(place, []).extend(slots)
    return found


@also(runs.state_shape_mismatch)
def state_shape_mismatch(dry: DryRun) -> Iterator[Evidence]:
    """State that the load gives to a parameter has not its shape: the first step raises."""
    for pair in dry.pairs:
        rows = rows_of(pair.live)
        if pair.file is None or not rows or rows[0].whole_list or refused(dry, pair):
            continue
        own = dry.loaded_optimizers[pair.place] if dry.loaded_optimizers is not None else pair.file
        test = ShapeTest(rows)
        wrong = dict(_misshapen(own.state, dry.now, test))
        if not wrong:
            continue
        name, (key, kept_shape, shape) = next(iter(wrong.items()))
        when = "after the load" if dry.loaded_optimizers is not None else "in the file"
        yield Evidence(
            f"{key} of {name} in optimizer {pair.place} is {[*kept_shape]} {when}, and the parameter is {[*shape]}: "
            f"{count(list(wrong), 'parameter')} {'has' if len(wrong) == 1 else 'have'} state of another shape",
            at(optimizer=pair.place, parameter=name, key=key),
            {"state": list[Json](kept_shape), "parameter": list[Json](shape), "all": kept(wrong)},
            "hand the parameters to the optimizer in the order in which they were saved",
        )


def _misshapen(
    state: Mapping[str, Mapping[str, Entry]], live: TrainingState, test: ShapeTest
) -> Iterator[tuple[str, tuple[str, tuple[int, ...], tuple[int, ...]]]]:
    for name, entries in state.items():
        one = live.parameters.get(name)
        shape = whole_shape(one.entry) if one is not None else None
        if shape is None:
            continue
        shapes = {key: found for key, entry in entries.items() if (found := whole_shape(entry)) is not None}
        for key, found in test.signature(shapes):
            if not test.fits(((key, found),), shape):
                yield name, (key, found, shape)
                break


@also(stored.parameter_in_two_groups, severity=Severity.WARNING)
def parameter_in_two_groups(dry: DryRun) -> Iterator[Evidence]:
    """Two of the target's optimizers hold one parameter, or one holds it twice."""
    holders: dict[str, list[tuple[int, int]]] = {}
    for place, optimizer in enumerate(dry.now.optimizers):
        for group, one in enumerate(optimizer.groups):
            for name in one.members:
                if name is not None:
                    holders.setdefault(name, []).append((place, group))
    twice = {name: places for name, places in holders.items() if len(places) > 1}
    in_one = {name: places for name, places in twice.items() if len({place for place, _ in places}) < len(places)}
    for found, severity in (
        (in_one, Severity.ERROR),
        ({k: v for k, v in twice.items() if k not in in_one}, Severity.INFO),
    ):
        if found:
            name, places = next(iter(found.items()))
            where = " and ".join(f"group {group} of optimizer {place}" for place, group in places)
            yield Evidence(
                f"{count(list(found), 'parameter')} of the target stand in more than one group: {name} in {where}",
                at(optimizer=places[0][0], parameter=name, group=places[0][1]),
                {"parameters": kept(found)},
                "hand each parameter to one optimizer once, unless they take turns on purpose",
                severity,
            )


@also(runs.stale_parameter_reference)
def stale_parameter_reference(dry: DryRun) -> Iterator[Evidence | Unjudged]:
    """An optimizer of the target holds tensors that its model does not, while parameters of the model are in none."""
    before, after = _loose(dry.built), _loose(dry.now)
    held = {name for optimizer in dry.now.optimizers for name in optimizer.members}
    left = [name for name, one in dry.now.parameters.items() if name not in held and one.requires_grad]
    for place, slots in after.items():
        new = [slot for slot in slots if slot not in before.get(place, [])]
        if new:
            lost = [name for group, index in new if (name := dry.built.optimizers[place].groups[group].members[index])]
        else:
            lost = left
        if not lost:
            continue  # a tensor beside the model that is trained on purpose
        if not new and len(slots) != len(left):
            yield Unjudged(
                f"optimizer {place} holds {count(slots, 'tensor')} beside the model, and {count(left, 'parameter')} of "
                "the model are in no group: whether these took the place of those is not said"
            )
            continue
        when = "the load replaced them" if new else "they were replaced after it was built"
        yield Evidence(
            f"optimizer {place} steps {count(new or slots, 'tensor')} that the model does not hold, in place of "
            f"{names(lost)}: {when}",
            at(optimizer=place, parameter=lost[0], group=(new or slots)[0][0]),
            {"parameters": kept(lost), "slots": [list[Json](slot) for slot in (new or slots)[:KEPT]]},
            "build the optimizer after the model is complete, and load weights in place (no assign=True)",
        )


RULES: Final[tuple[Rule[DryRun], ...]] = (
    trainable_parameter_in_no_group,
    state_shape_mismatch,
    parameter_in_two_groups,
    stale_parameter_reference,
)
