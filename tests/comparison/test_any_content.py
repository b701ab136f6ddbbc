"""Two checkpoints drawn at random: each is the same as itself, and what is told does not hang on which is the left."""

import copy
import random
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any

import pytest
import torch

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff, DiffOptions, Kind
from ckptcheck.comparison.contracts import held_contracts
from ckptcheck.state.checkpoint import Checkpoint
from tests.comparison.held import checkpoint, diff, nudged, optimizer

PAIRS = range(160)
DIRECTED = {Kind.MOVED, Kind.RENAMED}
SIDED = {"left_section", "right_section", "renames"}
TOGETHER = 40
SHAPES = {"a.weight": (4, 3), "a.bias": (4,), "b.weight": (4, 3), "b.bias": (4,), "norm.weight": (4,), "c": ()}
CONTRACTS = ("hold", "no-update", "no-grad", "removed", "reset")


class Held:
    """What a checkpoint is made of, to be changed before it is made."""

    def __init__(self, draw: random.Random) -> None:
        made = torch.Generator().manual_seed(draw.randrange(3))
        self.model: dict[str, Any] = {
            name: torch.zeros(shape) if name.endswith("bias") else torch.randn(shape, generator=made)
            for name, shape in SHAPES.items()
        }
        names = [*self.model]
        self.groups: list[list[str | None]] = [names[:3], names[3:]]
        self.state: dict[str, dict[str, Any]] = {
            name: {"step": torch.tensor(3.0), "exp_avg": torch.randn(SHAPES[name], generator=made),
                   "exp_avg_sq": torch.rand(SHAPES[name], generator=made)} for name in names
        }  # fmt: skip
        self.hyper: list[dict[str, Any]] = [{"lr": 0.1, "weight_decay": 0.01, "betas[1]": 0.999} for _ in self.groups]
        self.buffers: dict[str, Any] = {"norm.running_mean": torch.ones(4), "norm.count": torch.tensor(3)}
        self.ema: dict[str, Any] = {f"ema.{name}": value.clone() * 0.9 for name, value in self.model.items()}
        self.scheduler: dict[str, Any] = {"last_epoch": 3, "_last_lr[0]": 0.1}
        self.rng: dict[str, Any] = {"torch": torch.arange(6, dtype=torch.uint8), "python": "state"}
        self.ties: dict[str, tuple[str, ...]] = {}
        self.optimizers = draw.choice((0, 1, 1, 1, 2))
        self.unnamed = draw.random() < 0.15

    def made(self) -> Checkpoint:
        """The checkpoint."""
        one = optimizer(self.groups, self.state, self.hyper)
        return checkpoint(
            self.model, *[one] * self.optimizers, buffers=self.buffers, ties=self.ties, unnamed=self.unnamed,
            step=3, rng=self.rng, ema=self.ema, schedule=self.scheduler, extra={"best": 0.5},
        )  # fmt: skip


def _tensors(held: Held) -> list[tuple[dict[str, Any], str]]:
    places = [(held.model, name) for name in held.model] + [(held.buffers, name) for name in held.buffers]
    places += [(one, key) for one in held.state.values() for key in one] + [(held.ema, name) for name in held.ema]
    return [*places, (held.rng, "torch")]


def _nudge(held: Held, draw: random.Random) -> None:
    for place, name in draw.sample(_tensors(held), draw.choice((1, 3, 8))):
        if place[name].is_floating_point():
            place[name] = nudged(place[name]) if draw.random() < 0.5 else place[name] * draw.choice((1.001, 2, -1))


def _cast(held: Held, draw: random.Random) -> None:
    dtype = draw.choice((torch.bfloat16, torch.float16, torch.float64))
    keeps = draw.random() < 0.5
    for place, name in draw.sample(_tensors(held), draw.choice((1, 5))):
        if place[name].is_floating_point():
            place[name] = place[name].to(dtype).to(place[name].dtype) if keeps else place[name].to(dtype)


def _odd(held: Held, draw: random.Random) -> None:
    place, name = draw.choice(_tensors(held))
    if place[name].is_floating_point():
        place[name] = place[name].clone()
        place[name].view(-1)[0] = draw.choice((torch.nan, torch.inf, -torch.inf, -0.0))


def _drop(held: Held, draw: random.Random) -> None:
    for place, name in draw.sample(_tensors(held), draw.choice((1, 2))):
        place.pop(name, None)


def _reshape(held: Held, draw: random.Random) -> None:
    name = draw.choice(("a.weight", "b.weight"))
    if name in held.model:
        held.model[name] = held.model[name].reshape(3, 4)


def _rename(held: Held, draw: random.Random) -> None:
    old, new = draw.choice((("a.", "first."), ("b.", "module.b."), ("", "model."), ("norm.", "")))
    tell = {name: new + name.removeprefix(old) if name.startswith(old) else name for name in SHAPES}
    held.model = {tell.get(name, name): value for name, value in held.model.items()}
    if draw.random() < 0.7:
        held.state = {tell.get(name, name): value for name, value in held.state.items()}
        held.groups = [[tell.get(name or "", name) for name in group] for group in held.groups]


def _exchange(held: Held, draw: random.Random) -> None:
    one, other = draw.choice((("a.weight", "b.weight"), ("a.bias", "norm.weight")))
    for owner in draw.sample((held.model, held.state), draw.choice((1, 2))):
        if one in owner and other in owner:
            owner[one], owner[other] = owner[other], owner[one]


def _regroup(held: Held, draw: random.Random) -> None:
    kind = draw.randrange(4)
    if kind == 0 and held.groups[0]:
        held.groups[1].append(held.groups[0].pop())
    elif kind == 1:
        held.groups.reverse()
    elif kind == 2:
        draw.shuffle(held.groups[0])
    else:
        held.groups.append([None])
        held.hyper.append({"lr": 0.2})


def _values(held: Held, draw: random.Random) -> None:
    place = draw.choice((*held.hyper, held.scheduler, held.rng))
    key = draw.choice([one for one in place if one != "torch"])
    place[key] = draw.choice((0.5, 7, "other"))


def _idle(held: Held, draw: random.Random) -> None:
    for name in draw.sample([*held.state], min(len(held.state), draw.choice((1, 6)))):
        held.state[name] = {}


def _tie(held: Held, draw: random.Random) -> None:
    held.ties = {"a.weight": ("head.weight",)}


def _counted(held: Held, draw: random.Random) -> None:
    for one in held.state.values():
        if "step" in one:
            one["step"] = one["step"] + 3


CHANGES: tuple[Callable[[Held, random.Random], None], ...] = (
    _nudge, _nudge, _cast, _odd, _drop, _reshape, _rename, _exchange, _regroup, _values, _idle, _tie,
    _counted, _counted,
)  # fmt: skip


def _options(draw: random.Random) -> dict[str, Any]:
    may = (
        {}, {}, {"rtol": 0.01}, {"atol": 1e-3}, {"tolerances": {"state": (0.1, 0.0), "param:float32": (0.0, 1e-6)}},
        {"left_section": "ema"}, {"right_section": "ema"}, {"ignored": ("optimizer",)}, {"only": ("model", "rng")},
        {"cast": "bfloat16"}, {"statistics": False}, {"renames": (("first.", "a."),)},
    )  # fmt: skip
    return draw.choice(may)


def _pair(seed: int) -> tuple[Checkpoint, Checkpoint, dict[str, Any], random.Random]:
    draw = random.Random(seed)
    left = Held(draw)
    right = copy.deepcopy(left)
    for change in draw.sample(CHANGES, draw.choice((0, 1, 1, 2, 3))):
        change(left if draw.random() < 0.2 else right, draw)
    return left.made(), right.made(), _options(draw), draw


def _mirrored(found: CheckpointDiff, swapped: bool) -> Counter[Any]:
    """What is told, with left for right where the sides were exchanged; directions of a move or a new name aside."""
    turned = {Kind.ADDED: Kind.REMOVED, Kind.REMOVED: Kind.ADDED} if swapped else {}
    told: Counter[Any] = Counter()
    for row in found.rows:
        numbers = row.difference and (row.difference.differing, row.difference.numel, row.difference.max_ulp)
        told[turned.get(row.kind, row.kind), row.section, row.parameter, row.key, row.optimizer, numbers] += 1
    return told


@pytest.mark.parametrize("first", range(PAIRS.start, PAIRS.stop, TOGETHER))
def test_any_two_checkpoints_are_compared_and_each_is_the_same_as_itself(first):
    for seed in range(first, first + TOGETHER):
        left, right, options, draw = _pair(seed)
        found = diff(left, right, **options)
        assert diff(right, right).rows == ()
        assert found.same_content is (not found.rows)
        if not SIDED & options.keys():
            back = diff(right, left, **options)
            kinds = {row.kind for row in (*found.rows, *back.rows)}
            assert kinds & DIRECTED or _mirrored(found, swapped=False) == _mirrored(back, swapped=True), seed
        freeze = {glob: draw.choice(CONTRACTS) for glob in draw.sample(("a.*", "*.weight", "norm.*", "*"), 2)}
        held = held_contracts(found, freeze, DiffOptions(**options))
        assert all(fnmatch(one.parameter, one.pattern) and freeze[one.pattern] == one.contract for one in held.broken)
        assert {"reset", "removed"} & {*freeze.values()} or not held_contracts(
            diff(right, right), freeze, DiffOptions()
        ).broken
