"""Forward passes that only one run makes: its inputs are there on one side, and are no other data."""

from collections.abc import Iterable, Sequence

from ckptcheck.comparison.traces import Difference
from ckptcheck.rules.runs.case import Case


def calls_apart(case: Case) -> bool:
    """Whether inputs differ first, and only because one run calls the model more often in that step."""
    first = case.first
    if first is None or first.stage != "inputs" or case.trajectory is None:
        return False
    apart = case.trajectory.at_first_stage()
    return all(_only_calls(case, first.step, leaves) for leaves in _by_leaf(apart).values())


def updates_apart(case: Case) -> list[Difference]:
    """The numbers of updates that differ in the step of the first difference, an optimizer each."""
    first = case.first
    if first is None or case.trajectory is None:
        return []
    return [one for one in case.trajectory.differences if one.step == first.step and one.item.kind == "updates"]


def _by_leaf(apart: Iterable[Difference]) -> dict[tuple[str, str], list[Difference]]:
    """What enters a module at one place, call by call."""
    found: dict[tuple[str, str], list[Difference]] = {}
    for one in sorted(apart, key=lambda one: one.item.part):
        found.setdefault((one.item.name, one.item.key), []).append(one)
    return found


def _only_calls(case: Case, step: int, leaves: Sequence[Difference]) -> bool:
    """Whether one side's contents are those of the other, in order, but for calls that it does not make."""
    alone = [one for one in leaves if one.left is None or one.right is None]
    if not alone or any(_is_called(case, step, one) for one in alone):
        return False
    lefts = [one.left.digest for one in leaves if one.left is not None]
    rights = [one.right.digest for one in leaves if one.right is not None]
    fewer, more = sorted((lefts, rights), key=len)
    rest = iter(more)
    return all(one in rest for one in fewer)


def _is_called(case: Case, step: int, one: Difference) -> bool:
    """Whether the side that lacks this input has another one of the same call, as the left side knows it."""
    if case.origins is None or case.trajectory is None:
        return False
    absent = {other.item for other in case.trajectory.at_first_stage() if other.right is None}
    return any(
        item.name == one.item.name and item.part == one.item.part and (one.left is None or item not in absent)
        for item in case.origins.inputs_of(step)
    )
