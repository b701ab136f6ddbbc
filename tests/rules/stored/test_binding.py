"""CK3 over one checkpoint: what names, shapes, groups and ties of one file say, and what they must not."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.comparison.survey import Content, Survey
from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Finding, NotJudged, Severity
from ckptcheck.optimizers.guessing import guess
from ckptcheck.rules.rule import judged
from ckptcheck.rules.stored.binding import RULES
from ckptcheck.rules.stored.stored import WHY_NOT, Purpose, Stored
from ckptcheck.state.raw import RawTree
from ckptcheck.trace.items import Item
from tests.check_cases.training import ConvNet, Mlp, decay_groups, train
from tests.conventions.made import folder, live_state, raw_tree

FULL = Survey()


def said(
    tree: RawTree, purpose: Purpose = Purpose.RESUME, survey: Survey | None = FULL, live: Any = None
) -> tuple[list[Finding], list[NotJudged]]:
    checkpoint = explain(tree, live=live)
    classes = tuple(guess(one) for one in checkpoint.state.optimizers)
    return judged(RULES, Stored(checkpoint, purpose, classes=classes, survey=survey), WHY_NOT)


def codes(tree: RawTree, **options: Any) -> list[str]:
    return [one.code for one in said(tree, **options)[0]]


def of(code: str, tree: RawTree, **options: Any) -> Finding:
    found = [one for one in said(tree, **options)[0] if one.code == code]
    assert len(found) == 1, found
    return found[0]


def trained(model: nn.Module, kind: Any = torch.optim.AdamW, *, named: bool = True) -> Any:
    optimizer = kind(list(model.named_parameters()) if named else list(model.parameters()))
    train(model, optimizer)
    return optimizer


def file(model: nn.Module, optimizer: Any, **more: Any) -> RawTree:
    return raw_tree({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **more})


def reshaped(shapes: Mapping[str, tuple[int, ...]], kind: Any = torch.optim.AdamW, **group: Any) -> RawTree:
    """A named optimizer of an Mlp whose moments of these parameters have these shapes."""
    model = Mlp()
    state = trained(model, kind).state_dict()
    names = state["param_groups"][0]["param_names"]
    for name, shape in shapes.items():
        kept = state["state"][names.index(name)]
        kept.update({key: torch.zeros(shape) for key in kept if key != "step"})
    state["param_groups"][0] |= group
    return raw_tree({"model": model.state_dict(), "optimizer": state})


def test_a_checkpoint_whose_optimizer_keeps_names_is_silent() -> None:
    for model in (Mlp(), ConvNet()):
        for kind in (torch.optim.AdamW, torch.optim.Adafactor, torch.optim.LBFGS, torch.optim.SGD, torch.optim.ASGD):
            assert said(file(model, trained(model, kind))) == ([], [])


def test_indices_alone_are_said_to_be_inferred_and_how_many_could_be_exchanged() -> None:
    model = Mlp()
    found = of("CK308", file(model, trained(model, named=False)))
    assert found.severity is Severity.INFO
    assert found.where.optimizer == 0
    assert found.evidence["source"] == "model-order"
    assert found.evidence["exchangeable"] == 6  # both layers' weights, both biases, the norm's weight and bias
    assert [len(one) for one in found.evidence["classes"]] == [2, 4]  # type: ignore[arg-type, union-attr]
    assert "named_parameters()" in found.fix


def test_indices_that_two_grouping_rules_name_in_unlike_ways_are_told_with_both() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.RMSNorm(4))
    weight, bias, gain = model.parameters()
    optimizer = torch.optim.AdamW([{"params": [bias]}, {"params": [weight, gain]}])
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    found = of("CK308", file(model, optimizer))
    assert found.evidence["source"] == "none"
    assert found.evidence["candidates"] == ["biases first (many scripts)", "norms first (detectron2)"]
    assert "are not known" in found.message


def test_a_target_is_named_as_the_source() -> None:
    model = Mlp()
    optimizer = torch.optim.AdamW(decay_groups(model))
    train(model, optimizer)
    tree = folder({"model.safetensors": model.state_dict(), "optimizer.pt": optimizer.state_dict(),
                   "trainer_state.json": {}})  # fmt: skip
    assert of("CK308", tree).evidence["source"] == "none"
    found = of("CK308", tree, live=live_state(model, optimizer))
    assert found.evidence["source"] == "target"
    assert "are inferred from the target: " in found.message


def test_each_optimizer_has_a_finding_of_its_own() -> None:
    first, second = Mlp(), Mlp()
    root = {
        "model": first.state_dict(),
        "optimizers": [trained(one, named=False).state_dict() for one in (first, second)],
    }
    assert [one.where.optimizer for one in said(raw_tree(root))[0]] == [0, 1]


def test_an_optimizer_under_names_of_no_model_is_not_aligned() -> None:
    model = Mlp()
    optimizer = torch.optim.AdamW([(f"net.{name}", one) for name, one in model.named_parameters()])
    train(model, optimizer)
    found = of("CK308", file(model, optimizer))
    assert found.message.startswith(
        "none of the 8 names of optimizer 0 is one of the model's: it has net.layers.0.weight"
    )
    assert codes(file(model, optimizer, critic=ConvNet().state_dict())) == []  # it may train the other model
    assert codes(raw_tree(optimizer.state_dict())) == []


def test_a_name_that_two_groups_list_is_told_with_both() -> None:
    model = Mlp()
    state = trained(model).state_dict()
    (group,) = state["param_groups"]
    state["param_groups"].append({**group, "params": [0, 7], "param_names": ["layers.0.weight", "head.bias"]})
    found = of("CK305", raw_tree({"model": model.state_dict(), "optimizer": state}))
    assert found.evidence["groups"] == {"layers.0.weight": [0, 1], "head.bias": [0, 1]}
    assert (found.severity, found.where.parameter, found.where.group) == (Severity.ERROR, "layers.0.weight", 1)


def test_an_index_that_no_name_is_known_of_is_told_by_its_number() -> None:
    model = Mlp()
    state = trained(model, named=False).state_dict()
    state["param_groups"][0]["params"] = [0, 1, 1, 1]
    found = of("CK305", raw_tree(state))
    assert found.message.endswith("#1 (3 times in group 0)")


SHAPES: dict[str, tuple[dict[str, tuple[int, ...]], str]] = {
    "a matrix of another width": ({"head.weight": (3, 9)}, "CK304"),
    "a vector of another length": ({"norm.bias": (7,)}, "CK304"),
    "transposed": ({"head.weight": (6, 3)}, "CK304"),
    "a matrix has a vector's": ({"head.weight": (3,)}, "CK304"),
    "exchanged with another": ({"head.weight": (3,), "head.bias": (3, 6)}, "CK302"),
    "exchanged all around": ({"head.weight": (6,), "norm.weight": (3,), "head.bias": (3, 6)}, "CK302"),
}


@pytest.mark.parametrize("label", SHAPES)
def test_state_under_a_name_whose_shape_it_has_not_is_told(label: str) -> None:
    shapes, code = SHAPES[label]
    tree = reshaped(shapes)
    assert codes(tree) == [code]
    found = of(code, tree)
    assert found.severity is Severity.ERROR
    assert all(name in found.message for name in shapes)
    if code == "CK302":
        assert set(found.evidence["permutation"]) == set(shapes)  # type: ignore[arg-type]


def test_the_shapes_of_both_sides_are_evidence() -> None:
    found = of("CK304", reshaped({"head.weight": (3, 9)}))
    assert found.message.endswith("exp_avg of head.weight is [3, 9], and head.weight is [3, 6]")
    assert found.evidence["shapes"]["head.weight"]["parameter"] == [3, 6]  # type: ignore[index, call-overload]
    assert (found.where.parameter, found.where.key) == ("head.weight", "exp_avg")


MATRICES = ("layers.0.weight", "layers.1.weight", "head.weight")
SILENT: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any], int]] = {
    "no parameter has the shape, and the class is not sure": ({"head.weight": (3, 9)}, {"rank": 4}, 1),
    "most state is of another shape": (dict.fromkeys((*MATRICES, "norm.weight", "norm.bias"), (9, 9)), {}, 1),
    "a rank holds nothing of one": ({"head.weight": (0,)}, {}, 0),
    "every matrix is flat": (dict.fromkeys(MATRICES, (9,)), {}, 0),
}


@pytest.mark.parametrize("label", SILENT)
def test_state_of_another_shape_that_sharding_or_another_class_may_explain_is_not_judged(label: str) -> None:
    shapes, group, unjudged = SILENT[label]
    findings, not_judged = said(reshaped(shapes, **group))
    assert findings == []
    assert [one.code for one in not_judged] == ["CK304"] * unjudged


def test_state_with_the_shape_of_another_parameter_is_told_whatever_the_class() -> None:
    assert codes(reshaped({"head.weight": (6, 6)}, rank=4)) == ["CK304"]


def test_state_of_an_unknown_class_is_silent() -> None:
    model = Mlp()
    state = trained(model).state_dict()
    for kept in state["state"].values():
        kept["projector"] = kept.pop("exp_avg")
        kept["exp_avg_sq"] = torch.zeros(2)
    assert said(raw_tree({"model": model.state_dict(), "optimizer": state})) == ([], [])


def pickled(*held: str, named: bool = True) -> RawTree:
    """An Mlp's parameters themselves, which a file calls trainable, and an optimizer of some of them."""
    model = Mlp()
    own = [(name, model.get_parameter(name)) for name in held]
    optimizer = torch.optim.AdamW(own if named else [one for _, one in own])
    train(model, optimizer)
    return raw_tree({"model": dict(model.named_parameters()), "optimizer": optimizer.state_dict()})


NAMES = tuple(name for name, _ in Mlp().named_parameters())


def test_a_trainable_parameter_beside_one_that_is_stepped_is_told() -> None:
    found = of("CK303", pickled(*(name for name in NAMES if name not in ("head.bias", "layers.1.weight"))))
    assert found.evidence["parameters"] == ["layers.1.weight", "head.bias"]
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize(("held", "unjudged"), [(NAMES, 0), (NAMES[:4], 1)])
def test_whole_modules_that_are_in_no_group_may_be_meant_so(held: tuple[str, ...], unjudged: int) -> None:
    findings, not_judged = said(pickled(*held))
    assert findings == []
    assert [one.code for one in not_judged] == ["CK303"] * unjudged


def test_where_names_are_not_certain_nobody_is_said_to_be_left_out() -> None:
    findings, not_judged = said(pickled(*NAMES[:-1], named=False))
    assert [one.code for one in findings] == ["CK308"]
    assert [one.code for one in not_judged] == ["CK303"]


def test_a_state_dict_does_not_say_what_is_trainable_and_nobody_is_missed() -> None:
    model = Mlp()
    optimizer = torch.optim.AdamW([("head.weight", model.head.weight)])
    train(model, optimizer)
    assert said(file(model, optimizer)) == ([], [])


def keyed(prefix: str, model_prefix: str = "") -> RawTree:
    """State and groups that go by name, under a prefix of their own."""
    model = Mlp()
    state = trained(model).state_dict()
    (group,) = state["param_groups"]
    names = [f"{prefix}{name}" for name in group.pop("param_names")]
    group["params"], state["state"] = names, dict(zip(names, state["state"].values(), strict=True))
    weights = {f"{model_prefix}{name}": one for name, one in model.state_dict().items()}
    return raw_tree({"model": weights, "optimizer": state})


@pytest.mark.parametrize(
    ("tree", "prefix", "longer"), [(keyed("net."), "net.", "optimizer"), (keyed("", "net."), "net.", "model"),
                                   (keyed("a.b."), "a.b.", "optimizer")]
)  # fmt: skip
def test_a_prefix_that_parts_an_optimizer_by_name_from_its_model_is_told(
    tree: RawTree, prefix: str, longer: str
) -> None:
    found = of("CK310", tree)
    assert (found.severity, found.evidence["prefix"], found.evidence["longer"]) == (Severity.WARNING, prefix, longer)
    has, lack = ("has", "lack") if longer == "optimizer" else ("lacks", "have")
    assert f"{has} the prefix {prefix!r} that the model's names {lack}" in found.message
    assert codes(tree) == ["CK310"]


@pytest.mark.parametrize("tree", [keyed(""), keyed("module."), keyed("", "module."), keyed("_orig_mod.", "module.")])
def test_a_wrappers_prefix_on_either_side_is_legal_in_a_checkpoint_to_resume_from(tree: RawTree) -> None:
    assert said(tree) == ([], [])


def test_names_that_no_prefix_makes_equal_are_strangers() -> None:
    tree = keyed("net.")
    tree.root["model"] = {f"other.{name}": one for name, one in tree.root["model"].items()}
    assert codes(tree) == ["CK308"]


@pytest.mark.parametrize(("purpose", "expected"), [(Purpose.RELEASE, ["CK310"]), (Purpose.RESUME, [])])
def test_a_wrappers_prefix_is_told_of_a_release(purpose: Purpose, expected: list[str]) -> None:
    tree = raw_tree({f"_orig_mod.{name}": one for name, one in Mlp().state_dict().items()})
    found = said(tree, purpose)[0]
    assert [one.code for one in found] == expected
    assert all(one.severity is Severity.WARNING for one in found)
    assert codes(raw_tree(Mlp().state_dict()), purpose=purpose) == []


WTE, HEAD = "transformer.wte.weight", "lm_head.weight"


def tied(config: Any, weights: Mapping[str, torch.Tensor]) -> RawTree:
    return folder({"config.json": config, "model.safetensors": weights})


def surveyed(weights: Mapping[str, torch.Tensor]) -> Survey:
    """Counted by torch."""
    return Survey({
        Item("param", name): Content(one.numel(), negative=int((one < 0).sum()), largest=float(one.abs().max()))
        for name, one in weights.items()
    })  # fmt: skip


ONE, OTHER = torch.arange(12.0).reshape(4, 3), -torch.arange(12.0).reshape(4, 3)
TIES: dict[str, tuple[Any, dict[str, torch.Tensor], list[str]]] = {
    "unlike": ({"tie_word_embeddings": True}, {WTE: ONE, HEAD: OTHER}, ["CK311"]),
    "equal": ({"tie_word_embeddings": True}, {WTE: ONE, HEAD: ONE.clone()}, []),
    "one tensor": ({"tie_word_embeddings": True}, {WTE: ONE, HEAD: ONE}, []),
    "one stored": ({"tie_word_embeddings": True}, {WTE: ONE}, []),
    "not tied": ({"tie_word_embeddings": False}, {WTE: ONE, HEAD: OTHER}, []),
    "not said": ({}, {WTE: ONE, HEAD: OTHER}, []),
    "of another shape": ({"tie_word_embeddings": True}, {WTE: ONE, HEAD: OTHER[:2]}, []),
    "two heads": ({"tie_word_embeddings": True}, {WTE: ONE, HEAD: OTHER, f"draft.{HEAD}": OTHER.clone()}, []),
    "no configuration": ([], {WTE: ONE, HEAD: OTHER}, []),
}


@pytest.mark.parametrize("label", TIES)
def test_a_tie_that_the_configuration_promises_is_held_against_the_weights(label: str) -> None:
    config, weights, expected = TIES[label]
    assert codes(tied(config, weights), survey=surveyed(weights)) == expected


def test_a_tie_is_not_judged_where_the_tensors_were_not_read_or_may_be_equal() -> None:
    weights = {WTE: ONE, HEAD: ONE.clone()}
    tree = tied({"tie_word_embeddings": True}, weights)
    for survey in (None, surveyed(weights)):
        findings, not_judged = said(tree, survey=survey)
        assert findings == []
        assert [one.code for one in not_judged] == ["CK311"]
