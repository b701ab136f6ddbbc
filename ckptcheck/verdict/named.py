"""What a finding names beside its place: it stands at the first of several, and is about all of them."""

from collections.abc import Iterable, Iterator
from typing import Final

from ckptcheck.finding import Finding

PARAMETERS: Final = (
    "parameters", "names", "tensors", "buffers", "frozen", "thawed", "permutation", "carries_state_of",
    "only_when_saved", "only_after_load", "only_in_optimizer", "only_in_file", "left_only", "right_only",
)  # fmt: skip
"""Evidence that names parameters, or their state."""
OTHERS: Final = (
    "missing", "missing_keys", "generators", "modules", "hyperparameters", "runs_code", "unknown", "refused",
)  # fmt: skip
"""Evidence that names other things, which are the same in every run."""


def parameters_of(finding: Finding) -> tuple[str, ...]:
    """The further parameters that a finding is about, without the one at its place and what belongs to that."""
    own = finding.where.parameter
    return tuple(dict.fromkeys(
        one for one in _listed(finding, PARAMETERS)
        if one != own and (own is None or not one.startswith(f"{own}."))
    ))  # fmt: skip


def things_of(finding: Finding) -> tuple[str, ...]:
    """Everything further that a finding is about, sorted; numbers of steps are none."""
    others = (one for one in _listed(finding, OTHERS) if one != finding.where.key and not one.isdigit())
    return tuple(sorted({*parameters_of(finding), *others}))


def _listed(finding: Finding, keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        value = finding.evidence.get(key)
        if isinstance(value, list | dict):
            yield from (str(one) for one in value)
