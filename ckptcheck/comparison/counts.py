"""How much of two checkpoints was compared, and how much of it differs."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ckptcheck.comparison.checkpoint_diff import CONTENT_SECTIONS, Kind, SectionSummary
from ckptcheck.comparison.outcomes import Outcome
from ckptcheck.comparison.pairs import Pair
from ckptcheck.finding import Compared


def summaries(pairs: Sequence[Pair], outcomes: Sequence[Outcome]) -> Iterator[SectionSummary]:
    """One for each section that has a pair, in the order of reports."""
    by_section: dict[str, list[tuple[Pair, Outcome]]] = {}
    for pair, outcome in zip(pairs, outcomes, strict=True):
        by_section.setdefault(pair.section, []).append((pair, outcome))
    for section in CONTENT_SECTIONS:
        if section in by_section:
            yield _summary(section, by_section[section])


def compared(pairs: Sequence[Pair], outcomes: Sequence[Outcome]) -> Compared:
    """What both sides have; bytes of one side, those of tied tensors once.

    Parameters are those of the models; of checkpoints without, those of the optimizers.
    """
    both = [pair for pair, outcome in zip(pairs, outcomes, strict=True) if _is_on_both(pair, outcome)]
    names = {pair.parameter for pair in both if pair.section == "model"}
    return Compared(
        parameters=len(names or {(pair.optimizer, pair.parameter) for pair in both if pair.parameter is not None}),
        state_tensors=len({(pair.optimizer, pair.parameter, pair.key) for pair in both if pair.role == "state"}),
        bytes=sum(outcome.nbytes for outcome in outcomes),
    )


def _summary(section: str, found: Sequence[tuple[Pair, Outcome]]) -> SectionSummary:
    both = [pair for pair, outcome in found if _is_on_both(pair, outcome)]
    tensors = sum(_is_tensor(pair) for pair in both)
    kinds = Counter(outcome.kind for _, outcome in found if not outcome.is_absorbed)
    return SectionSummary(
        section=section,
        tensors=tensors,
        values=len(both) - tensors,
        nbytes=sum(outcome.nbytes for _, outcome in found),
        differing=kinds.total() - kinds[None] - kinds[Kind.ADDED] - kinds[Kind.REMOVED],
        added=kinds[Kind.ADDED],
        removed=kinds[Kind.REMOVED],
        tolerated=sum(outcome.is_tolerated for _, outcome in found),
    )


def _is_on_both(pair: Pair, outcome: Outcome) -> bool:
    """Whether both sides have it and it was compared, be it under another name."""
    return outcome.kind is Kind.RENAMED or (outcome.is_compared and pair.left is not None and pair.right is not None)


def _is_tensor(pair: Pair) -> bool:
    return any(entry is not None and entry.spec is not None for entry in (pair.left, pair.right))
