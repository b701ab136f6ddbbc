"""Two checkpoints of any formats, compared by content: what belongs together, what differs, and how far."""

from collections.abc import Sequence
from typing import Final

from ckptcheck.comparison.checkpoint_diff import (
    CONTENT_SECTIONS,
    GROUP_KEY,
    CheckpointDiff,
    DiffOptions,
    Kind,
    Regrouped,
    Row,
)
from ckptcheck.comparison.content import compare_content
from ckptcheck.comparison.counts import compared, summaries
from ckptcheck.comparison.matching import pair_checkpoints
from ckptcheck.comparison.model_pairs import listed
from ckptcheck.comparison.moves import find_moves
from ckptcheck.comparison.optimizer_pairs import membership_rows
from ckptcheck.comparison.outcomes import Outcome
from ckptcheck.comparison.pairs import Pair, Pairing
from ckptcheck.comparison.selection import Selection
from ckptcheck.errors import UsageError
from ckptcheck.progress import Progress
from ckptcheck.state.checkpoint import Checkpoint

CASTS: Final = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32",
    "fp64": "float64", "double": "float64", "fp8": "float8_e4m3fn", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    **{name: name for name in ("bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")},
}  # fmt: skip
"""What users call a dtype to cast to."""
_EXACT: Final = DiffOptions()


def diff_checkpoints(
    left: Checkpoint, right: Checkpoint, options: DiffOptions = _EXACT, progress: Progress | None = None
) -> CheckpointDiff:
    """Compare all that both checkpoints hold, by section and name.

    Bytes decide: -0.0 is not 0.0, and NaN of the same bits are equal. Containers, devices and what only some writers
    keep (a tie, a number as a tensor) are no difference, and are told in notes. `only` and `ignored` are held against
    the place, section, parameter and key of each tensor and value (`Selection`).

    Raises UsageError for options that do not fit, CheckpointError and DamagedCheckpointError as reading does.
    """
    cast = _cast(options.cast)
    pairing = pair_checkpoints(left, right, options)
    selection = Selection(options.only, options.ignored)
    pairs = selection.choose(pairing.pairs)
    pairs.sort(key=lambda pair: CONTENT_SECTIONS.index(pair.section))
    outcomes = compare_content(pairs, options, cast, progress)
    not_compared = [*pairing.not_compared, *selection.sentences(), *find_moves(pairs, outcomes)]
    unread = [pair.place for pair, outcome in zip(pairs, outcomes, strict=True) if not outcome.is_compared]
    if unread:
        not_compared.append(f"content of {listed(unread)}: its bytes cannot be read here, or its dtype is not known")
    regrouped = [one for one in _regrouped(pairing, pairs, outcomes) if selection.wants(_as_pair(one))]
    reordered = [row for row in pairing.reordered if selection.wants(_order_pair(row))]
    return CheckpointDiff(
        left=left,
        right=right,
        rows=tuple(_in_sections([*_rows(pairs, outcomes), *membership_rows(regrouped), *reordered])),
        summaries=tuple(summaries(pairs, outcomes)),
        regrouped=tuple(regrouped),
        optimizers=tuple(pairing.optimizers),
        paired_by=tuple(pairing.paired_by),
        compared=compared(pairs, outcomes),
        not_compared=tuple(not_compared),
        notes=(*pairing.notes, *_notes(pairs, outcomes), *selection.idle()),
        cast=cast,
        cast_equal=sum(outcome.is_cast_equal for outcome in outcomes),
        unread=len(unread),
        whole=not (options.only or options.ignored or options.left_section or options.right_section),
    )


def _cast(name: str) -> str:
    if not name:
        return ""
    dtype = CASTS.get(name.removeprefix("torch."))
    if dtype is None:
        raise UsageError(f"--cast {name!r} is no dtype that we round to: use one of {', '.join(sorted(CASTS))}")
    return dtype


def _rows(pairs: Sequence[Pair], outcomes: Sequence[Outcome]) -> list[Row]:
    rows = []
    for pair, outcome in zip(pairs, outcomes, strict=True):
        if outcome.kind is None or outcome.is_absorbed:
            continue
        right = pair.right if outcome.partner is None else pairs[outcome.partner].right
        rows.append(
            Row(
                section=pair.section,
                parameter=pair.parameter,
                key=pair.key,
                kind=outcome.kind,
                left=pair.left,
                right=right,
                optimizer=pair.optimizer,
                group=pair.group,
                difference=outcome.difference,
                other=outcome.other,
                beyond=outcome.beyond,
            )
        )
    return rows


def _in_sections(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: CONTENT_SECTIONS.index(row.section))


def _notes(pairs: Sequence[Pair], outcomes: Sequence[Outcome]) -> list[str]:
    found = [pair.place for pair, outcome in zip(pairs, outcomes, strict=True) if outcome.kept_otherwise]
    return [f"equal numbers that the sides keep as different types: {listed(found)}"] if found else []


def _regrouped(pairing: Pairing, pairs: Sequence[Pair], outcomes: Sequence[Outcome]) -> list[Regrouped]:
    """The memberships that differ, less those of parameters that kept their group under another name."""
    new_names = {
        pair.parameter: outcome.other
        for pair, outcome in zip(pairs, outcomes, strict=True)
        if outcome.kind is Kind.RENAMED
    }
    new_groups = {
        (one.optimizer, one.parameter): pairing.left_group_of.get((one.optimizer, one.right_group))
        for one in pairing.regrouped
        if one.left_group is None and one.right_group is not None
    }
    kept: set[tuple[int, str]] = set()
    for one in pairing.regrouped:
        successor = one.optimizer, new_names.get(one.parameter, "")
        if one.right_group is None and successor in new_groups and new_groups[successor] == one.left_group:
            kept |= {(one.optimizer, one.parameter), successor}
    return [one for one in pairing.regrouped if (one.optimizer, one.parameter) not in kept]


def _as_pair(one: Regrouped) -> Pair:
    return Pair("optimizer", one.parameter, GROUP_KEY, None, None, "state", one.optimizer)


def _order_pair(row: Row) -> Pair:
    return Pair(row.section, None, row.key, row.left, row.right, "optimizer", row.optimizer)
