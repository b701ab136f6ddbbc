"""A target's own optimizers, with its own groups and the state of real steps, probed on copies."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from ckptcheck.errors import TargetError
from ckptcheck.experiment.run import Run
from ckptcheck.experiment.worker import Teller
from ckptcheck.finding import Json
from ckptcheck.lab.bench import Bench, stepped
from ckptcheck.lab.contract import FOR, FOREACH, FUSED, NONE, NONZERO, ZERO, Row
from ckptcheck.lab.copies import copied
from ckptcheck.lab.job import ProbeJob
from ckptcheck.lab.subject import Subject, step_needs_closure
from ckptcheck.lab.variants import Variant
from ckptcheck.state.naming import resolve
from ckptcheck.trace.subjects import as_list

STEPS: Final = 5
"""Real steps before the copies are taken."""
MOST_FROZEN: Final = 4
"""Frozen parameters that are looked at, of one group."""
_CASES: Final = (("history", NONE), ("history", ZERO), ("history", NONZERO), ("lr-zero", NONE), ("lr-zero", ZERO))


def rows_of_target(run: Run, job: ProbeJob, teller: Teller) -> Iterator[Row]:
    """Make a few real steps, then probe one parameter of each group, and those that are frozen.

    A copy at a time holds the optimizer's parameters and state once more. TargetError where there is no optimizer.
    """
    optimizers = as_list(run.optimizer)
    if not optimizers:
        raise TargetError(f"the target {job.subjects[0]!r} has no optimizer to probe: Run.optimizer is None")
    for step in range(1, min(STEPS, job.last) + 1):
        teller.at("step", step)
        run.step(step)
    names = resolve(run.model)
    for place, optimizer in enumerate(optimizers):
        versions = _versions(optimizer)
        for group, members in enumerate(optimizer.param_groups):
            for parameter, cases in _chosen(members["params"], optimizer):
                named = names.name_of(parameter) or f"group {group}, a parameter that the model does not hold"
                subject = Subject(f"optimizer {place} ({type(optimizer).__name__})", type(optimizer))
                bench = Bench(subject, Variant(""), _implementation(members), str(parameter.device), parameter.dtype)
                for scenario, grad in cases:
                    yield _row(bench, optimizer, (group, parameter), (scenario, grad), named)
        if _versions(optimizer) != versions:
            raise AssertionError("a probe on copies has changed the training's own tensors")


def _chosen(
    parameters: list[torch.Tensor], optimizer: Any
) -> Iterator[tuple[torch.Tensor, tuple[tuple[str, str], ...]]]:
    """The first parameter of a group that trains, by its state if it has some, and some that are frozen."""
    training = [one for one in parameters if one.requires_grad]
    with_state = [one for one in training if optimizer.state.get(one)] if hasattr(optimizer, "state") else []
    for one in (with_state or training)[:1]:
        yield one, _CASES
    for one in [one for one in parameters if not one.requires_grad][:MOST_FROZEN]:
        yield one, (("frozen-none", NONE),)


def _row(bench: Bench, optimizer: Any, where: tuple[int, torch.Tensor], case: tuple[str, str], name: str) -> Row:
    """One case on a copy of its own."""
    group, parameter = where
    scenario, grad = case
    try:
        copy, parameters = copied(optimizer)
    except Exception as error:  # noqa: BLE001  whatever the user's objects say to being copied
        return bench.failed(scenario, error)
    own = parameters[id(parameter)]
    members = copy.param_groups[group]
    sparse = isinstance(optimizer, torch.optim.SparseAdam)
    beside = next((one for one in members["params"] if one is not own and one.requires_grad), None)
    if beside is not None:
        beside.grad = _given(beside, NONZERO, sparse)
    own.grad = _given(own, grad, sparse) if grad != NONE else None
    if scenario == "lr-zero":
        members["lr"] = members["lr"] * 0 if "lr" in members else 0.0

    def act() -> None:
        stepped(copy, own.device, closes=step_needs_closure(copy))

    facts: Mapping[str, Json] = {"group": group, "requires_grad": parameter.requires_grad}
    return bench.row(scenario, copy, own, act, history=STEPS, name=name, facts=facts)


def _given(parameter: torch.Tensor, grad: str, sparse: bool) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1)
    drawn = torch.randn(parameter.shape, generator=draw).to(parameter.device, parameter.dtype)
    dense = torch.zeros_like(drawn) if grad == ZERO else drawn
    return dense.to_sparse() if sparse else dense


def _implementation(members: Mapping[str, Any]) -> str:
    if members.get("fused"):
        return FUSED
    foreach = members.get("foreach")
    on_gpu = any(one.is_cuda for one in members["params"])
    return FOREACH if foreach or (foreach is None and "foreach" in members and on_gpu) else FOR


def _versions(optimizer: Any) -> list[int]:
    """The write counters of all parameters and state tensors: any change in place moves one."""
    own = [one for group in optimizer.param_groups for one in group["params"]]
    entries = (optimizer.state.get(one, {}) for one in own) if hasattr(optimizer, "state") else ()
    state = [value for entry in entries for value in entry.values() if isinstance(value, torch.Tensor)]
    return [one._version for one in (*own, *state)]
