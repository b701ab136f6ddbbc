"""Who is where in an optimizer: names, slots and state, for faults that go astray between them."""

from collections.abc import Callable
from typing import Any, Final

from torch import Tensor

from tests.catalogue.making import make_groups, make_optimizer, make_schedule
from tests.catalogue.spec import Spec
from tests.catalogue.training import Training

Groups = list[dict[str, Any]]

MOMENTUM_ONLY: Final = frozenset({"SGD", "SGD-momentum", "SGD-nesterov"})
"""Optimizers that keep a momentum buffer at most, and count nothing."""


def keeps_state(spec: Spec) -> bool:
    """Whether the optimizer keeps any state that an update reads."""
    return spec.optimizer != "SGD"


def counts(spec: Spec) -> bool:
    """Whether the optimizer counts its updates."""
    return spec.optimizer not in MOMENTUM_ONLY


def name_of(training: Training, parameter: Tensor) -> str:
    """A parameter's name."""
    return next(name for name, one in training.model.named_parameters() if one is parameter)


def slots(training: Training) -> list[str]:
    """The names of the optimizer's parameters, in the order of their numbers in a state_dict."""
    return [name_of(training, one) for group in training.optimizer.param_groups for one in group["params"]]


def with_state(training: Training) -> tuple[str, ...]:
    """The names of the parameters that have state, in the order of their numbers."""
    live = dict(training.model.named_parameters())
    return tuple(name for name in slots(training) if training.optimizer.state.get(live[name]))


def live_state(training: Training, name: str) -> dict[str, Any]:
    """The optimizer's live state of a parameter."""
    state: dict[str, Any] = training.optimizer.state[dict(training.model.named_parameters())[name]]
    return state


def counter(training: Training, name: str) -> float:
    """How many updates the optimizer has counted for a parameter."""
    return float(live_state(training, name)["step"])


def tensors(state: dict[Any, dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Every tensor of more than one element in the state of a state_dict: its parameter's entries, and its key."""
    return [(entries, key) for entries in state.values() for key, one in entries.items()
            if isinstance(one, Tensor) and one.numel() > 1]  # fmt: skip


def change_tensors(change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Any]], None]:
    """For `before_save` and `before_restore`: put every state tensor through a function."""

    def changed(checkpoint: dict[str, Any]) -> None:
        optimizer = checkpoint["optimizer"]
        state = {number: dict(entries) for number, entries in optimizer["state"].items()}
        for entries, key in tensors(state):
            entries[key] = change(entries[key])
        checkpoint["optimizer"] = {**optimizer, "state": state}

    return changed


def same_shape(training: Training) -> tuple[str, str]:
    """Two parameters of one shape in one group."""
    for group in training.optimizer.param_groups:
        trained = [one for one in group["params"] if one.requires_grad]
        for place, one in enumerate(trained):
            for other in trained[place + 1 :]:
                if one.shape == other.shape:
                    return name_of(training, one), name_of(training, other)
    raise ValueError("no two parameters have one shape")


def has_same_shape(spec: Spec) -> bool:
    """Whether two parameters of the model have one shape."""
    return spec.model != "tied"


def rebuild(training: Training, groups: Groups | None = None) -> None:
    """Another optimizer and schedule over the model, handed over."""
    training.optimizer = make_optimizer(training.spec, training.model, groups)
    training.schedule = make_schedule(training.spec, training.optimizer)
    if training.declared is not None:
        training.declared.optimizer, training.declared.scheduler = training.optimizer, training.schedule


def groups_of(training: Training) -> Groups:
    """The groups that the factory makes, to be arranged anew."""
    return make_groups(training.spec, training.model)
