"""The contents of pairs held against each other: specs first, then bytes, then how far they are apart."""

from collections.abc import Sequence

from ckptcheck.comparison.checkpoint_diff import DiffOptions, Kind
from ckptcheck.comparison.outcomes import Outcome, tolerance_of
from ckptcheck.comparison.pairs import Pair
from ckptcheck.comparison.plain import compare_mixed, compare_plain
from ckptcheck.comparison.streams import Measured, Question, RefPair, find_unequal, is_measurable, measure
from ckptcheck.progress import Progress
from ckptcheck.state.tensor import ITEMSIZE_BYTES
from ckptcheck.state.training_state import Entry


def compare_content(pairs: Sequence[Pair], options: DiffOptions, cast: str, progress: Progress | None) -> list[Outcome]:
    """One outcome a pair, in order; kinds moved and renamed are not looked for. `cast` as of `Question`."""
    outcomes = [Outcome() for _ in pairs]
    plain: list[int] = []
    mixed: list[int] = []
    tensors: list[int] = []
    for place, pair in enumerate(pairs):
        if pair.left is None or pair.right is None:
            outcomes[place].kind = Kind.ADDED if pair.left is None else Kind.REMOVED
        elif pair.left.spec is None and pair.right.spec is None:
            plain.append(place)
        else:
            (mixed if pair.left.spec is None or pair.right.spec is None else tensors).append(place)
    compare_plain(pairs, outcomes, plain, options)
    compare_mixed(pairs, outcomes, mixed)
    _compare_tensors(pairs, outcomes, tensors, progress)
    _measure(pairs, outcomes, options, cast, progress)
    return outcomes


def _compare_tensors(
    pairs: Sequence[Pair], outcomes: Sequence[Outcome], places: Sequence[int], progress: Progress | None
) -> None:
    """Kinds of tensors that both sides have; the same bytes under several names are read once."""
    known: dict[tuple[int, int], int] = {}
    distinct: list[RefPair] = []
    waiting: list[tuple[int, int]] = []
    for place in places:
        refs = _settle(pairs[place], outcomes[place])
        if refs is not None:
            key = id(refs[0]), id(refs[1])
            if key not in known:
                known[key] = len(distinct)
                distinct.append(refs)
                outcomes[place].nbytes = refs[0].spec.nbytes
            waiting.append((place, known[key]))
    unequal = find_unequal(distinct, progress)
    for place, at in waiting:
        if at in unequal:
            outcomes[place].kind = Kind.CHANGED


def _settle(pair: Pair, outcome: Outcome) -> RefPair | None:
    """Say what specs and digests alone can tell; returns what must be read, if anything."""
    left, right = pair.left, pair.right
    if left is None or right is None or left.spec is None or right.spec is None:
        return None
    if left.spec.shape != right.spec.shape:
        outcome.kind = Kind.SHAPE
    elif left.spec.dtype != right.spec.dtype:
        outcome.kind, outcome.nbytes = Kind.DTYPE, left.spec.nbytes
    elif left.ref is not None and right.ref is not None and (left.spec.dtype in ITEMSIZE_BYTES or not left.spec.numel):
        return left.ref, right.ref
    elif left.digest is not None and right.digest is not None and left.digest.algorithm == right.digest.algorithm:
        outcome.kind = None if left.digest == right.digest else Kind.CHANGED
    else:
        outcome.is_compared = False
    return None


def _measure(
    pairs: Sequence[Pair], outcomes: Sequence[Outcome], options: DiffOptions, cast: str, progress: Progress | None
) -> None:
    questions: dict[object, Question] = {}
    waiting: list[tuple[Outcome, object]] = []
    for pair, outcome in zip(pairs, outcomes, strict=True):
        question = _question(pair, outcome, options, cast)
        if question is not None:
            key: object = (id(question.pair[0]), id(question.pair[1]), question.tolerance)
            questions.setdefault(key, question)
            waiting.append((outcome, key))
    found = dict(zip(questions, measure(list(questions.values()), progress), strict=True))
    for outcome, key in waiting:
        _apply(found[key], outcome, keep=options.statistics)


def _question(pair: Pair, outcome: Outcome, options: DiffOptions, cast: str) -> Question | None:
    left, right = pair.left, pair.right
    if outcome.kind not in (Kind.CHANGED, Kind.DTYPE) or not (_is_read(left) and _is_read(right)):
        return None
    assert left is not None and right is not None and left.ref is not None and right.ref is not None
    if not is_measurable(left.ref.spec, right.ref.spec):
        return None
    tolerance = tolerance_of(pair, left.ref.spec.dtype, options)
    if not (options.statistics or tolerance or cast):
        return None
    return Question((left.ref, right.ref), tolerance, cast)


def _is_read(entry: Entry | None) -> bool:
    return entry is not None and entry.spec is not None and entry.ref is not None


def _apply(measured: Measured, outcome: Outcome, *, keep: bool) -> None:
    if measured.equal_after_cast:
        outcome.kind, outcome.is_tolerated, outcome.is_cast_equal = None, True, True
    elif measured.beyond == 0 and outcome.kind is Kind.CHANGED:
        outcome.kind, outcome.is_tolerated = None, True
    else:
        outcome.beyond = measured.beyond
        outcome.difference = measured.difference if keep else None
