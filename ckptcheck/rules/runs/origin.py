"""Where what the resumed run does comes from in the uninterrupted one: which batch, which rate, which step."""

from ckptcheck.comparison.states import EntryDifference
from ckptcheck.comparison.traces import Difference
from ckptcheck.rules.runs.case import Case
from ckptcheck.trace.items import Item


def repeated_step(case: Case) -> int | None:
    """The step of the uninterrupted run whose inputs the first differing resumed step saw; None where none did."""
    step = step_of_other_inputs(case)
    if case.trajectory is None or case.origins is None or step is None:
        return None
    differing = [one for one in case.trajectory.differences if one.item.kind == "inputs"]
    seen: list[tuple[Item, bytes]] = [
        (one.item, one.right.digest)
        for one in differing
        if one.step == step and one.right is not None and one.right.digest is not None
    ]
    return case.origins.common_step(seen) if seen else None


def step_of_other_inputs(case: Case) -> int | None:
    """The first resumed step whose inputs differ; None where none do."""
    differences = case.trajectory.differences if case.trajectory is not None else ()
    return next((one.step for one in differences if one.item.kind == "inputs"), None)


def shifted_rate(case: Case, first: Difference) -> int | None:
    """By how many steps the resumed run's rate is off, where its rate occurs in the uninterrupted run; else None."""
    value = first.right.value if first.right is not None else None
    if case.origins is None or not isinstance(value, int | float):
        return None
    step = case.origins.step_with_value(first.item, value)
    return step - first.step if step is not None else None


def rate_by_hand(case: Case) -> Difference | None:
    """The first rate that differs, where a script sets its rates itself and this one is that of another step.

    There is then no schedule to load: what was lost is the step number that the rate is computed from.
    """
    if not case.commands or case.load is None or case.trajectory is None or case.other_step is not None:
        return None
    if any(side.sections.get("schedule") for side in (case.load.left, case.load.right)):
        return None
    first = next((one for one in case.trajectory.differences if one.item.kind == "hyper"), None)
    rate = first is not None and first.item.key == "lr" and first.step == case.step + 1
    return first if first is not None and rate and shifted_rate(case, first) is not None else None


def drawn_otherwise_within(case: Case, first: Difference) -> list[str]:
    """Generators that are equal when the step of the first difference begins, and no longer when the next one does."""
    later = case.trajectory.differences if case.trajectory is not None else ()
    return [one.item.name for one in later if one.item.kind == "rng" and one.step == first.step + 1]


def of_other_step(case: Case, one: EntryDifference) -> bool:
    """Whether an entry belongs to the other step whose parameters and state were loaded: the file of that step."""
    if case.other_step is None or case.origins is None or one.right is None or one.right.digest is None:
        return False
    # Generators and hyperparameters are sampled before the update of the step that follows.
    step = case.other_step + (one.section in ("rng", "hyper"))
    place = [-1 if number is None else number for number in (one.optimizer, one.group)]
    return step in case.origins.steps_of(Item(one.section, one.name, one.key, *place), one.right.digest.value)


def where_it_stands(case: Case, name: str) -> int | None:
    """The first step of the uninterrupted run that began with a generator as it is after the load; else None."""
    if case.origins is None:
        return None
    loaded = next((one.right for one in case.loaded("rng") if one.name == name), None)
    if loaded is None or loaded.digest is None:
        return None
    return min(case.origins.steps_of(Item("rng", name), loaded.digest.value), default=None)


def where_step_left_it(case: Case, step: int, name: str) -> int | None:
    """The step of the uninterrupted run that left a generator as the resumed run's step leaves it; else None."""
    differences = case.trajectory.differences if case.trajectory is not None else ()
    item = Item("rng", name)
    after = next((one.right for one in differences if one.item == item and one.step == step + 1), None)
    if case.origins is None or after is None or after.digest is None:
        return None
    began = min(case.origins.steps_of(item, after.digest), default=None)
    return began - 1 if began is not None else None


def left_alone(case: Case) -> tuple[str, ...]:
    """The generators that are drawn from, and that the load left where the run had begun with them."""
    if case.built is None or case.trajectory is None:
        return ()
    return tuple(
        one.name
        for one in case.loaded("rng")
        if one.name in case.trajectory.drawn
        and (before := case.built.rng.get(one.name)) and one.right and before.digest == one.right.digest
    )  # fmt: skip


def other_parameters(case: Case) -> tuple[list[str], list[str]]:
    """The parameters that only the run which was saved has, and those that only the resumed one has: another model.

    A name that is tied to another one on the other side is there.
    """
    if case.load is None:
        return [], []
    left, right = case.load.left.parameters, case.load.right.parameters
    known = [{*side, *(alias for one in side.values() for alias in one.aliases)} for side in (left, right)]
    return [name for name in left if name not in known[1]], [name for name in right if name not in known[0]]
