"""How training code splits a model's parameters into param groups: the rules that common trainers use.

Within each group parameters keep the order in which the model registered them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

Shape: TypeAlias = tuple[int, ...]
Rule: TypeAlias = Callable[[str, Shape], int]
"""The group, from 0, that a parameter of this name and shape goes into."""

_NO_DECAY: Final = re.compile(r"bias|layernorm|rmsnorm|(^|\.)norm($|\.)|_norm($|\.)", re.IGNORECASE)
_GAIN_OR_BIAS: Final = re.compile(r"bn|ln|bias|logit_scale")
_LAYER_NORM: Final = re.compile(r"bias|LayerNorm\.(weight|bias)")


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2] == "bias"


def _ultralytics(name: str, shape: Shape) -> int:
    if _is_bias(name):
        return 0
    return 1 if len(shape) > 1 else 2


RULES: Final[Mapping[str, tuple[int, Rule]]] = {
    "dimensions, matrices first": (2, lambda _, shape: int(len(shape) < 2)),
    "dimensions, vectors first": (2, lambda _, shape: int(len(shape) >= 2)),
    "names as in transformers": (2, lambda name, _: int(_NO_DECAY.search(name) is not None)),
    "names as in older transformers": (2, lambda name, _: int(_LAYER_NORM.search(name) is not None)),
    "gains and biases first, as in open_clip": (
        2,
        lambda name, shape: int(not (len(shape) < 2 or _GAIN_OR_BIAS.search(name))),
    ),
    "biases last": (2, lambda name, _: int(_is_bias(name))),
    "biases first": (2, lambda name, _: int(not _is_bias(name))),
    "biases, weights, norms": (3, _ultralytics),
}


def partitions(shapes: Mapping[str, Shape], counts: Sequence[int]) -> Iterator[tuple[str, list[list[str]]]]:
    """Every rule that makes as many groups, and the names that it would put into each, in order.

    `counts` are the lengths of the file's groups. The first "rule" is the model's order itself, as one list: cut at
    the groups' ends where there are several.
    """
    yield "order", [list(shapes)]
    for label, (number, rule) in RULES.items():
        if number != len(counts):
            continue
        groups: list[list[str]] = [[] for _ in counts]
        for name, shape in shapes.items():
            groups[rule(name, shape)].append(name)
        yield label, groups
