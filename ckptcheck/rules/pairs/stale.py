"""CK1: a later checkpoint that holds the moments of an earlier one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff, Kind, Row
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence, Unjudged, also, rule
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.scalars import value_of
from ckptcheck.state.tensor import TensorRef
from ckptcheck.state.training_state import Entry, Optimizer

COUNTERS: Final = frozenset({"step", "mu_product", "eta", "mu", "ax", "func_evals", "n_iter"})
"""State that counts, follows from a count, or is a copy of the weights; every other tensor is a moment."""
_BLOCK_BYTES: Final = 1 << 20


_Rows: TypeAlias = Mapping[tuple[str | None, str | None], Row]


@rule("CK106", "stale-bytes", Severity.WARNING)
def stale_bytes(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The right checkpoint is of a later step than the left one and has byte for byte the same moments.

    Why: an update changes every moment that is not zero, so the optimizer state was not written anew.
    Example: a save that keeps a reference to the state of an earlier step; a shard left over from the save before.
    Fix: look at how the optimizer state gets into the file; resume from a checkpoint whose moments moved.
    Limits: needs a step counter that advanced, or a weight that changed beside a recorded step that did. Moments
    that are all zero are not told, and where weights, counters and moments are all equal nothing is. Of two files
    of weights alone, told where both record a step, the right one's is later, and every weight is the same.
    """
    diff = pair.diff
    if reason := _why_not(diff):
        yield Unjudged(reason)
        return
    advanced = _progress_advanced(diff)
    changed = {row.parameter for row in diff.rows if row.section == "model" and row.kind is Kind.CHANGED}
    for place, optimizer in enumerate(diff.left.state.optimizers):
        rows = _rows_of(diff, place)
        stale = [
            name
            for name, state in optimizer.state.items()
            if (_counter_advanced(name, rows) or (advanced and name in changed))
            and _is_stale(name, state, rows)
            and _is_held(name, state, diff.right.state.optimizers)
        ]
        if stale:
            yield Evidence(
                f"optimizer {place} made updates between the two checkpoints, and of the {_with_moments(optimizer)} "
                f"parameters with moments {count(stale, 'parameter')} {'has' if len(stale) == 1 else 'have'} theirs "
                f"unchanged, byte for byte: {names(stale)}",
                Place(optimizer=place, parameter=stale[0]),
                {"parameters": kept(stale), "count": len(stale), "of": _with_moments(optimizer)},
                "look at how the optimizer state gets into the file: it is that of the earlier checkpoint",
            )


def _rows_of(diff: CheckpointDiff, optimizer: int) -> _Rows:
    """The rows about the state of an optimizer's parameters, by parameter and key."""
    return {(row.parameter, row.key): row for row in diff.rows
            if row.section == "optimizer" and row.optimizer == optimizer and row.parameter is not None}  # fmt: skip


def _progress_advanced(diff: CheckpointDiff) -> bool:
    steps = diff.left.state.step, diff.right.state.step
    return steps[0] is not None and steps[1] is not None and steps[0] < steps[1]


def _counter_advanced(name: str, rows: _Rows) -> bool:
    row = rows.get((name, "step"))
    values = [value_of(side) for side in (row.left, row.right) if side is not None] if row else []
    before, after = values if len(values) == 2 else (None, None)
    return isinstance(before, int | float) and isinstance(after, int | float) and before < after


def _moments(state: Mapping[str, Entry]) -> dict[str, Entry]:
    return {key: entry for key, entry in state.items() if entry.spec is not None and key not in COUNTERS}


def _is_stale(name: str, state: Mapping[str, Entry], rows: _Rows) -> bool:
    moments = _moments(state)
    return (
        bool(moments)
        and not any((name, key) in rows for key in moments)
        and any(_holds_something(entry.ref) for entry in moments.values())
    )


def _is_held(name: str, state: Mapping[str, Entry], right: Sequence[Optimizer]) -> bool:
    """Whether the right side has these moments too; what it lacks has no row of its own."""
    return any(_moments(state).keys() <= one.state.get(name, {}).keys() for one in right)


def _holds_something(ref: TensorRef | None) -> bool:
    """Whether a tensor has a byte that is not zero."""
    if ref is None:
        return False
    for start in range(0, ref.spec.nbytes, _BLOCK_BYTES):
        block = bytearray(min(_BLOCK_BYTES, ref.spec.nbytes - start))
        ref.read_into(start, memoryview(block))
        if block.count(0) < len(block):
            return True
    return False


def _with_moments(optimizer: Optimizer) -> int:
    return sum(1 for state in optimizer.state.values() if _moments(state))


def _why_not(diff: CheckpointDiff) -> str:
    moments = [sum(_with_moments(one) for one in side.state.optimizers) for side in (diff.left, diff.right)]
    if not all(moments):
        return f"the {'left' if not moments[0] else 'right'} checkpoint holds no moments of an optimizer"
    compared = next((one for one in diff.summaries if one.section == "optimizer"), None)
    tensors = sum(len(_moments(state)) for one in diff.left.state.optimizers for state in one.state.values())
    if compared is None or compared.tensors + compared.removed + compared.added < tensors:
        return "the optimizer state was not compared in full"
    return ""


@also(stale_bytes)
def weights_of_another_step(pair: Pair) -> Iterator[Evidence]:
    """Two files of weights alone are of different steps and hold the same weights, byte for byte."""
    diff = pair.diff
    sides = (diff.left.state, diff.right.state)
    if not _progress_advanced(diff) or any(one.optimizers for one in sides) or not _are_all_equal(diff):
        return
    same = [*sides[1].parameters]
    yield Evidence(
        f"the right checkpoint is of step {sides[1].step} and the left one of step {sides[0].step}, and all "
        f"{len(same)} parameters are the same, byte for byte: one of the two holds the other's weights, as where best "
        "weights were kept by reference",
        Place(parameter=same[0]),
        {"steps": [sides[0].step, sides[1].step], "count": len(same)},
        "put copy.deepcopy(model.state_dict()) aside: the tensors of state_dict() go on being trained",
    )


def _are_all_equal(diff: CheckpointDiff) -> bool:
    """Whether each side has the same parameters, two of them at least with more than one element, and none differs."""
    left, right = diff.left.state.parameters, diff.right.state.parameters
    several = [one for one in left.values() if one.entry.spec is not None and one.entry.spec.numel > 1]
    rests = not any(row.section == "model" for row in diff.rows)
    return diff.whole and not diff.unread and rests and left.keys() == right.keys() and len(several) > 1


RULES: Final = (stale_bytes, weights_of_another_step)
