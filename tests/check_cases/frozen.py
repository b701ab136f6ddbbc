"""Cases of frozen: what is under a freeze contract, from one checkpoint to the next."""

import torch
from torch import nn

from tests.check_cases.case import Faulty, Legal
from tests.check_cases.two import Backbone, freeze, frozen, head_steps, two

HOLD = {"freeze": {"backbone.*": "hold"}}
W = "backbone.0.weight"


def _contract(contract: str) -> dict[str, dict[str, str]]:
    return {"freeze": {"backbone.*": contract}}


def _dropped(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A helper that keeps the state of what is trained only."""
    frozen()(model, optimizer)
    for one in model.backbone.parameters():
        optimizer.state.pop(one)


def _decayed_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """An optimizer that decays what has no gradient."""
    freeze(model)
    model.backbone.eval()

    def decay() -> None:
        with torch.no_grad():
            for one in model.backbone.parameters():
                one.mul_(1 - 1e-2 * 0.1)

    head_steps(model, optimizer, after=decay)


def _thawed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A later loop sets requires_grad on again before the next steps."""
    freeze(model)
    model.requires_grad_(True)
    head_steps(model, optimizer)


def _removed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    frozen()(model, optimizer)
    group = optimizer.param_groups[0]
    keep = [index for index, name in enumerate(group["param_names"]) if not name.startswith("backbone")]
    for one in model.backbone.parameters():
        optimizer.state.pop(one)
    for key in ("params", "param_names"):
        group[key] = [group[key][index] for index in keep]


SGD = {"model": Backbone, "optimizer": torch.optim.SGD}
FAULTY: tuple[Faulty, ...] = (
    Faulty("a held parameter moved by zero gradients", two(model=Backbone, between=frozen("zero")), "CK401", W,
           options=HOLD, mechanism="zero_grad_drift"),
    Faulty("a held parameter moved by zero gradients under momentum", two(**SGD, momentum=0.9, between=frozen("zero")),
           "CK401", W, options=HOLD, mechanism="zero_grad_drift"),
    Faulty("a held parameter decayed without a gradient",
           two(**SGD, momentum=0.9, weight_decay=0.1, between=_decayed_by_hand), "CK401", W, options=HOLD,
           mechanism="wd_drift"),
    Faulty("a held parameter was thawed again", two(model=Backbone, between=_thawed), "CK401", W, options=HOLD,
           mechanism="freeze_undone"),
    Faulty("a parameter that must not be updated moved", two(model=Backbone, between=frozen("zero")), "CK401", W,
           options=_contract("no-update")),
    Faulty("the moments of a held parameter moved", two(model=Backbone, between=frozen("zero")), "CK402", W,
           options=HOLD, mechanism="zero_grad_drift"),
    Faulty("the state of a parameter was kept under reset", two(model=Backbone, between=frozen()), "CK402", W,
           options=_contract("reset")),
    Faulty("updates read a gradient of a parameter under no-grad", two(model=Backbone, between=frozen("zero")),
           "CK403", W, options=_contract("no-grad")),
    Faulty("a parameter under removed is still in a group", two(model=Backbone, between=frozen()), "CK403", W,
           options=_contract("removed")),
    Faulty("the running statistics of a held norm moved", two(model=Backbone, between=frozen(evaluated=False)),
           "CK404", "backbone.1.running_mean", severity="warning", options=HOLD, mechanism="bn_drift"),
    Faulty("a parameter that was trained before got no update any more", two(model=Backbone, between=frozen()),
           "CK405", W, severity="warning", mechanism="refreeze"),
    Faulty("the state of held parameters was dropped", two(model=Backbone, between=_dropped), "CK406", W,
           options=HOLD, mechanism="freeze_drop"),
    Faulty("the state of parameters that rested was dropped", two(model=Backbone, between=_dropped), "CK406", W,
           mechanism="freeze_drop"),
)  # fmt: skip
LEGAL: tuple[Legal, ...] = (
    Legal("a held backbone that rested", two(model=Backbone, between=frozen()), options=HOLD,
          silent=("CK401", "CK402", "CK403", "CK404", "CK405", "CK406")),
    Legal("a backbone under no-update that rested", two(model=Backbone, between=frozen()),
          options=_contract("no-update"), silent=("CK401", "CK404")),
    Legal("a backbone under no-grad without gradients", two(model=Backbone, between=frozen()),
          options=_contract("no-grad"), silent=("CK403",)),
    Legal("a backbone under reset whose state was cleared", two(model=Backbone, between=_dropped),
          options=_contract("reset"), silent=("CK402", "CK406", "CK202")),
    Legal("a backbone under removed that is in no group", two(model=Backbone, between=_removed),
          options=_contract("removed"), silent=("CK303", "CK403", "CK405", "CK406")),
    Legal("a head under no contract that moved", two(model=Backbone, between=frozen()),
          options={"freeze": {"backbone.*": "hold", "backbone.1.*": "hold"}}, silent=("CK401", "CK402")),
)  # fmt: skip
