"""What each kind of item is sampled from. Generators of (item, live leaf): nothing is digested here."""

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import torch

from ckptcheck.state.flags import compiled_modules, flags
from ckptcheck.state.tensor_bytes import contiguous_bytes
from ckptcheck.state.training_state import unnamed
from ckptcheck.state.tree import flatten, is_plain
from ckptcheck.trace.items import Item, Sample
from ckptcheck.trace.measuring import plain
from ckptcheck.trace.subjects import Subjects

Leaves: TypeAlias = Iterator[tuple[Item, Any]]
_LEAVES: Final = frozenset({torch.Tensor, torch.nn.Parameter, bool, int, float, str, type(None)})


_last: dict[str, tuple[Any, Any]] = {}


def _made(name: str, basis: Any, make: Callable[[], Any]) -> Any:
    """What is made from a basis; the very same object as the last time where the basis has not changed."""
    known = _last.get(name)
    if known is None or known[0] != basis:
        known = _last[name] = (basis, make())
    return known[1]


def generators() -> Leaves:
    """The state of torch's CPU generator, of each CUDA device's in use, of numpy's and of python's."""
    state = torch.get_rng_state()
    yield Item("rng", "torch"), _made("torch", bytes(contiguous_bytes(state)), lambda: state)
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for device in range(torch.cuda.device_count()):
            yield Item("rng", f"cuda:{device}"), torch.cuda.get_rng_state(device)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        held = numpy.random.get_state(legacy=False)
        yield Item("rng", "numpy"), _made("numpy", _basis(held), lambda: held)
    now = random.getstate()
    yield Item("rng", "python"), _made("python", now, lambda: repr(now))


def _basis(state: Any) -> Any:
    """What the state of numpy's generator is made of, as something that is compared fast; itself where it is odd."""
    inner = state.get("state")
    if not isinstance(inner, dict):
        return object()
    parts = (one.tobytes() if hasattr(one, "tobytes") else one for one in inner.values())
    return (*parts, *(one for key, one in state.items() if key != "state"))


def parameters(subjects: Subjects) -> Leaves:
    """Every parameter of the model, by its first name."""
    yield from subjects.items("param", subjects.names().parameters)


def buffers(subjects: Subjects) -> Leaves:
    """Every buffer of the model, persistent or not."""
    yield from subjects.items("buffer", subjects.names().buffers)


def hyperparameters(subjects: Subjects, place: int, part: int = 0) -> Leaves:
    """Every value of every group of one optimizer."""
    for group, values in enumerate(subjects.optimizers()[place].param_groups):
        for key, value in values.items():
            if key not in ("params", "param_names"):
                for path, leaf in flatten(value, key):
                    yield Item("hyper", "", path, place, group, part), leaf


def optimizer_state(subjects: Subjects, place: int) -> Leaves:
    """Every state entry of one optimizer, by parameter name and state key."""
    optimizer = subjects.optimizers()[place]
    names = subjects.names()
    slots: dict[int, str] = {}
    for index, (tensor, entries) in enumerate(getattr(optimizer, "state", {}).items()):
        if not isinstance(tensor, torch.Tensor):  # some optimizers keep global entries under a string
            # One that is called as a parameter is not that parameter's: no update reads it there.
            own = f"'{tensor}'" if tensor in names.parameters else str(tensor)
            yield from _entries(subjects, own, entries, place)
            continue
        name = names.name_of(tensor)
        if name is None:
            slots = slots or {id(slot.tensor): slot.name for slot in subjects.slots(optimizer)}
            name = slots.get(id(tensor)) or unnamed(-1, index)
        yield from _entries(subjects, name, entries, place)


def _entries(subjects: Subjects, name: str, entries: Any, place: int) -> Leaves:
    if not entries:  # looking an entry up leaves an empty one behind, which holds nothing
        return
    if type(entries) is dict and all(type(key) is str and type(one) in _LEAVES for key, one in entries.items()):
        yield from zip(subjects.entries(place, name, tuple(entries)), entries.values(), strict=True)
        return
    for key, leaf in flatten(entries):
        yield Item("state", name, key, place), leaf


def inputs(module: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], part: int) -> Leaves:
    """What enters a module; a batch that is an object of a class of its own is opened up."""
    entering = {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    for path, leaf in flatten(entering):
        for inner, value in flatten(_fields(leaf), path):
            yield Item("inputs", module, inner, part=part), value


def _fields(value: Any) -> Any:
    """An object that carries tensors or arrays as a mapping of its fields; anything else as it is."""
    if isinstance(value, torch.Tensor | torch.nn.Module | type) or callable(value) or is_plain(value):
        return value
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if isinstance(name, str)]
    fields = {
        **{name: getattr(value, name) for name in slots if hasattr(value, name)},
        **getattr(value, "__dict__", {}),
    }
    carries = any(isinstance(one, torch.Tensor) or type(one).__module__ == "numpy" for one in fields.values())
    return fields if carries else value


def sections(subjects: Subjects) -> Leaves:
    """The state_dicts of schedules, scalers, EMA, data and whatever else the run declared."""
    for kind, objects in subjects.sections().items():
        for prefix, one in objects.items():
            tree = one.state_dict() if hasattr(one, "state_dict") else one
            for path, leaf in flatten(tree, prefix):
                yield Item(kind, path), leaf


def binding(subjects: Subjects) -> Leaves:
    """Who is in which group, and which parameters are not trained, as canonical JSON texts."""
    groups: list[dict[str, Any]] = [
        {
            "class": class_of(optimizer),
            "groups": [[None] * len(group["params"]) for group in optimizer.param_groups],
        }
        for optimizer in subjects.optimizers()
    ]
    for place, optimizer in enumerate(subjects.optimizers()):
        for slot in subjects.slots(optimizer):
            groups[place]["groups"][slot.group][slot.place] = slot.name if slot.held else None
    frozen = [name for name, one in subjects.names().parameters.items() if not one.requires_grad]
    yield Item("structure", "groups"), _made("groups", groups, lambda: json.dumps(groups))
    yield Item("structure", "frozen"), _made("frozen", frozen, lambda: json.dumps(frozen))


def class_of(optimizer: Any) -> str:
    """The class by its name; with its module where it is not the class of that name which torch has."""
    kind = type(optimizer)
    known = getattr(torch.optim, kind.__name__, None)
    if known is None or (isinstance(known, type) and issubclass(kind, known)):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def modes(subjects: Subjects) -> Leaves:
    """Ties, modules in evaluation mode, and the switches of torch that change numbers, as JSON texts."""
    names = subjects.names()
    yield Item("structure", "ties"), json.dumps({name: list(more) for name, more in names.aliases.items()})
    yield Item("structure", "eval"), json.dumps([name for name, one in names.modules.items() if not one.training])
    yield Item("structure", "flags"), json.dumps({**flags(), "compiled_modules": _compiled(subjects.model())})


def _compiled(model: Any) -> int:
    """How many modules of a run are compiled; names leave that wrapper out."""
    roots = list(model.values()) if isinstance(model, Mapping) else [model]
    return compiled_modules(module for root in roots if isinstance(root, torch.nn.Module) for module in root.modules())


def was_skipped(optimizer: Any) -> bool:
    """Whether a fused optimizer was called by a gradient scaler that found an overflow: it then changes nothing."""
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, torch.Tensor) and bool(found.any())


def updates(count: int) -> Sample:
    """A sample of how many updates an optimizer has applied in a step."""
    return plain(count)
