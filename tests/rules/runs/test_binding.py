"""CK3: groups, order, membership, shapes, stale tensors, weights and ties."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.rules.faults import Fault
from tests.rules.trainings import WIDTH, Growing, Tied, Training, TwoModels, adam, decayed, factory
from tests.rules.trials import Trials


def optimizers(choose: Any, kind: type[torch.optim.Optimizer] = torch.optim.AdamW) -> Any:
    """An optimizer over parameters chosen by their names."""
    return {"make_optimizers": lambda self: [kind(choose(dict(self.model.named_parameters())), lr=0.01)]}


def reversed_order(named: dict[str, nn.Parameter]) -> list[nn.Parameter]:
    return list(named.values())[::-1]


def swapped(named: dict[str, nn.Parameter]) -> list[nn.Parameter]:
    order = list(named)
    order[0], order[2] = order[2], order[0]
    return [named[name] for name in order]


def by_name_of(*names: str) -> Any:
    return lambda named: [one for name, one in named.items() if name.startswith(names)]


def another_rule(named: dict[str, nn.Parameter], swap: tuple[str, str]) -> list[dict[str, Any]]:
    other = dict(zip(swap, swap[::-1], strict=True))
    groups = [[name for name, one in named.items() if (one.ndim > 1) == matrices] for matrices in (True, False)]
    moved = [[named[other.get(name, name)] for name in group] for group in groups]
    return [{"params": moved[0], "weight_decay": 0.1}, {"params": moved[1], "weight_decay": 0.0}]


def decay_by_other_rule(self: Training) -> list[torch.optim.Optimizer]:
    return [torch.optim.AdamW(another_rule(dict(self.model.named_parameters()), ("layers.0.weight", "layers.1.bias")))]


def decay_groups(self: Training) -> list[torch.optim.Optimizer]:
    return [decayed(self.model)]


def in_three(self: Training) -> list[torch.optim.Optimizer]:
    """Layers 0, layers 1, and the rest: groups of equal shapes."""
    layers = self.model.layers
    rest = [*layers[2].parameters(), *self.model.head.parameters()]
    first, second = self.order(list(layers[0].parameters()), list(layers[1].parameters()))
    groups = [{"params": first, "weight_decay": 0.2}, {"params": second, "weight_decay": 0.1}, {"params": rest}]
    return [torch.optim.AdamW(groups, lr=0.01)]


def lenient_load(self: Training, path: Path) -> None:
    """Cuts the optimizer's state to what the live optimizer has room for, as a forgiving loader does."""
    self.before_load()
    self.checkpoint = torch.load(path, weights_only=False)
    own = self.optimizers[0].state_dict()
    places = [place for group in own["param_groups"] for place in group["params"]]
    saved = self.checkpoint["optimizer0"]["state"]
    own["state"] = {place: saved[place] for place in places if place in saved}
    self.model.load_state_dict(self.checkpoint["model"])
    self.data.load_state_dict(self.checkpoint["data"])
    self.optimizers[0].load_state_dict(own)


def only_first_group(self: Training) -> list[torch.optim.Optimizer]:
    matrices = [one for one in self.model.parameters() if one.ndim > 1]
    return [torch.optim.AdamW(matrices, lr=0.01, weight_decay=0.1)]


def cut_moment(self: Training, checkpoint: dict[str, Any]) -> None:
    state = checkpoint["optimizer0"]["state"][0]
    state["exp_avg"] = state["exp_avg"][:4]


def assigned(self: Training) -> None:
    self.model.load_state_dict(self.checkpoint["model"], assign=True)


def new_head(self: Training) -> None:
    self.model.head = nn.Linear(WIDTH, 2)


def head_renamed(self: Training, checkpoint: dict[str, Any]) -> None:
    checkpoint["model"] = {name.replace("head", "top"): value for name, value in checkpoint["model"].items()}


def not_strict(self: Training, path: Path) -> None:
    self.checkpoint = torch.load(path, weights_only=False)
    self.model.load_state_dict(self.checkpoint["model"], strict=False)
    self.optimizers[0].load_state_dict(self.checkpoint["optimizer0"])
    self.data.load_state_dict(self.checkpoint["data"])
    self.after_load()


def tied(self: Training) -> nn.Module:
    return Tied()


def untied(self: Training) -> None:
    self.model.out.weight = nn.Parameter(self.model.out.weight.detach().clone())


def untied_model(self: Training) -> nn.Module:
    model = Tied()
    model.out.weight = nn.Parameter(model.embed.weight.detach().clone())
    return model


def tie(self: Training) -> None:
    self.model.out.weight = self.model.embed.weight


def move_head(self: Training) -> None:
    """The head of model b goes to the optimizer of model a."""
    head = list(self.model["b"].head.parameters())
    rest = [one for one in self.model["b"].parameters() if all(one is not other for other in head)]
    self.optimizers[0].add_param_group({"params": head})
    self.optimizers[1].param_groups[0]["params"] = rest


FAULTS = (
    Fault(
        "the rule that sorts into decay groups changed",
        "CK301",
        factory(make_optimizers=decay_groups),
        factory(make_optimizers=decay_by_other_rule),
        where={"optimizer": 0, "parameter": "layers.1.bias", "group": 0},
        names=("layers.1.bias (group 1 when saved, now 0)", "layers.0.weight (group 0 when saved, now 1)"),
        beside=("CK302",),
    ),
    Fault(
        "two groups of one shape change places",
        "CK302",
        factory(make_optimizers=in_three, order=lambda self, *groups: groups),
        factory(make_optimizers=in_three, order=lambda self, *groups: groups[::-1]),
        where={"optimizer": 0},
        numbers={"permutation": {
            "layers.1.weight": "layers.0.weight", "layers.1.bias": "layers.0.bias",
            "layers.0.weight": "layers.1.weight", "layers.0.bias": "layers.1.bias",
        }},
        beside=("CK306",),
    ),
    Fault(
        "the head is in the optimizer after the load and was not when saved",
        "CK301",
        factory(**optimizers(by_name_of("layers"))),
        factory(load=lenient_load),
        where={"optimizer": 0, "parameter": "head.bias"},
        numbers={"only_after_load": ["head.bias", "head.weight"]},
    ),
    Fault(
        "parameters go from one optimizer to the other",
        "CK301",
        factory(TwoModels),
        factory(TwoModels, after_load=move_head),
        where={"optimizer": 0, "parameter": "b.head.bias"},
    ),
    Fault(
        "a group that is added in the middle is added by the first process only",
        "CK301",
        factory(Growing, clock=lambda self, s: self.made),
        where={"step": 5, "stage": "hyperparameters", "key": "groups"},
        names=("only the uninterrupted run optimizes layers.0.weight",),
        numbers={"only_right": []},
        confidence="likely",
    ),
    Fault(
        "parameters are handed over in reverse",
        "CK302",
        factory(),
        factory(**optimizers(reversed_order)),
        names=("head.bias has the state of layers.0.weight",),
    ),
    Fault(
        "two parameters of one shape change places",
        "CK302",
        factory(),
        factory(**optimizers(swapped)),
        where={"optimizer": 0},
        numbers={
            "permutation": {"layers.1.weight": "layers.0.weight", "layers.0.weight": "layers.1.weight"},
            "only_when_saved": [],
            "only_after_load": [],
        },
    ),
    Fault(
        "another selection of the same length",
        "CK302",
        factory(**optimizers(by_name_of("layers.0", "layers.1"))),
        factory(**optimizers(by_name_of("layers.1", "layers.2"))),
        numbers={
            "only_when_saved": ["layers.0.bias", "layers.0.weight"],
            "only_after_load": ["layers.2.bias", "layers.2.weight"],
        },
    ),
    Fault(
        "another selection of the same length, without any state",
        "CK302",
        factory(**optimizers(by_name_of("layers.0"), kind=torch.optim.SGD)),
        factory(**optimizers(by_name_of("layers.1"), kind=torch.optim.SGD)),
        where={"optimizer": 0, "parameter": "layers.1.bias"},
        numbers={"permutation": {}, "only_when_saved": ["layers.0.bias", "layers.0.weight"]},
    ),
    Fault(
        "the last parameter is in no group",
        "CK303",
        factory(),
        factory(**optimizers(lambda named: list(named.values())[:-1]), load=lenient_load),
        where={"optimizer": 0, "parameter": "head.bias"},
        numbers={"parameters": ["head.bias"]},
    ),
    Fault(
        "the second group is not there",
        "CK303",
        factory(make_optimizers=decay_groups),
        factory(make_optimizers=only_first_group, load=lenient_load),
        names=("4 trainable parameters", "head.bias", "layers.0.bias", "layers.1.bias", "layers.2.bias"),
    ),
    Fault(
        "a moment is cut",
        "CK304",
        factory(spoil=cut_moment),
        where={"parameter": "layers.0.weight", "key": "exp_avg", "optimizer": 0},
        numbers={"saved": "float32[8, 8]", "loaded": "float32[4, 8]"},
    ),
    Fault(
        "weights are loaded with assign=True",
        "CK307",
        factory(after_load=assigned),
        where={"optimizer": 0, "parameter": "layers.0.weight", "group": 0},
        numbers={"slots": [[0, place] for place in range(8)]},
    ),
    Fault(
        "the head is replaced before the load",
        "CK307",
        factory(before_load=new_head),
        where={"parameter": "head.weight"},
        numbers={"parameters": ["head.weight", "head.bias"], "slots": [[0, 6], [0, 7]]},
    ),
    Fault(
        "the head is replaced after the load",
        "CK307",
        factory(after_load=new_head),
        numbers={"parameters": ["head.weight", "head.bias"]},
        beside=("CK601",),
    ),
    Fault(
        "the head has another name in the file, and the load is not strict",
        "CK309",
        factory(spoil=head_renamed, load=not_strict),
        where={"parameter": "head.weight"},
        numbers={"parameters": ["head.weight", "head.bias"], "not_loaded": 2, "of": 8},
    ),
    Fault(
        "the model is not loaded",
        "CK309",
        factory(lose=("model",)),
        numbers={"not_loaded": 8, "of": 8},
    ),
    Fault(
        "nothing is loaded",
        "CK309",
        factory(load=lambda self, path: None),
        beside=("CK201", "CK604"),
    ),
    Fault(
        "tied weights come back untied",
        "CK311",
        factory(make_model=tied, after_load=untied),
        where={"parameter": "embed.weight", "key": "out.weight"},
        numbers={"names": ["embed.weight", "out.weight"], "how": "untied"},
    ),
    Fault(
        "two weights come back as one",
        "CK307",
        factory(make_model=untied_model, after_load=tie),
        where={"parameter": "out.weight"},
        beside=("CK311",),
    ),
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_wrong_binding_is_told_by_name(trial: Trials, fault: Fault):
    fault.check(trial)


def test_a_parameter_that_another_optimizer_took_is_not_in_no_group(trial):
    found = trial(factory(TwoModels), factory(TwoModels, after_load=move_head))
    assert found.of("CK303") == []


def test_an_optimizer_that_the_load_lost_altogether_is_no_pass(trial):
    def drop(self: Training) -> None:
        del self.optimizers[1]

    found = trial(factory(TwoModels), factory(TwoModels, after_load=drop))
    assert (found.code, found.finding.where.step) == ("CK301", 4)
    assert len(found.finding.evidence["only_left"]) == 8


def test_groups_that_the_resumed_optimizer_lacks_make_the_load_raise(trial):
    found = trial(factory(make_optimizers=decay_groups), factory())
    assert found.code == "CK610"
    assert "different number of parameter groups" in found.finding.message
    assert "while loading the checkpoint" in found.finding.evidence["raised"]


def test_a_weight_that_the_file_changed_is_not_one_that_was_not_loaded(trial):
    def scale(self: Training) -> None:
        self.model.head.weight.data.mul_(2)

    found = trial(factory(spoil=head_renamed, load=not_strict, after_load=scale))
    assert found.codes == ["CK309", "CK601"]
    assert found.finding.evidence["parameters"] == ["head.bias"]


def test_a_new_optimizer_over_another_model_is_stale_as_a_whole(trial):
    def rebuilt(self: Training) -> None:
        self.optimizers[0] = adam(self.make_model())

    found = trial(factory(after_load=rebuilt))
    assert found.code == "CK307"
    assert len(found.finding.evidence["parameters"]) == 8
