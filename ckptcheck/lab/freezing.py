"""Whether a target's way of freezing keeps its contract over real steps, what breaks it, and which way would keep it.

Everything is shown by building the target again and training it with one thing changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

import torch

from ckptcheck.errors import TargetError
from ckptcheck.experiment.raised import one_line
from ckptcheck.experiment.run import Run
from ckptcheck.finding import Json
from ckptcheck.lab.contract import NONE, NONZERO, ZERO, Way
from ckptcheck.lab.watching import Seen, holders, last_grad, watched_steps
from ckptcheck.state.naming import resolve

PRESENT: Final = "present"
Named: TypeAlias = Sequence[tuple[str, torch.Tensor]]
Change: TypeAlias = Callable[[Run, Named], Callable[[], None] | None]
"""Changes a run that was just built, and returns what is to be done before each update, if anything."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Where a contract did not hold for the first time, and what was seen there."""

    step: int
    parameter: str
    seen: Seen


def tried(build: Callable[[], Run], freeze: Mapping[str, str], steps: int) -> list[Way]:
    """For each contract the present way, and the others where that breaks it.

    `build` makes the target anew. TargetError for a pattern that no parameter matches; what the target raises as it is
    passes through.
    """
    return [way for pattern, contract in freeze.items() for way in _Trial(build, pattern, contract, steps).ways()]


class _Trial:
    """One contract on the parameters that a pattern matches."""

    def __init__(self, build: Callable[[], Run], pattern: str, contract: str, steps: int) -> None:
        self._build, self._pattern, self._contract, self._steps = build, pattern, contract, steps

    def ways(self) -> Iterator[Way]:
        broken = self._first_broken(self._steps)
        if broken is None:
            yield self._way(PRESENT, keeps=True)
            return
        yield self._way(PRESENT, broken=broken, by=self._explained(broken))
        for name, change in WAYS.items():
            yield self._other(name, change)

    def _other(self, name: str, change: Change) -> Way:
        try:
            broken = self._first_broken(self._steps, change)
        except TargetError:
            raise
        except Exception as error:  # noqa: BLE001  the target's own step under a change that it was not written for
            return Way(name, self._pattern, self._contract, self._steps, None, reason=one_line(error))
        if broken is None:
            return self._way(name, keeps=True)
        return self._way(name, broken=broken, by=_in_words(broken.seen, self._contract))

    def _way(self, name: str, *, keeps: bool = False, broken: Broken | None = None, by: str = "") -> Way:
        if broken is None:
            return Way(name, self._pattern, self._contract, self._steps, keeps)
        evidence = _evidence(broken.seen)
        return Way(name, self._pattern, self._contract, self._steps, False, broken.step, broken.parameter, by, evidence)

    def _first_broken(self, steps: int, change: Change | None = None) -> Broken | None:
        """Train the target, changed or as it is, until the contract does not hold; None where it always does."""
        run = self._build()
        named = self._named(run)
        before_update = change(run, named) if change is not None else None
        for step, name, seen in watched_steps(run, named, steps, before_update):
            if seen.breaks(self._contract):
                return Broken(step, name, seen)
        return None

    def _named(self, run: Run) -> Named:
        names = resolve(run.model)
        parameters = names.parameters
        called = {name: (name, *names.aliases.get(name, ())) for name in parameters}
        matched = [(name, one) for name, one in parameters.items()
                   if any(fnmatchcase(own, self._pattern) for own in called[name])]  # fmt: skip
        if not matched:
            listed = ", ".join(parameters)[:200]
            raise TargetError(f"--freeze {self._pattern}={self._contract} matches no parameter; they are {listed}")
        return matched

    def _explained(self, broken: Broken) -> str:
        """What broke it, and which single change heals that step."""
        said = _in_words(broken.seen, self._contract)
        healing = [name for name, change in self._switches(broken.seen) if self._heals(broken, change)]
        return f"{said}; it holds {words_of(healing)}" if healing else said

    def _switches(self, seen: Seen) -> Iterator[tuple[str, Change]]:
        """Single changes that have anything to change, by what holds with them."""
        if seen.requires_grad:
            yield "with requires_grad=False", _without_requires_grad
        if last_grad(seen) != NONE:
            yield "with the gradient none", _gradient_none
        if last_grad(seen) == ZERO and seen.settings.get("weight_decay"):
            yield "without weight_decay", _without_decay
        if last_grad(seen) == ZERO and seen.settings.get("state") and self._contract != "hold":
            yield "without the state of earlier steps", _without_state

    def _heals(self, broken: Broken, change: Change) -> bool:
        try:
            after = self._first_broken(broken.step, change)
        except Exception:  # noqa: BLE001  a target that cannot train so is not healed
            return False
        return after is None


def words_of(names: Sequence[str]) -> str:
    """Alternatives in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _in_words(seen: Seen, contract: str) -> str:
    """What was seen at the step, in a sentence that says which switch stands wrong."""
    if contract == "removed":
        return "it is in a param group"
    if contract == "reset":
        return f"the optimizer keeps {', '.join(seen.kept)} for it"
    if contract == "no-grad":
        return "backward brings it a gradient: requires_grad is True" if seen.requires_grad else "a gradient reaches it"
    if elsewhere := _beside_update(seen):
        return elsewhere
    return _by_update(seen)


def _beside_update(seen: Seen) -> str:
    """What the step itself did, beside an update that found a parameter to move; "" where it did nothing."""
    if seen.replaced and seen.param_changed:
        return "another parameter with other values stands under its name after the step"
    if not seen.by_update and seen.param_changed:
        return "something else than an update of the optimizer changes it"
    if not seen.param_changed and not seen.state_by_update:
        return "something else than an update of the optimizer changes its state"
    if seen.thawed:
        return "the step itself sets requires_grad to True, and the update takes its gradient"
    return ""


def _by_update(seen: Seen) -> str:
    """Which gradient an update found and took."""
    grad = last_grad(seen)
    if grad == NONZERO and not seen.reached:
        return "its gradient is left from before, and the update takes it: requires_grad does not matter to an update"
    if grad == NONZERO:
        return "backward brings it a gradient, and the update takes it"
    moved = "it" if seen.param_changed else "its state"
    if grad == ZERO:
        return f"its gradient is zero and not none, and {_movers(seen)} moves {moved}"
    return f"its gradient is none, and the update moves {moved} nevertheless"


def _movers(seen: Seen) -> str:
    """What turns a zero gradient into a step."""
    decay = seen.settings.get("weight_decay")
    parts = [f"weight_decay {decay}"] * bool(decay)
    state = [str(one) for one in _keys(seen) if one != "step"]
    parts += [f"its {' and '.join(state)}"] if state else []
    return ", with ".join(parts) or "the update"


def _keys(seen: Seen) -> list[Json]:
    kept = seen.settings.get("state")
    return [*kept] if isinstance(kept, list) else []


def _evidence(seen: Seen) -> dict[str, Json]:
    grads: list[Json] = [*seen.grads]
    changed: list[Json] = [*seen.state_changed]
    return {
        "grads": grads, "reached": seen.reached, "requires_grad": seen.requires_grad, "in_group": seen.in_group,
        "param_changed": seen.param_changed, "by_update": seen.by_update, "state_changed": changed, **seen.settings,
    }  # fmt: skip


def _gradient_none(run: Run, named: Named) -> Callable[[], None]:
    del run

    def clear() -> None:
        for _, one in named:
            one.grad = None

    return clear


def _gradient_zero(run: Run, named: Named) -> Callable[[], None]:
    del run

    def fill() -> None:
        for _, one in named:
            one.grad = torch.zeros_like(one)

    return fill


def _without_requires_grad(run: Run, named: Named) -> None:
    del run
    for _, one in named:
        one.requires_grad_(False)
        one.grad = None


def _zeroed(run: Run, named: Named) -> Callable[[], None]:
    _without_requires_grad(run, named)
    return _gradient_zero(run, named)


def _without_decay(run: Run, named: Named) -> None:
    for one in holders(run, named):
        if one.optimizer is not None and one.group is not None:
            one.optimizer.param_groups[one.group]["weight_decay"] = 0.0


def _without_state(run: Run, named: Named) -> Callable[[], None]:
    def empty() -> None:
        for one in holders(run, named):
            if one.optimizer is not None:
                one.optimizer.state.pop(one.parameter, None)

    return empty


def _removed(run: Run, named: Named) -> None:
    for one in holders(run, named):
        if one.optimizer is None or one.group is None:
            continue
        members = one.optimizer.param_groups[one.group]
        members["params"] = [own for own in members["params"] if own is not one.parameter]
        one.optimizer.state.pop(one.parameter, None)


def _rate_zero(run: Run, named: Named) -> None:
    new: dict[tuple[int, int], tuple[Any, dict[str, Any]]] = {}
    for one in holders(run, named):
        if one.optimizer is None or one.group is None:
            continue
        members = one.optimizer.param_groups[one.group]
        settings = {key: value for key, value in members.items() if key not in ("params", "param_names")}
        _, group = new.setdefault((id(one.optimizer), one.group), (one.optimizer, {**settings, "params": []}))
        members["params"] = [own for own in members["params"] if own is not one.parameter]
        group["params"].append(one.parameter)
    for optimizer, group in new.values():
        rate = group["lr"] * 0 if "lr" in group else 0.0
        optimizer.add_param_group({**group, "lr": rate})


WAYS: Final[Mapping[str, Change]] = {
    "requires_grad=False, gradients none": _without_requires_grad,
    "out of the param groups, its state dropped": _removed,
    "learning rate 0": _rate_zero,
    "requires_grad=False, gradients zeroed": _zeroed,
}
"""Ways of freezing, from the plainest on."""
