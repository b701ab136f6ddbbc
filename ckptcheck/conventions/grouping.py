"""Known rules by which trainers sort a model's parameters into param groups, and which of them fit a file's groups."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ckptcheck.conventions.fitting import Shape
from ckptcheck.conventions.weights import Weights
from ckptcheck.optimizers.shapes import ShapeTest, Signature


@dataclass(frozen=True, slots=True)
class Seen:
    """What a file tells of a parameter that a grouping rule asks for.

    Attributes:
        name: as the model registers it.
        shape: of the whole parameter.
        of_norm: whether its module's weight is a vector, as a norm's is.
        of_batch_norm: whether its module keeps running statistics.
        beside_bias: whether its module has a bias.
    """

    name: str
    shape: Shape
    of_norm: bool
    of_batch_norm: bool
    beside_bias: bool

    @property
    def last(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]


Test: TypeAlias = Callable[[Seen], bool]


@dataclass(frozen=True, slots=True)
class GroupingRule:
    """One way to sort parameters into groups. Within a group they keep the order in which the model registers them.

    Attributes:
        label: the rule in words: "matrices first".
        writer: who does so.
        groups: a test for each group; a parameter goes into the first group that takes it.
        decayed: groups whose weight decay is not the smaller one; empty where the rule says nothing of decay.
        by_name: whether each group's parameters are sorted by name instead.
    """

    label: str
    writer: str
    groups: tuple[Test, ...]
    decayed: frozenset[int] = frozenset()
    by_name: bool = False


_HF_NAMES: Final = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)", re.IGNORECASE)
_TOKENS: Final = frozenset(
    {"pos_embed", "cls_token", "dist_token", "reg_token", "mask_token", "relative_position_bias_table", "pos_emb"}
)
_CLIP_NAMES: Final = ("bn", "ln", "bias", "logit_scale")
_EMBEDDINGS: Final = re.compile(r"(?:^|[._])(?:wte|wpe|\w*emb\w*)(?:$|[._])")


def _rest(one: Seen) -> bool:
    return True


def _matrix(one: Seen) -> bool:
    return len(one.shape) >= 2


def _bias(one: Seen) -> bool:
    return one.last == "bias"


def _named_bias(one: Seen) -> bool:
    return "bias" in one.name


def _weight(one: Seen) -> bool:
    return not _named_bias(one) and not _gain(one)


def _gain(one: Seen) -> bool:
    return not _named_bias(one) and (one.of_norm or "logit_scale" in one.name)


def _norm(one: Seen) -> bool:
    return one.of_norm


def _layer_norm(one: Seen) -> bool:
    return one.of_norm and not one.of_batch_norm


def _hf(one: Seen) -> bool:
    return not _HF_NAMES.search(one.name) and not (_layer_norm(one) and one.beside_bias)


def _hf_older(one: Seen) -> bool:
    return not _named_bias(one) and not _layer_norm(one)


def _hf_before_rms(one: Seen) -> bool:
    return not _named_bias(one) and not (_layer_norm(one) and one.beside_bias)


def _bert(one: Seen) -> bool:
    return not _named_bias(one) and "LayerNorm.weight" not in one.name


def _t5(one: Seen) -> bool:
    return not _named_bias(one) and "layer_norm.weight" not in one.name


def _timm(one: Seen) -> bool:
    return len(one.shape) <= 1 or one.name.endswith(".bias")


def _timm_tokens(one: Seen) -> bool:
    return _timm(one) or one.last in _TOKENS


def _clip(one: Seen) -> bool:
    return len(one.shape) < 2 or any(part in one.name for part in _CLIP_NAMES)


def _min_gpt(one: Seen) -> bool:
    return one.last.endswith("weight") and len(one.shape) >= 2 and not _EMBEDDINGS.search(one.name)


def _not(test: Test) -> Test:
    return lambda one: not test(one)


_FIRST: Final = frozenset({0})
_SECOND: Final = frozenset({1})

GROUPING_RULES: Final = (
    GroupingRule("matrices first", "nanoGPT", (_matrix, _rest), _FIRST),
    GroupingRule("vectors and biases first", "timm", (_timm, _rest), _SECOND),
    GroupingRule("vectors, biases and tokens first", "timm with a vision transformer", (_timm_tokens, _rest), _SECOND),
    GroupingRule("gains and biases first", "open_clip", (_clip, _rest), _SECOND),
    GroupingRule("all but biases and norms first", "the Trainer of transformers 5", (_hf, _rest), _FIRST),
    GroupingRule("all but biases and norms first", "the Trainer of transformers 4", (_hf_older, _rest), _FIRST),
    GroupingRule("all but biases and LayerNorms first", "older Trainers", (_hf_before_rms, _rest), _FIRST),
    GroupingRule("biases last", "many scripts", (_not(_bias), _rest)),
    GroupingRule("biases first", "many scripts", (_bias, _rest)),
    GroupingRule("norms last", "detectron2", (_not(_norm), _rest), _FIRST),
    GroupingRule("norms first", "detectron2", (_norm, _rest), _SECOND),
    GroupingRule("all but biases and LayerNorm.weight first", "BERT's examples", (_bert, _rest), _FIRST),
    GroupingRule("all but biases and layer_norm.weight first", "T5's examples", (_t5, _rest), _FIRST),
    GroupingRule("biases, weights, gains", "ultralytics", (_named_bias, _weight, _gain), _SECOND),
    GroupingRule("weights, gains, biases", "ultralytics 8.4", (_weight, _gain, _named_bias), _FIRST),
    GroupingRule("gains, weights, biases", "the first YOLOv5", (_gain, _weight, _named_bias), _SECOND),
    GroupingRule("linear weights first, each sorted by name", "minGPT", (_min_gpt, _rest), _FIRST, by_name=True),
)
"""Two groups or three. One group in the model's order needs no rule, and one a parameter is `EACH`."""

EACH: Final = GroupingRule("one group a parameter", "detectron2", ())
"""As many groups as parameters, in the model's order."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The names that a rule gives to all groups' members one after the other, and the rules that give just these."""

    names: tuple[str, ...]
    rules: tuple[GroupingRule, ...]


def fitting_rules(
    groups: Sequence[Sequence[Any]],
    signatures: Mapping[Any, Signature],
    decays: Sequence[float | None],
    model: Weights,
    test: ShapeTest,
) -> tuple[Fit, ...]:
    """Every assignment of all of the model's parameters that a known rule makes and that nothing in the file denies.

    Empty groups count for nothing, on either side. `decays` holds each group's weight decay, None where unknown.
    """
    places = [place for place, group in enumerate(groups) if group]
    seen = [*_seen(model)]
    found: dict[tuple[str, ...], list[GroupingRule]] = {}
    for rule in (EACH, *GROUPING_RULES):
        made = _sorted_by(rule, seen)
        kept = [(number, names) for number, names in enumerate(made) if names]
        if [len(names) for _, names in kept] != [len(groups[place]) for place in places]:
            continue
        if _decay_denies(rule, [number for number, _ in kept], [decays[place] for place in places]):
            continue
        names = tuple(name for _, group in kept for name in group)
        keys = [key for place in places for key in groups[place]]
        if all(test.fits(signatures.get(key, ()), model.shapes[name]) for key, name in zip(keys, names, strict=True)):
            found.setdefault(names, []).append(rule)
    return tuple(Fit(names, tuple(rules)) for names, rules in found.items())


def _sorted_by(rule: GroupingRule, seen: Sequence[Seen]) -> list[list[str]]:
    if rule is EACH:
        return [[one.name] for one in seen]
    made: list[list[str]] = [[] for _ in rule.groups]
    for one in seen:
        place = next((place for place, takes in enumerate(rule.groups) if takes(one)), None)
        if place is None:
            return []
        made[place].append(one.name)
    return [sorted(names) for names in made] if rule.by_name else made


def _decay_denies(rule: GroupingRule, numbers: Sequence[int], decays: Sequence[float | None]) -> bool:
    """Whether a group that the rule spares decays more than one that it does not."""
    pairs = [(number in rule.decayed, decay) for number, decay in zip(numbers, decays, strict=True)]
    spared = [decay for decays_most, decay in pairs if not decays_most and decay is not None]
    whole = [decay for decays_most, decay in pairs if decays_most and decay is not None]
    return bool(rule.decayed) and bool(spared) and bool(whole) and max(spared) > min(whole)


def _seen(model: Weights) -> Iterator[Seen]:
    for name, shape in model.shapes.items():
        owner, dot, _ = name.rpartition(".")
        front = f"{owner}{dot}"
        weight = model.shapes.get(f"{front}weight")
        yield Seen(
            name,
            shape,
            of_norm=weight is not None and len(weight) == 1,
            of_batch_norm=f"{front}running_mean" in model.buffers,
            beside_bias=f"{front}bias" in model.shapes,
        )
