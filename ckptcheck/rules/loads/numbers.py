"""CK5 and CK601: values that a load casts or changes, and a load that raises."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.states import EntryDifference
from ckptcheck.finding import Severity
from ckptcheck.rules.loads.dry_run import DryRun, slot_of
from ckptcheck.rules.loads.views import at, bound
from ckptcheck.rules.rule import Evidence, Rule, also
from ckptcheck.rules.runs import fidelity
from ckptcheck.rules.runs import numbers as runs
from ckptcheck.rules.words import count, kept, names, shown
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec

_FLOATING: Final = ("float", "bfloat")


@also(runs.dtype_narrowed, "load")
def dtype_narrowed(dry: DryRun) -> Iterator[Evidence]:
    """The load casts what the file holds into a narrower dtype, or the file is narrower than what the target trains."""
    assert dry.load is not None
    narrowed: list[EntryDifference] = []
    narrow: list[EntryDifference] = []
    for one in (*dry.load.of("param"), *dry.load.of("state"), *dry.load.of("buffer")):
        sides = one.left.spec if one.left else None, one.right.spec if one.right else None
        if sides[0] is None or sides[1] is None or sides[0].shape != sides[1].shape or not sides[0].shape:
            continue
        if _narrower(sides[1], sides[0]):
            narrowed.append(one)
        elif _narrower(sides[0], sides[1]):
            narrow.append(one)
    for listed, what in ((narrowed, "are cast by the load"), (narrow, "are narrower in the file than in the target")):
        if listed:
            first = listed[0]
            assert first.left is not None and first.right is not None
            found = [_called(one) for one in listed]
            yield Evidence(
                f"{count(listed, 'tensor')} {what}, from {first.left.spec} to {first.right.spec}: {names(found)}",
                at(optimizer=first.optimizer, parameter=first.name, key=first.key or None),
                {"file": str(first.left.spec), "loaded": str(first.right.spec), "tensors": kept(found),
                 "count": len(listed)},
                "load_state_dict casts state to the dtype of its parameter: keep model and file in one dtype",
            )  # fmt: skip
    yield from _rounded(dry)


def _rounded(dry: DryRun) -> Iterator[Evidence]:
    """What came out of the load is the file's, rounded to a narrower dtype and back."""
    assert dry.load is not None
    listed = [one for one in dry.load.entries if slot_of(one) in dry.rounded]
    if listed:
        first = listed[0]
        through = Counter(dry.rounded.values()).most_common(1)[0][0]
        found = [_called(one) for one in listed]
        yield Evidence(
            f"{count(listed, 'tensor')} {'is' if len(listed) == 1 else 'are'} after the load what the file holds, "
            f"rounded to {through}: {names(found)}",
            at(optimizer=first.optimizer, parameter=first.name, key=first.key or None),
            {"rounded_through": through, "tensors": kept(found), "count": len(listed)},
            f"load these tensors as they are, not through {through}",
        )


def _narrower(one: TensorSpec, other: TensorSpec) -> bool:
    if not (one.dtype.startswith(_FLOATING) and other.dtype.startswith(_FLOATING)):
        return False
    return 0 < ITEMSIZE_BYTES.get(one.dtype, 0) < ITEMSIZE_BYTES.get(other.dtype, 0)


@also(runs.step_counter_mismatch, "load")
def step_counter_mismatch(dry: DryRun) -> Iterator[Evidence]:
    """The load leaves another update counter than the file has."""
    assert dry.load is not None
    for pair, one in bound(dry):
        if one.counted:
            name, key = one.counted[0]
            values = [shown(side.optimizers[pair.place].state[name][key]) for side in (dry.load.left, dry.load.right)]
            yield Evidence(
                f"{key} of {count(one.counted, 'parameter')} in optimizer {pair.place} is {values[0]} in the file and "
                f"{values[1]} after the load: {names(name for name, _ in one.counted)}",
                at(optimizer=pair.place, parameter=name, key=key),
                {"saved": values[0], "loaded": values[1], "parameters": kept(name for name, _ in one.counted)},
                "load the counter with the rest of the optimizer's state",
            )


@also(fidelity.load_not_faithful)
def load_not_faithful(dry: DryRun) -> Iterator[Evidence]:
    """The load raised, or it left other values than the file holds, in a way that no closer code names."""
    if dry.raised is not None:
        how = f"{dry.how} raised" if dry.how else "the load raised"
        yield Evidence(
            f"{how}: {dry.raised}",
            at(),
            {"raised": dry.raised, "loaded": dry.loaded is not None},
            "build the training as it was when the file was saved, or load the parts that fit by name",
        )
    if dry.load is None:
        return
    changed = [one for one in dry.load.of("param") if _is_third(dry, one)]
    for pair, binding in bound(dry):
        counted = {*binding.counted, *binding.reshaped}
        changed += [
            one
            for one in dry.load.of("state")
            if one.optimizer == pair.place and one.changed and one.name not in binding.permuted
            and (one.name, one.key) not in counted and one.left is not None and one.right is not None
            and one.left.spec == one.right.spec
        ]  # fmt: skip
    changed = [one for one in changed if slot_of(one) not in dry.rounded]  # which CK504 tells
    if changed and dry.raised is None:
        one = changed[0]
        yield Evidence(
            f"{count(changed, 'entry', 'entries')} after the load {'is' if len(changed) == 1 else 'are'} neither as "
            f"built nor as in the file: {names(map(_called, changed))}",
            at(parameter=one.name, key=one.key or None, optimizer=one.optimizer),
            {"file": shown(one.left), "loaded": shown(one.right), "entries": len(changed)},
            "compare what your load puts back with what the file holds",
            Severity.WARNING,
        )


def _called(one: EntryDifference) -> str:
    return f"{one.name}.{one.key}" if one.key else one.name


def _is_third(dry: DryRun, one: EntryDifference) -> bool:
    """Whether a parameter holds neither what the file has under its name, nor anything of the file, nor its start."""
    if one.left is None or one.right is None or one.left.spec != one.right.spec or one.name in dry.held:
        return False
    before = dry.built.parameters.get(one.name)
    return before is None or before.entry.digest != one.right.digest


RULES: Final[tuple[Rule[DryRun], ...]] = (dtype_narrowed, step_counter_mismatch, load_not_faithful)
