"""Cases drawn at random: states by hand with some things wrong after the load, and differences that follow."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ckptcheck.comparison.bindings import bindings
from ckptcheck.comparison.freezing import Breach
from ckptcheck.comparison.non_finite import NonFinite
from ckptcheck.comparison.origins import Origins
from ckptcheck.comparison.states import compare_states
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.comparison.tensors import compare_bytes
from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.finding import Compared
from ckptcheck.rules.runs.case import Case, Saving
from ckptcheck.rules.runs.course import Course
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState
from ckptcheck.trace.items import STEP, Item, Sample
from ckptcheck.trace.measuring import plain
from tests.comparison.written import entry, gradient, number, tensor, write

NAMES = ("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "head.weight")
KEPT_AT, LAST = 3, 7
GENERATORS = ("torch", "numpy", "python")


@dataclass
class Held:
    """A training state that can be changed: of each content, the step after which the run had it."""

    params: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(NAMES, KEPT_AT))
    groups: list[list[str]] = field(default_factory=lambda: [list(NAMES[:3]), list(NAMES[3:])])
    hyper: list[dict[str, Any]] = field(
        default_factory=lambda: [{"lr": 0.1, "weight_decay": decay, "foreach": False} for decay in (0.01, 0.0)]
    )
    state: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {name: {"step": KEPT_AT, "exp_avg": KEPT_AT, "exp_avg_sq": KEPT_AT} for name in NAMES}
    )
    buffers: dict[str, Any] = field(default_factory=lambda: {"norm.running_mean": KEPT_AT, "norm.count": KEPT_AT})
    sections: dict[str, dict[str, Any]] = field(default_factory=lambda: {
        "schedule": {"last_epoch": KEPT_AT, "_last_lr[0]": 0.1, "T_max": 20},
        "scaler": {"scale": 1024.0, "_growth_tracker": KEPT_AT},
        "ema": {f"shadow.{NAMES[0]}": KEPT_AT, "updates": KEPT_AT},
        "data": {"position": KEPT_AT}, "extra": {"best": 0.5}})  # fmt: skip
    rng: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(GENERATORS, KEPT_AT))
    frozen: set[str] = field(default_factory=set)
    tied: dict[str, str] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=lambda: {"torch.num_threads": 1, "torch.version": "2.13"})
    modes: dict[str, bool] = field(default_factory=lambda: {"": True, "norm": True})
    dtype: str = "float32"

    def made(self) -> TrainingState:
        """The state with digests in place of steps."""
        members = {name for group in self.groups for name in group}
        state = {
            name: {key: number(value) if key == "step" else entry((name, key, value), dtype=self.dtype)
                   for key, value in keys.items()}
            for name, keys in self.state.items() if name in members
        }  # fmt: skip
        values = [{key: number(value) for key, value in one.items()} for one in self.hyper]
        groups = tuple(Group(tuple(one), hyper) for one, hyper in zip(self.groups, values, strict=True))
        parameters = {
            name: Parameter(name, entry((name, value)), requires_grad=name not in self.frozen,
                            aliases=(self.tied[name],) if name in self.tied else ())
            for name, value in self.params.items()
        }  # fmt: skip
        return TrainingState(
            "drawn", KEPT_AT, parameters,
            buffers={name: entry((name, value)) for name, value in self.buffers.items()},
            optimizers=(Optimizer("AdamW", groups, state),),
            sections={name: {path: of_section(path, one) for path, one in held.items()}
                      for name, held in self.sections.items() if held},
            rng={name: entry((name, value)) for name, value in self.rng.items()}, flags=self.flags,
            modes=self.modes,
        )  # fmt: skip


def of_section(path: str, value: Any) -> Entry:
    return entry((path, value)) if path.startswith("shadow") else number(value)


def _weights(held: Held, draw: random.Random) -> None:
    for name in draw.sample(NAMES, draw.choice((1, 2, 5))):
        held.params[name] = draw.choice((0, 1, 5, "new"))


def _state_gone(held: Held, draw: random.Random) -> None:
    for name in draw.sample(NAMES, draw.choice((1, 2, 5))):
        held.state.pop(name, None)


def _state_anew(held: Held, draw: random.Random) -> None:
    for name in draw.sample(NAMES, draw.choice((1, 5))):
        held.state[name] = {"step": 0, "exp_avg": 0, "exp_avg_sq": 0}


def _state_of_another_step(held: Held, draw: random.Random) -> None:
    step = draw.choice((1, 2, "new"))
    for name in draw.sample(NAMES, draw.choice((1, 2, 5))):
        held.state.setdefault(name, {})["exp_avg"] = step


def _a_key_gone(held: Held, draw: random.Random) -> None:
    for name in draw.sample(NAMES, draw.choice((1, 3))):
        held.state.get(name, {}).pop(draw.choice(("exp_avg", "exp_avg_sq", "step")), None)


def _counters(held: Held, draw: random.Random) -> None:
    by = draw.choice((-3, 1, 10))
    for name in draw.sample(NAMES, draw.choice((1, 5))):
        if "step" in held.state.get(name, {}):
            held.state[name]["step"] += by


def _exchanged(held: Held, draw: random.Random) -> None:
    one, other = draw.sample(NAMES, 2)
    held.state[one], held.state[other] = held.state.get(other, {}), held.state.get(one, {})


def _regrouped(held: Held, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 2))):
        if held.groups[0]:
            held.groups[1].append(held.groups[0].pop(draw.randrange(len(held.groups[0]))))


def _reordered(held: Held, draw: random.Random) -> None:
    draw.shuffle(held.groups[0])


def _left_out(held: Held, draw: random.Random) -> None:
    held.groups[draw.randrange(2)].pop()


def _rates(held: Held, draw: random.Random) -> None:
    held.hyper[draw.randrange(2)]["lr"] = draw.choice((0.2, 0.05, 0.0))


def _settings(held: Held, draw: random.Random) -> None:
    key, value = draw.choice((("weight_decay", 0.5), ("foreach", True), ("betas[0]", 0.5)))
    held.hyper[draw.randrange(2)][key] = value


def _buffers(held: Held, draw: random.Random) -> None:
    held.buffers[draw.choice([*held.buffers])] = draw.choice((0, 1, "new"))


def _a_buffer_gone(held: Held, draw: random.Random) -> None:
    held.buffers.pop(draw.choice([*held.buffers]), None)


def _section(held: Held, draw: random.Random) -> None:
    section = held.sections[draw.choice([*held.sections])]
    for path in draw.sample([*section], draw.randint(1, len(section))):
        section[path] = draw.choice((0, 1, 4, 0.25))


def _section_gone(held: Held, draw: random.Random) -> None:
    held.sections[draw.choice([*held.sections])] = {}


def _generators(held: Held, draw: random.Random) -> None:
    for name in draw.sample(GENERATORS, draw.choice((1, 2, 3))):
        held.rng[name] = draw.choice((0, 1, "new"))


def _frozen(held: Held, draw: random.Random) -> None:
    held.frozen ^= {*draw.sample(NAMES, draw.choice((1, 2)))}


def _tied(held: Held, draw: random.Random) -> None:
    held.tied = {} if held.tied else {NAMES[0]: "lm_head.weight"}


def _flags(held: Held, draw: random.Random) -> None:
    held.flags = held.flags | draw.choice(({"torch.num_threads": 4}, {"torch.version": "2.12"}))


def _modes(held: Held, draw: random.Random) -> None:
    held.modes = draw.choice(({"": True, "norm": False}, {"": True}, {"norm": False}))


def _narrow(held: Held, draw: random.Random) -> None:
    held.dtype = "bfloat16"


FAULTS: tuple[Callable[[Held, random.Random], None], ...] = (
    _weights, _state_gone, _state_anew, _state_of_another_step, _a_key_gone, _counters, _exchanged, _regrouped,
    _reordered, _left_out, _rates, _settings, _buffers, _a_buffer_gone, _section, _section_gone, _generators, _frozen,
    _tied, _flags, _modes, _narrow,
)  # fmt: skip

ITEMS: tuple[tuple[Item, Callable[[Any], Sample]], ...] = (
    (Item("rng", "torch"), tensor), (Item("rng", "numpy"), tensor), (Item("hyper", "", "lr", 0, 0), plain),
    (Item("hyper", "", "weight_decay", 0, 1), plain), (Item("structure", "groups"), lambda _: plain("[]")),
    (Item("inputs", "0"), tensor), (Item("inputs", "1"), tensor), (Item("buffer", "norm.running_mean"), tensor),
    (Item("loss"), plain), (Item("loss", "returned"), plain), (Item("grad", NAMES[0]), gradient),
    (Item("grad", NAMES[4]), gradient), (Item("updates", optimizer=0), plain), (Item("scaler", "scale"), plain),
    (Item("state", NAMES[0], "exp_avg", 0), tensor), (Item("state", NAMES[4], "step", 0), plain),
    (Item("param", NAMES[0]), tensor), (Item("param", NAMES[4]), tensor), (Item("schedule", "last_epoch"), plain),
    (Item("schedule", "_last_lr[0]"), plain), (Item("ema", f"shadow.{NAMES[0]}"), tensor),
    (Item("data", "position"), plain), (Item("extra", "best"), plain),
)  # fmt: skip


def course(draw: random.Random) -> TraceDiff | None:
    """What differs in the steps that follow: from some stage on."""
    if draw.random() < 0.08:
        return None
    steps = tuple(range(KEPT_AT + 1, LAST))
    begin, since = draw.choice(steps), draw.randrange(len(ITEMS))
    found = []
    for step in steps if draw.random() < 0.7 else ():
        for place, (item, sample) in enumerate(ITEMS):
            if (step, place) >= (begin, since) and draw.random() < (0.9 if step == begin and place == since else 0.25):
                left, right = draw.choice(((1, 2), (2, 3), (1, 0), (3, None), (None, 1)))
                absent = item.kind == "grad"
                sides = [sample(one) if one is not None or absent else None for one in (left, right)]
                found.append(Difference(step, item, *sides))
    found.sort(key=lambda one: (one.order, one.item))
    drawn = frozenset(one for one in GENERATORS if draw.random() < 0.6)
    return TraceDiff(steps, Compared(len(steps), 5, 15, 600), tuple(found), drawn)


def measured(draw: random.Random, differences: tuple[Difference, ...], held: Held) -> dict[tuple[int, Item], Any]:
    """Exact differences of what changed, at the load and after it: by a little, by a cast, by much."""
    items = [(KEPT_AT, Item("param", name)) for name, at in held.params.items() if at != KEPT_AT]
    items += [(KEPT_AT, Item("state", name, "exp_avg", 0)) for name in held.state]
    items += [(one.step, one.item) for one in differences if one.left and one.right and one.left.spec]
    return {one: _difference(draw, place) for place, one in enumerate(items) if draw.random() < 0.7}


def _difference(draw: random.Random, seed: int) -> TensorDifference:
    left = np.random.RandomState(seed).standard_normal(8).astype(np.float32)
    right = draw.choice((left * np.float32(1 + 1e-6), left * 2, (left.view(np.uint32) >> 16 << 16).view(np.float32)))
    spec = TensorSpec("float32", (2, 4))
    return compare_bytes(memoryview(left.tobytes()), memoryview(right.tobytes()), spec, spec)


def origins(folder: Path) -> Origins:
    """Of the run, with the contents that it had after each step."""
    moments: dict[tuple[int, str], Mapping[Item, Sample]] = {}
    for step in range(LAST):
        found = {Item("param", name): tensor((name, step)) for name in NAMES}
        found |= {Item("state", name, key, 0): tensor((name, key, step)) for name in NAMES
                  for key in ("exp_avg", "exp_avg_sq")}  # fmt: skip
        found |= {Item("rng", name): tensor((name, step)) for name in GENERATORS}
        found |= {Item("inputs", str(place)): tensor(step + place) for place in (0, 1)}
        found |= {Item("buffer", "norm.running_mean"): tensor(("norm.running_mean", step))}
        moments[step, STEP] = found
    return Origins(write(folder / "reference.trace", moments))


def surroundings(draw: random.Random, differences: tuple[Difference, ...]) -> dict[str, Any]:
    """What else a case may say."""
    step = draw.randint(KEPT_AT + 1, LAST - 1)
    loss = Difference(step, Item("loss"), plain(1.0), plain(1.5))
    breach = Breach(draw.choice(("param", "state", "gradient", "member", "kept-state")), draw.choice(NAMES),
                    draw.choice(("hold", "no-update", "no-grad")), "layers.*", step, "exp_avg", 0,
                    draw.choice(("none", "zero", "nonzero")), draw.random() < 0.5)  # fmt: skip
    touched = tuple(draw.sample([Difference(KEPT_AT, item, sample(1), sample(2)) for item, sample in ITEMS], 2))
    may: dict[str, Any] = {
        "raised": "ValueError: no such key", "raised_step": step, "last_lines": ("a", "b"),
        "other_step": draw.choice((1, 2, 5)), "breaches": (breach,), "whole": False, "seeded": False, "commands": True,
        "saving": (Saving(KEPT_AT, touched, draw.choice((None, loss))),), "rounding": NAMES[:2],
        "noise": draw.choice((loss, *touched)),
        "noisy_generators": GENERATORS[:2], "operations": ("index_add_cuda_",), "chance": "it was seen twice",
        "replaced": frozenset(draw.sample(("model", "optimizer", "schedule", "ema"), 2)),
        "idle_generators": {"numpy": step}, "course": Course(KEPT_AT, draw.choice((None, 1, 3, 5)), 3, LAST),
        "non_finite": NonFinite(5, {Item("param", NAMES[0]): step}, (step,), draw.random() < 0.5),
        "shared": {f"shadow.{NAMES[0]}": NAMES[0]},
    }  # fmt: skip
    given = {key: value for key, value in may.items() if draw.random() < 0.12}
    return given | ({"noise": loss} if "operations" in given or "chance" in given else {})


def any_case(seed: int, known: Origins) -> Case:
    """The case of a seed."""
    draw = random.Random(seed)
    left, right = Held(), Held()
    for fault in draw.sample(FAULTS, draw.choice((0, 1, 1, 2, 3))):
        fault(left if draw.random() < 0.12 else right, draw)
    saved, live = left.made(), right.made()
    diff = compare_states(saved, live)
    fresh = Held(params=dict.fromkeys(NAMES, 0), state={}, rng=dict.fromkeys(GENERATORS, 0)).made()
    built = draw.choice((None, fresh, replace(fresh, parameters=live.parameters)))
    after = course(draw)
    differences = after.differences if after is not None else ()
    case = Case("resumed@3", KEPT_AT, load=diff, bound=bindings(diff, built), built=built, trajectory=after,
                origins=draw.choice((None, known)), measured=measured(draw, differences, right))  # fmt: skip
    case = replace(case, load=None, bound=(), built=None) if draw.random() < 0.05 else case
    given = surroundings(draw, differences)
    if not any(one.section in ("param", "state") and one.changed for one in diff.entries) or case.load is None:
        given.pop("other_step", None)  # it is told by what changed
    return replace(case, **given)
