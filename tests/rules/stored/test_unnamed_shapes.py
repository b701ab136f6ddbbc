"""CK304 where an optimizer has indices only: what shapes say of them, and where they say too little."""

from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Finding, NotJudged, Severity
from ckptcheck.optimizers.guessing import guess
from ckptcheck.rules.rule import judged
from ckptcheck.rules.stored.stored import WHY_NOT, Stored
from ckptcheck.rules.stored.unnamed_shapes import state_of_no_parameters_shape
from tests.check_cases.training import Mlp, decay_groups, train
from tests.conventions.made import raw_tree

BOTH = ("exp_avg", "exp_avg_sq")


def unnamed(model: nn.Module, groups: Any = None, kind: Any = torch.optim.AdamW, **options: Any) -> dict[str, Any]:
    optimizer = kind(groups if groups is not None else list(model.parameters()), **options)
    train(model, optimizer)
    return optimizer.state_dict()


def said(model: dict[str, Any], optimizer: dict[str, Any]) -> tuple[list[Finding], list[NotJudged]]:
    checkpoint = explain(raw_tree({"model": model, "optimizer": optimizer}))
    classes = tuple(guess(one) for one in checkpoint.state.optimizers)
    return judged([state_of_no_parameters_shape], Stored(checkpoint, classes=classes), WHY_NOT)


def reshaped(
    shapes: dict[int, tuple[int, ...]], keys: tuple[str, ...] = BOTH, groups: bool = False, **options: Any
) -> tuple[list[Finding], list[NotJudged]]:
    """An Mlp of eight parameters whose moments of these indices have these shapes."""
    model = Mlp()
    state = unnamed(model, decay_groups(model) if groups else None, **options)
    for index, shape in shapes.items():
        state["state"][index] |= {key: torch.ones(shape) for key in keys}
    return said(model.state_dict(), state)


def test_one_index_that_does_not_fit_its_place_is_named_by_it() -> None:
    ((found,), lacking) = reshaped({3: (5,)})
    assert (found.code, found.severity, lacking) == ("CK304", Severity.ERROR, [])
    assert (found.where.parameter, found.where.optimizer, found.where.key) == ("layers.1.bias", 0, "exp_avg")
    assert found.message == (
        "optimizer 0 has state of another shape for 1 parameter, where all others fit the model's order: index 3 "
        "stands at the place of layers.1.bias, which is [6], and its exp_avg is [5]"
    )
    assert found.evidence == {"shapes": {"layers.1.bias": {"parameter": [6], "exp_avg": [5], "exp_avg_sq": [5]}}}


def test_two_of_eight_are_a_warning_and_more_are_not_judged() -> None:
    ((found,), _) = reshaped({1: (5,), 3: (5,)})
    assert (found.severity, found.message.count("stands at the place")) == (Severity.WARNING, 2)
    findings, (lacking,) = reshaped({1: (5,), 3: (5,), 5: (5,)})
    assert findings == []
    assert lacking.reason == (
        "3 parameters without a name in optimizer 0 have state of a shape that no parameter of the model has: "
        "#1, #3, #5; exp_avg of #1 is [5]"
    )


def test_moments_of_unlike_shapes_are_those_of_no_parameter() -> None:
    ((found,), _) = reshaped({2: (5, 6)}, keys=("exp_avg",))
    assert (found.severity, found.where.parameter) == (Severity.ERROR, "#2")
    assert found.message == (
        "optimizer 0 (AdamW) keeps state of unlike shapes for one parameter: exp_avg is [5, 6] and exp_avg_sq is "
        "[6, 6] for #2"
    )


def test_with_several_groups_the_place_is_not_known() -> None:
    findings, (lacking,) = reshaped({3: (5,)}, groups=True)
    assert findings == []
    assert "1 parameter without a name in optimizer 0 has state of a shape" in lacking.reason


def test_a_place_is_told_only_where_another_parameter_of_its_module_fits() -> None:
    model = Mlp()
    model.scale = nn.Parameter(torch.ones(3))
    state = unnamed(model)
    last = len(list(model.parameters())) - 1
    place = [name for name, _ in model.named_parameters()].index("scale")
    assert place <= last
    state["state"][place] = {"step": torch.tensor(3.0), **{key: torch.ones(5) for key in BOTH}}
    findings, lacking = said(model.state_dict(), state)
    assert (findings, len(lacking)) == ([], 1)


@pytest.mark.parametrize("kind", [torch.optim.Adafactor, torch.optim.LBFGS, torch.optim.SGD, torch.optim.AdamW])
def test_state_as_it_is_made_is_silent(kind: Any) -> None:
    model = Mlp()
    assert said(model.state_dict(), unnamed(model, kind=kind)) == ([], [])


def test_an_unknown_class_is_silent() -> None:
    model = Mlp()
    state = unnamed(model)
    for kept in state["state"].values():
        kept["projector"] = torch.ones(5)
    state["state"][3]["exp_avg"] = torch.ones(5)
    assert said(model.state_dict(), state) == ([], [])
