"""Which state belongs to which parameter, and which tensor an optimizer steps."""

import copy
from typing import Any, Final

from torch import nn

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.making import LR
from tests.catalogue.slots import (
    Groups,
    groups_of,
    has_same_shape,
    keeps_state,
    live_state,
    rebuild,
    same_shape,
    slots,
)
from tests.catalogue.spec import Spec
from tests.catalogue.training import Checkpoint, Training

FAMILY: Final = "binding"


def _permuted(training: Training) -> Expected:
    return Expected(("CK302",), parameters=tuple(slots(training)), says=("permutation", "has the state of"))


def _of_pair(training: Training) -> Expected:
    return Expected(("CK302",), parameters=same_shape(training), says=("permutation", "has the state of"))


def _swapped(training: Training) -> None:
    def swap(checkpoint: Checkpoint) -> None:
        one, other = (slots(training).index(name) for name in same_shape(training))
        state = checkpoint["optimizer"]["state"]
        state[one], state[other] = state[other], state[one]

    training.before_save.append(swap)


def _shared(training: Training) -> None:
    def share() -> None:
        one, other = same_shape(training)
        live_state(training, other).update(live_state(training, one))

    training.after_restore.append(share)


def _shifted(training: Training) -> None:
    def shift(checkpoint: Checkpoint) -> None:
        state = checkpoint["optimizer"]["state"]
        last = len(slots(training)) - 1
        checkpoint["optimizer"]["state"] = {number + 1: one for number, one in state.items() if number < last}

    training.before_restore.append(shift)


def _packed(training: Training) -> None:
    def pack(checkpoint: Checkpoint) -> None:
        state = checkpoint["optimizer"]["state"]
        checkpoint["optimizer"]["state"] = dict(enumerate(state[number] for number in sorted(state)))

    training.before_save.append(pack)


def _reversed(training: Training) -> None:
    def build(checkpoint: Checkpoint) -> None:
        rebuild(training, [{**one, "params": one["params"][::-1]} for one in groups_of(training)])

    training.before_restore.append(build)


def _by_name(training: Training) -> None:
    """The run that saves sorts its parameters by name; the one that resumes takes them as the model has them."""

    def build(checkpoint: Checkpoint) -> None:
        rebuild(training)

    rebuild(training, [{**one, "params": sorted(one["params"])[::-1]} for one in groups_of(training)])
    training.before_restore.append(build)


def _of_a_set(training: Training) -> None:
    live = dict(training.model.named_parameters())
    rebuild(training, [{"params": [(name, live[name]) for name in {*live}]}])


def _halves(training: Training) -> Groups:
    pairs = list(training.model.named_parameters())
    half = len(pairs) // 2
    return [{"params": pairs[:half]}, {"params": pairs[half:], "lr": LR / 2}]


def _groups_in_another_order(training: Training) -> None:
    rebuild(training, _halves(training))
    training.before_restore.append(lambda saved: rebuild(training, _halves(training)[::-1]))


MOVED: Final = {"mlp": "norm.weight", "norm": "statistics.weight", "tied": "tokens.weight"}
"""The parameter that a new rule for weight decay puts elsewhere."""


def _regrouped(training: Training) -> None:
    """Another rule decides on decay, and a loader of one's own binds state by name."""
    moved = MOVED[training.spec.model]

    def restore(state: Any) -> None:
        names = slots(training)
        groups = groups_of(training)
        place = next(place for place, one in enumerate(groups) if moved in dict(one["params"]))
        pair = next(pair for pair in groups[place]["params"] if pair[0] == moved)
        groups[place]["params"].remove(pair)
        groups[1 - place]["params"].append(pair)
        rebuild(training, groups)
        now = slots(training)
        by_name = {now.index(names[number]): one for number, one in state["state"].items()}
        values = zip(training.optimizer.state_dict()["param_groups"], state["param_groups"], strict=True)
        kept = [{**saved, **{key: live[key] for key in ("params", "param_names")}} for live, saved in values]
        training.optimizer.load_state_dict({"state": by_name, "param_groups": kept})

    training.restore_optimizer = restore  # type: ignore[method-assign]


def _group_not_added_again(training: Training) -> None:
    """Later layers join at step 3; the resumed run is past it, and its loader takes the groups that it has."""
    first, later = groups_of(training)
    rebuild(training, [first])

    def join(s: int) -> None:
        if s == 3:
            training.optimizer.add_param_group(later)

    def fit(checkpoint: Checkpoint) -> None:
        optimizer = checkpoint["optimizer"]
        kept = optimizer["param_groups"][:1]
        state = {number: one for number, one in optimizer["state"].items() if number in kept[0]["params"]}
        checkpoint["optimizer"] = {"state": state, "param_groups": kept}

    training.before_step.append(join)
    training.before_restore.append(fit)


def _without_group(training: Training) -> Expected:
    later = [name_and_one for name_and_one in groups_of(training)[1]["params"] if name_and_one[1].requires_grad]
    return Expected(("CK303",), parameters=tuple(name for name, _ in later))


def _assigned(training: Training) -> None:
    training.restore_model = lambda state: training.model.load_state_dict(state, assign=True)  # type: ignore[method-assign]


def _layer_replaced(training: Training) -> None:
    def replace() -> None:
        old = training.model.get_submodule("middle")
        assert isinstance(old, nn.Linear)
        new = nn.Linear(old.in_features, old.out_features, bias=old.bias is not None)
        new.load_state_dict(old.state_dict())
        training.model.set_submodule("middle", new)

    training.after_restore.append(replace)


def _copied(training: Training) -> None:
    def deepcopy() -> None:
        training.model = copy.deepcopy(training.model)
        training.forward = training.model
        if training.declared is not None:
            training.declared.model = training.model

    training.after_restore.append(deepcopy)


def _stale(*names: str) -> Any:
    return lambda training: Expected(("CK307",), parameters=names or tuple(slots(training)))


def _frozen_for_a_while(training: Training) -> None:
    """The middle layer rests from step 3 to 7, with its state kept; the load filters by requires_grad."""
    middle = training.model.get_submodule("middle")

    def freeze(s: int) -> None:
        middle.requires_grad_(not 3 <= s < 8)
        if s == 3:
            middle.zero_grad()

    def restore(state: Any) -> None:
        middle.requires_grad_(False)
        live = dict(training.model.named_parameters())
        kept = {number: one for number, one in state["state"].items() if live[slots(training)[number]].requires_grad}
        training.optimizer.load_state_dict({**state, "state": kept})

    training.before_step.append(freeze)
    training.restore_optimizer = restore  # type: ignore[method-assign]


def _frozen_again(training: Training) -> None:
    """Setup freezes the middle layer, the loop thaws it at step 3, and the resumed run is past that step."""
    middle = training.model.get_submodule("middle")
    middle.requires_grad_(False)
    training.before_step.append(lambda s: middle.requires_grad_(True) if s == 3 else None)


def _even(spec: Spec) -> bool:
    """Whether the model has an even number of parameters, to be halved."""
    return spec.model != "tied"


MIDDLE: Final = ("middle.weight", "middle.bias")

FAULTS: Final = (
    Fault("state-of-two-parameters-swapped", "A converter mixes up two layers of one shape.", FAMILY,
          _swapped, _of_pair, reports=("order",), applies=lambda spec: keeps_state(spec) and has_same_shape(spec)),
    Fault("state-shared-by-two-parameters", "A loader caches state by shape and gives two layers the same.", FAMILY,
          _shared, _of_pair, reports=("alias",), applies=lambda spec: keeps_state(spec) and has_same_shape(spec)),
    Fault("state-shifted-by-one", "A loader counts parameters from 1.", FAMILY, _shifted, _permuted,
          applies=keeps_state),
    Fault("state-packed-without-gaps", "State is saved as a list, in which frozen parameters leave no gap.", FAMILY,
          _packed, _permuted, specs={"freeze": "grad"},
          # Adagrad makes state of frozen parameters too, so that there is no gap.
          applies=lambda spec: keeps_state(spec) and spec.optimizer != "Adagrad"),
    Fault("parameters-in-reverse", "The load builds the optimizer over the parameters in reverse.", FAMILY,
          _reversed, _permuted, reports=("order",), applies=keeps_state),
    Fault("parameters-sorted-by-name-in-one-run", "Parameters are sorted by name in the run that saves only.", FAMILY,
          _by_name, _permuted, reports=("order",), applies=keeps_state),
    Fault("parameters-from-a-set", "The optimizer is built from a set of names.", FAMILY,
          _of_a_set, _permuted, reports=("set_order",), applies=keeps_state, specs={"groups": 1}, fresh=True),
    Fault("groups-bound-by-position", "Groups of one size are built in another order, and bound by position.", FAMILY,
          _groups_in_another_order, _permuted, reports=("order",),
          applies=lambda spec: keeps_state(spec) and _even(spec)),
    Fault("another-rule-for-groups", "Another rule says what is decayed; state is bound by name.", FAMILY,
          _regrouped, lambda training: Expected(("CK301",), parameters=(MOVED[training.spec.model],)),
          applies=lambda spec: spec.groups == 2),
    Fault("group-not-added-again", "A group that joined during the run is missing in the resumed one.", FAMILY,
          _group_not_added_again, _without_group, applies=lambda spec: spec.groups == 2, specs={"schedule": "none"}),
    Fault("weights-assigned", "load_state_dict(assign=True) puts new tensors into the model.", FAMILY,
          _assigned, _stale(), reports=("stale_ref",)),
    Fault("layer-replaced", "A layer is built anew after the load, with the same weights.", FAMILY,
          _layer_replaced, _stale(*MIDDLE), reports=("stale_ref",)),
    Fault("model-copied", "The load deep-copies the model, and trains the copy.", FAMILY,
          _copied, _stale(), reports=("stale_ref",)),
    Fault("state-of-resting-layer-dropped", "The load drops the state of parameters that are frozen at that time.",
          FAMILY, _frozen_for_a_while, lambda training: Expected(("CK406",), parameters=MIDDLE),
          reports=("freeze_drop",), applies=keeps_state),
    Fault("frozen-again-by-setup", "Setup freezes a layer which the run had thawed before it was stopped.", FAMILY,
          _frozen_again, lambda training: Expected(("CK405",), parameters=MIDDLE), reports=("refreeze",)),
)  # fmt: skip
