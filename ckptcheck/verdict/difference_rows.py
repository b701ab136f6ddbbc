"""The rows of a comparison as a result holds them."""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import zip_longest
from typing import Any, Final

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff, Row
from ckptcheck.finding import Json
from ckptcheck.state.scalars import number_in
from ckptcheck.state.training_state import Entry
from ckptcheck.verdict.contents import NONE, in_result
from ckptcheck.verdict.generators import words_apart
from ckptcheck.verdict.inspection import MAX_TEXT

NUMBERS: Final = (
    "differing", "numel", "first_at", "max_abs", "max_abs_at", "rel_l2", "max_ulp", "median_ulp", "sign_flips", "nan",
    "inf", "signed_zeros", "nan_payloads", "rounded_through",
)  # fmt: skip
"""What is measured of two tensors, by the names of a `TensorDifference`."""


def difference_rows(diff: CheckpointDiff) -> list[Json]:
    """The entries of `differences`, in order."""
    labels = {one.optimizer: one.label for one in diff.optimizers}
    return [
        difference_row(row, labels.get(row.optimizer, "") if row.optimizer is not None else "") for row in diff.rows
    ]


def ulp_rows(diff: CheckpointDiff) -> list[Json]:
    """By section, key and dtype: the tensors with distances in ULP, and their elements by powers of two.

    `counts` has the elements that are 0 apart, 1, 2 to 3, 4 to 7 and so on. Elements of equal bits are in none.
    """
    found: dict[tuple[str, str | None, str], tuple[int, list[int]]] = {}
    for row in diff.rows:
        counts = row.difference.ulp_counts if row.difference is not None else ()
        if not counts or row.left is None or row.left.spec is None:
            continue
        name = (row.section, row.key if row.section == "optimizer" else None, row.left.spec.dtype)
        tensors, sums = found.get(name, (0, []))
        pairs = zip_longest(sums, counts, fillvalue=0)
        found[name] = tensors + 1, [one + other for one, other in pairs]
    return [
        {"section": section, "key": key, "dtype": dtype, "tensors": tensors, "counts": [*counts]}
        for (section, key, dtype), (tensors, counts) in found.items()
    ]


def difference_row(row: Row, label: str = "") -> dict[str, Json]:
    """One entry of `differences`: every key is always there, null where it does not apply.

    `label` is what the files call the row's optimizer, "" for nothing.
    """
    measured: Mapping[str, Any] = asdict(row.difference) if row.difference is not None else {}
    numbers: dict[str, Json] = {name: _plain(measured.get(name)) for name in NUMBERS}
    left, right = _values(row)
    apart = words_apart(left, right) if row.section == "rng" else None
    if apart is not None:
        numbers |= {"differing": apart.differing, "numel": apart.words}
        left, right = apart.left, apart.right
    left, right = _windows(_plain_value(left), _plain_value(right))
    return {
        "section": row.section,
        "parameter": row.parameter,
        "key": row.key,
        "kind": row.kind.value,
        "optimizer": row.optimizer,
        "label": label or None,
        **numbers,
        "group": row.group,
        "beyond": row.beyond,
        "other": row.other or None,
        "left": left,
        "right": right,
        **_spec("left", row.left),
        **_spec("right", row.right),
    }


def _plain(value: Any) -> Json:
    return list(value) if isinstance(value, tuple) else value


def _spec(side: str, entry: Entry | None) -> dict[str, Json]:
    spec = entry.spec if entry is not None else None
    shape: Json = [*spec.shape] if spec is not None else None
    return {f"{side}_dtype": spec.dtype if spec is not None else None, f"{side}_shape": shape}


def _values(row: Row) -> tuple[Json, Json]:
    """Both values; those of one-element tensors that were measured are read now."""
    left, right = (entry.value if entry is not None else None for entry in (row.left, row.right))
    return (
        _number(row.left) if left is None and row.difference is not None else left,
        _number(row.right) if right is None and row.difference is not None else right,
    )


def _number(entry: Entry | None) -> Json:
    return number_in(entry.ref) if entry is not None and entry.ref is not None else None


def _plain_value(value: Json) -> Json:
    """A text that stands for what JSON has not as schema 1 has it: "nan" whatever its bits, null for None."""
    return None if value == NONE else in_result(value) if isinstance(value, str) else value


def _windows(left: Json, right: Json) -> tuple[Json, Json]:
    """Of long texts the part around the first character that differs."""
    texts = [value for value in (left, right) if isinstance(value, str)]
    if not any(len(text) > MAX_TEXT for text in texts):
        return left, right
    apart = (place for place, (one, other) in enumerate(zip(*texts, strict=False)) if one != other)
    begin = max(0, next(apart, 0) - MAX_TEXT // 4) if len(texts) == 2 else 0
    return _window(left, begin), _window(right, begin)


def _window(value: Json, begin: int) -> Json:
    if not isinstance(value, str):
        return value
    shown = value[begin : begin + MAX_TEXT]
    return f"{'...' if begin else ''}{shown}{'...' if begin + MAX_TEXT < len(value) else ''}"
