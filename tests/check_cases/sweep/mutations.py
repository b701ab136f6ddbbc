"""What can go wrong with a healthy checkpoint, done at random, and the code and the parameter that must tell it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.check_cases.sweep.draws import Draw

Saved = dict[str, Any]
OPTIMIZER_KEYS = ("optimizer", "optimizer_state_dict")
MODEL_KEYS = ("model", "state_dict", "model_state_dict")
SQUARES = ("exp_avg_sq", "square_avg", "sum", "max_exp_avg_sq")


@dataclass(frozen=True, slots=True)
class Done:
    """One fault that was put in: one of `codes` must be told, of one of the names in `whose`; anything where empty.

    `beside` says what it takes to see: "earlier", the checkpoint before, or "healthy", the one that was changed.
    """

    what: str
    codes: tuple[str, ...]
    whose: tuple[str, ...]
    beside: str = ""


Mutate = Callable[[Saved, Draw], Done | None]
"""Changes what is saved; None where there is nothing to change."""


def _held(state: Saved, draw: Draw) -> tuple[dict[str, Any], dict[int, str]]:
    """One optimizer's state_dict and the names of its indices, as far as groups give them."""
    found = state[next(key for key in OPTIMIZER_KEYS if key in state)]
    one = draw.random.choice(found) if isinstance(found, list) else found
    named = {
        index: name
        for group in one["param_groups"]
        for index, name in zip(group["params"], group.get("param_names", ()), strict=False)
    }
    return one, named


def _said(index: int, named: dict[int, str]) -> tuple[str, ...]:
    """What a finding may call it; without names in the file its place is what can be asked for, or any name."""
    return (named[index],) if named else ()


def drop_an_entry(state: Saved, draw: Draw) -> Done | None:
    """All state of one parameter."""
    held, named = _held(state, draw)
    if len(held["state"]) < 2:
        return None
    index = draw.random.choice([*held["state"]])
    del held["state"][index]
    return Done("drop an entry", ("CK202",), _said(index, named))


def drop_a_key(state: Saved, draw: Draw) -> Done | None:
    """One key of one parameter's state."""
    held, named = _held(state, draw)
    able = [index for index, one in held["state"].items() if len(one) > 1]
    if not able:
        return None
    index = draw.random.choice(able)
    key = draw.random.choice([*held["state"][index]])
    del held["state"][index][key]
    return Done(f"drop a key ({key})", ("CK203",), _said(index, named))


def swap_two(state: Saved, draw: Draw) -> Done | None:
    """The state of two parameters of one shape, of which both were trained."""
    held, named = _held(state, draw)
    by_shape: dict[Any, list[int]] = {}
    for index, one in held["state"].items():
        tensors = [value for key, value in one.items() if torch.is_tensor(value) and value.ndim and value.any()]
        if tensors and index in named:
            by_shape.setdefault((tuple(tensors[0].shape), *one), []).append(index)
    able = [one for one in by_shape.values() if len(one) > 1]
    if not able:
        return None
    left, right = draw.random.sample(draw.random.choice(able), 2)
    held["state"][left], held["state"][right] = held["state"][right], held["state"][left]
    return Done("swap two", ("CK302",), (named[left], named[right]), beside="healthy")


def put_nan(state: Saved, draw: Draw) -> Done | None:
    """A NaN in a moment."""
    held, named = _held(state, draw)
    able = [(index, key) for index, one in held["state"].items() for key, value in one.items()
            if torch.is_tensor(value) and value.is_floating_point() and value.ndim and value.numel()]  # fmt: skip
    if not able:
        return None
    index, key = draw.random.choice(able)
    held["state"][index][key] = held["state"][index][key].clone()
    held["state"][index][key].view(-1)[0] = float("nan")
    return Done(f"NaN in {key}", ("CK501",), _said(index, named))


def put_negative(state: Saved, draw: Draw) -> Done | None:
    """A negative second moment."""
    held, named = _held(state, draw)
    able = [(index, key) for index, one in held["state"].items() for key in SQUARES
            if torch.is_tensor(one.get(key)) and one[key].ndim and not one[key].is_complex()]  # fmt: skip
    if not able:
        return None
    index, key = draw.random.choice(able)
    held["state"][index][key] = held["state"][index][key].clone()
    held["state"][index][key].view(-1)[-1] = -1.0
    return Done(f"negative {key}", ("CK502",), _said(index, named))


def nan_weight(state: Saved, draw: Draw) -> Done | None:
    """A NaN in a weight."""
    model = state[next(key for key in MODEL_KEYS if key in state)]
    able = [name for name, one in model.items() if one.is_floating_point() and one.numel() and "mask" not in name]
    name = draw.random.choice(able)
    model[name] = model[name].clone()
    model[name].view(-1)[0] = float("nan")
    aliases = tuple(other.removeprefix("module.").removeprefix("_orig_mod.") for other in model if other != name)
    tied = [other for other in aliases if other in ("head.weight", "embedding.weight")]
    bare = name.removeprefix("module.").removeprefix("_orig_mod.")
    return Done("NaN in a weight", ("CK501",), (bare, *(tied if bare in ("head.weight", "embedding.weight") else ())))


def go_back(state: Saved, draw: Draw) -> Done | None:
    """The counter of one parameter is zero again."""
    held, named = _held(state, draw)
    able = [index for index, one in held["state"].items() if "step" in one and float(one["step"]) > 0]
    if not able:
        return None
    index = draw.random.choice(able)
    old = held["state"][index]["step"]
    held["state"][index]["step"] = torch.zeros_like(old) if torch.is_tensor(old) else 0
    return Done("counter is zero", ("CK505",), _said(index, named), beside="earlier")


def move_to_a_group(state: Saved, draw: Draw) -> Done | None:
    """One parameter with its name in another group."""
    held, _ = _held(state, draw)
    groups = held["param_groups"]
    able = [group for group in groups if len(group["params"]) > 1 and group.get("param_names")]
    if len(groups) < 2 or not able:
        return None
    one = draw.random.choice(able)
    other = draw.random.choice([group for group in groups if group is not one])
    place = draw.random.randrange(len(one["params"]))
    name = one["param_names"][place]
    for key in ("params", "param_names"):
        other[key] = [*other[key], one[key][place]]
        one[key] = [*one[key][:place], *one[key][place + 1 :]]
    return Done("move to a group", ("CK301",), (name,), beside="earlier")


MUTATIONS: tuple[Mutate, ...] = (
    drop_an_entry, drop_a_key, swap_two, put_nan, put_negative, nan_weight, go_back, move_to_a_group,
)  # fmt: skip
