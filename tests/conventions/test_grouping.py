"""Known grouping rules: each writer's own way to build its groups, from live modules, and what a file tells of it."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.grouping import EACH, GROUPING_RULES
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from tests.conventions.made import raw_tree
from tests.conventions.test_naming import is_right

Groups = list[dict[str, Any]]


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)


class Mixed(nn.Module):
    """A bit of everything, and equal shapes in every corner: tokens, two norms, a batch norm, attention, a scale."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, width, width))
        self.latents = nn.Parameter(torch.zeros(1, width, width))
        self.logit_scale = nn.Parameter(torch.ones(()))
        self.wte = nn.Embedding(width, width)
        self.blocks = nn.ModuleList([Attention(width) for _ in range(11)])
        self.layernorm = nn.LayerNorm(width)
        self.input_rmsnorm = nn.RMSNorm(width)
        self.bn = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, width, bias=False)


def named(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return list(model.named_parameters())


def in_modules(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> set[str]:
    return {
        f"{path}.{name}" for path, module in model.named_modules() if isinstance(module, kinds)
        for name, _ in module.named_parameters(recurse=False)
    }  # fmt: skip


def two(model: nn.Module, first: Callable[[str, nn.Parameter], bool], decays: tuple[float, float]) -> Groups:
    return [
        {"params": [one for name, one in named(model) if first(name, one) is wanted], "weight_decay": decay}
        for wanted, decay in zip((True, False), decays, strict=True)
    ]


NORMS = tuple(kind for name, kind in vars(nn).items() if "Norm" in name and isinstance(kind, type))


def nano_gpt(model: nn.Module) -> Groups:
    return two(model, lambda _, one: one.dim() >= 2, (0.1, 0.0))


def timm(model: nn.Module) -> Groups:
    return two(model, lambda name, one: one.ndim <= 1 or name.endswith(".bias"), (0.0, 0.05))


def timm_vit(model: nn.Module) -> Groups:
    skipped = {"pos_embed", "cls_token", "dist_token"}
    return two(model, lambda name, one: one.ndim <= 1 or name.endswith(".bias") or name in skipped, (0.0, 0.05))


def open_clip(model: nn.Module) -> Groups:
    return two(
        model,
        lambda n, p: p.ndim < 2 or "bn" in n or "ln" in n or "bias" in n or "logit_scale" in n,
        (0.0, 0.2),
    )


def trainer_5(model: nn.Module) -> Groups:
    patterns = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    layer_norms = in_modules(model, (nn.LayerNorm,))

    def decays(name: str, _: nn.Parameter) -> bool:
        return name not in layer_norms and not any(re.search(pattern, name.lower()) for pattern in patterns)

    return two(model, decays, (0.01, 0.0))


def trainer_of_old(model: nn.Module) -> Groups:
    layer_norms = in_modules(model, (nn.LayerNorm,))
    return two(model, lambda name, _: name not in layer_norms and "bias" not in name, (0.01, 0.0))


def ultralytics(model: nn.Module) -> Groups:
    groups: tuple[list[nn.Parameter], ...] = ([], [], [])
    for module_name, module in model.named_modules():
        for name, one in module.named_parameters(recurse=False):
            full = f"{module_name}.{name}" if module_name else name
            if "bias" in full:
                groups[2].append(one)
            elif isinstance(module, NORMS) or "logit_scale" in full:
                groups[1].append(one)
            else:
                groups[0].append(one)
    return [
        {"params": groups[2], "weight_decay": 0.0},
        {"params": groups[0], "weight_decay": 0.0005},
        {"params": groups[1], "weight_decay": 0.0},
    ]


def ultralytics_8_4(model: nn.Module) -> Groups:
    """The same groups, the biases last."""
    biases, weights, gains = ultralytics(model)
    return [weights, gains, biases]


def detectron2(model: nn.Module) -> Groups:
    return [{"params": [one]} for _, one in named(model)]


def detectron2_reduced(model: nn.Module) -> Groups:
    """Groups of equal hyperparameters, in the order in which they first occur."""
    norms = in_modules(model, NORMS)
    return two(model, lambda name, _: name not in norms, (0.0001, 0.0))


def min_gpt(model: nn.Module) -> Groups:
    linear = {name for name in in_modules(model, (nn.Linear,)) if name.endswith("weight")}
    params = dict(named(model))
    rest = params.keys() - linear
    return [
        {"params": [params[name] for name in sorted(linear)], "weight_decay": 0.1},
        {"params": [params[name] for name in sorted(rest)], "weight_decay": 0.0},
    ]


WRITERS: dict[str, Callable[[nn.Module], Groups]] = {
    "timm with a vision transformer": timm_vit, "the Trainer of transformers 5": trainer_5,
    "older Trainers": trainer_of_old, "ultralytics": ultralytics, "ultralytics 8.4": ultralytics_8_4,
    "detectron2": detectron2, "minGPT": min_gpt,
}  # fmt: skip
"""Those that part parameters of one shape, each by its own rule alone."""


def trained(model: nn.Module, groups: Groups, kind: Any = torch.optim.AdamW, **options: Any) -> Any:
    optimizer = kind(groups, lr=0.1, **options)
    loss = sum(one.square().sum() + one.sum() * place for place, (_, one) in enumerate(named(model)))
    loss.backward()  # type: ignore[union-attr]
    optimizer.step()
    return optimizer


def explained(model: nn.Module, optimizer: Any) -> Checkpoint:
    return explain(raw_tree({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))


@pytest.mark.parametrize("writer", WRITERS)
def test_each_writers_groups_are_named_by_its_own_rule(writer: str) -> None:
    model = Mixed()
    optimizer = trained(model, WRITERS[writer](model))
    found = explained(model, optimizer)
    assert found.namings[0].source is NameSource.GROUPING, found.namings[0].reason
    assert f", as in {writer};" in found.namings[0].reason
    assert not found.namings[0].certain
    assert is_right(found, model, optimizer)


@pytest.mark.parametrize("build", [nano_gpt, timm, open_clip, detectron2_reduced])
def test_groups_that_part_shapes_too_are_right_whatever_names_them(build: Callable[[nn.Module], Groups]) -> None:
    model = Mixed()
    optimizer = trained(model, build(model))
    found = explained(model, optimizer)
    assert found.namings[0].source is not NameSource.NONE
    assert is_right(found, model, optimizer)


def test_a_rule_that_sorts_by_name_says_more_than_shapes_that_force_the_groups() -> None:
    """No shape stands in two groups, and blocks.10 comes before blocks.2."""
    model = nn.ModuleDict({"ln": nn.LayerNorm(4), "wte": nn.Embedding(9, 4)})
    model["blocks"] = nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(11)])
    optimizer = trained(model, min_gpt(model))
    found = explained(model, optimizer)
    assert "as in minGPT" in found.namings[0].reason
    assert is_right(found, model, optimizer)


class Pair(nn.Module):
    """The bias and the norm's weight are of one shape, so that each can stand alone in a group."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.norm = nn.RMSNorm(4)


def alone(model: nn.Module, wanted: str, decays: tuple[float, float]) -> Groups:
    return two(model, lambda name, _: name == wanted, decays)


def test_two_rules_that_name_them_in_unlike_ways_leave_the_groups_unnamed() -> None:
    model = Pair()
    found = explained(model, trained(model, alone(model, "fc.bias", (0.0, 0.1))))
    (naming,) = found.namings
    assert naming.source is NameSource.NONE
    assert naming.candidates == ("biases first (many scripts)", "norms first (detectron2)")
    assert "2 known grouping rules fit, each in its own way" in naming.reason
    assert found.state.optimizers[0].groups[0].members == ("#0",)


def test_a_rule_that_spares_a_group_is_denied_where_this_group_decays_more() -> None:
    """Who sets norms apart spares them; who sets biases apart may do either."""
    model = Pair()
    optimizer = trained(model, alone(model, "fc.bias", (0.1, 0.0)))
    found = explained(model, optimizer)
    assert found.namings[0].reason.startswith("the only known grouping rule that fits: biases first")
    assert is_right(found, model, optimizer)


def test_equal_decays_deny_no_rule() -> None:
    model = Mixed()
    groups = trainer_5(model)
    for group in groups:
        group["weight_decay"] = 0.0
    optimizer = trained(model, groups)
    assert is_right(explained(model, optimizer), model, optimizer)


def test_sizes_of_groups_alone_are_no_evidence() -> None:
    model = Mixed()
    naming = explained(model, trained(model, ultralytics(model), torch.optim.SGD)).namings[0]
    assert (naming.source, naming.candidates) == (NameSource.NONE, ())


@pytest.mark.parametrize(("frozen", "source"), [(15, NameSource.GROUPING), (29, NameSource.NONE)])
def test_a_rule_names_them_only_where_half_of_them_tell_their_shapes(frozen: int, source: NameSource) -> None:
    model = Mixed()
    optimizer = trained(model, trainer_5(model))
    for _, one in named(model)[-frozen:]:
        del optimizer.state[one]
    found = explained(model, optimizer)
    assert found.namings[0].source is source
    assert source is NameSource.NONE or is_right(found, model, optimizer)


def test_a_rule_must_account_for_every_parameter_of_the_model() -> None:
    """Which of them a filtered optimizer leaves out, no rule says."""
    model = Mixed()
    groups = trainer_5(model)
    groups[1]["params"] = groups[1]["params"][1:]
    assert explained(model, trained(model, groups)).namings[0].source is NameSource.NONE


def test_empty_groups_count_for_nothing() -> None:
    model = Mixed()
    for name in ("layernorm", "input_rmsnorm", "bn", "logit_scale"):
        delattr(model, name)
    model.scale = nn.Parameter(torch.ones(4))  # of the shape of the biases, and no gain of a norm
    groups = ultralytics(model)
    assert [len(group["params"]) for group in groups] == [22, 27, 0]
    optimizer = trained(model, groups)
    found = explained(model, optimizer)
    assert found.namings[0].source is NameSource.GROUPING
    assert is_right(found, model, optimizer)


def test_groups_by_another_rule_are_not_named() -> None:
    model = Mixed()
    groups = two(model, lambda name, _: name.startswith("blocks.1"), (0.1, 0.0))
    naming = explained(model, trained(model, groups)).namings[0]
    assert naming.source is NameSource.NONE
    assert naming.reason == "parameters of one shape stand in several groups; no known grouping rule fits"


def test_a_model_whose_file_keeps_no_order_is_not_named_by_a_rule() -> None:
    model = Mixed()
    state = {"model": model.state_dict(), "optimizer": trained(model, ultralytics(model)).state_dict()}
    assert explain(raw_tree(state, "torch-sharded")).namings[0].source is NameSource.NONE


def test_each_rule_of_the_table_says_who_follows_it_and_which_of_its_groups_decays() -> None:
    for rule in (*GROUPING_RULES, EACH):
        assert rule.label
        assert rule.writer
        assert rule.decayed <= set(range(len(rule.groups)))
    assert len({(rule.label, rule.writer) for rule in GROUPING_RULES}) == len(GROUPING_RULES)
