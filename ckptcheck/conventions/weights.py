"""A model's state_dict as parameters and buffers."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ckptcheck.conventions.entries import entries, leaves
from ckptcheck.conventions.wrappers import Stripper
from ckptcheck.state.raw import Foreign, Raw, RawTensor
from ckptcheck.state.training_state import Entry, Parameter
from ckptcheck.state.tree import flatten

BUFFER_NAMES: Final = frozenset(
    {"running_mean", "running_var", "num_batches_tracked", "inv_freq", "original_inv_freq", "n_averaged"}
)
"""Last parts of names that only buffers have."""
WEIGHT: Final = "weight"
_TRAINABLE: Final = ("float", "bfloat", "complex")


@dataclass(frozen=True, slots=True)
class Weights:
    """A model as its file holds it.

    Attributes:
        parameters: by stripped name, in the file's order; a tensor is a buffer only where that is sure.
        buffers: by stripped name.
        shapes: of each parameter; one of several parts (sparse, quantised) stands here as a whole, under its own name.
        ordered: whether the file keeps the order in which the model registered its parameters.
        strip: takes wrapper prefixes off a name of this model.
        alias_of: each further name of a tied parameter to its first.
        rest: what stands in the state_dict and is no tensor, by path.
        beside: names of further models' weights, with and without their model's key, which an optimizer may train.
    """

    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    buffers: Mapping[str, Entry] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ordered: bool = False
    strip: Stripper = field(default_factory=lambda: Stripper(()))
    alias_of: Mapping[str, str] = field(default_factory=dict)
    rest: Mapping[str, Entry] = field(default_factory=dict)
    beside: Collection[str] = ()

    def name_of(self, raw_name: str) -> str:
        """The name under which the model's tensor stands here, given as the file writes it."""
        name = self.strip.strip(raw_name)
        return self.alias_of.get(name, name)


def weights(model: Raw, *, ordered: bool, optimized: Collection[str] = ()) -> Weights:
    """Parameters and buffers of a state_dict, of a dict of state_dicts, or of a pickled module.

    `optimized` are names, as the file writes them, that an optimizer holds: these are parameters. Wrapper
    prefixes are stripped; a tensor that shares another's bytes is an alias of the first.
    """
    marks: dict[str, bool] = {}
    tree = dict(module_tensors(model, "", marks)) if is_module(model) else model
    found = {} if tree is None else dict(leaves(tree))
    tensors = {path: leaf for path, leaf in found.items() if isinstance(leaf, RawTensor)}
    marks |= dict.fromkeys(_carried(tensors), True)
    strip = Stripper(tensors, beside=found)
    rest = {strip.strip(path): leaf for path, leaf in found.items() if path not in tensors and not _is_empty(leaf)}
    parameters: dict[str, Parameter] = {}
    buffers: dict[str, Entry] = {}
    aliases: dict[str, str] = {}
    first: dict[Any, str] = {}
    trained = {strip.strip(name) for name in optimized}
    wholes, of_parts = _parts(tree, tensors)
    for path, tensor in tensors.items():
        name, place, whole = strip.strip(path), tensor.place, wholes.get(path, path)
        if place is not None and place in first and first[place] in parameters:
            aliases[name] = first[place]
        elif strip.strip(whole) not in trained and is_buffer(whole, tensor, marks.get(whole), is_part=path in wholes):
            buffers[name] = Entry(tensor.spec, None, ref=tensor)
        else:
            parameters[name] = Parameter(name, Entry(tensor.spec, None, ref=tensor), requires_grad=_trains(tensor))
        if place is not None:
            first.setdefault(place, name)
    for name, owner in aliases.items():
        parameters[owner] = replace(parameters[owner], aliases=(*parameters[owner].aliases, name))
    shapes: dict[str, tuple[int, ...]] = {}
    for path in tensors:
        name, whole = strip.strip(path), wholes.get(path, path)
        if name in parameters and (shape := of_parts.get(whole) or whole_shape(parameters[name].entry)) is not None:
            shapes.setdefault(strip.strip(whole), shape)
    return Weights(parameters, buffers, shapes, ordered, strip, aliases, entries(rest) if rest else {})


def whole_shape(entry: Entry) -> tuple[int, ...] | None:
    """The shape of a tensor, of all ranks' pieces together; None for a plain value."""
    shard = entry.ref.shard if isinstance(entry.ref, RawTensor) else None
    if shard is not None:
        return shard.whole_shape
    return entry.spec.shape if entry.spec else None


def is_buffer(name: str, tensor: RawTensor, marked: bool | None = None, *, is_part: bool = False) -> bool:
    """Whether a tensor surely is a buffer. `marked` says it where a pickled module does.

    Of a tensor of several parts `name` is the whole's, and a part is what the whole is: the dtype of one, as of a
    sparse tensor's indices, tells nothing. Nor does it of what is called a weight.
    """
    if marked is not None:
        return marked
    if tensor.is_parameter is not None:
        return not tensor.is_parameter
    if name.rpartition(".")[2] in BUFFER_NAMES:
        return True
    return not (is_part or name.rpartition(".")[2] == WEIGHT or tensor.spec.dtype.startswith(_TRAINABLE))


def is_module(value: Raw) -> bool:
    """Whether this is a pickled torch module, told by its attributes."""
    state = value.state if isinstance(value, Foreign) else None
    return isinstance(state, Mapping) and all(
        isinstance(state.get(key), Mapping) for key in ("_parameters", "_buffers", "_modules")
    )


def module_tensors(module: Foreign, path: str, marks: dict[str, bool]) -> Iterator[tuple[str, Raw]]:
    """Every parameter and buffer of a pickled module by its name; `marks` learns which are buffers."""
    waiting: list[tuple[str, Foreign]] = [(path, module)]
    while waiting:
        here, one = waiting.pop()
        for kind in ("_parameters", "_buffers"):
            for key, tensor in one.state[kind].items():
                if tensor is not None:
                    name = f"{here}.{key}" if here else str(key)
                    marks[name] = kind == "_buffers"
                    yield name, tensor
        children = [(f"{here}.{key}" if here else str(key), child) for key, child in one.state["_modules"].items()]
        waiting.extend(reversed([(name, child) for name, child in children if is_module(child)]))


def _parts(tree: Raw, tensors: Mapping[str, RawTensor]) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    """The path of the whole for each tensor that is a part of one (sparse, quantised), and each whole's shape."""
    of_parts = {
        path: leaf.spec.shape for path, leaf in flatten(tree) if isinstance(leaf, Foreign) and leaf.spec is not None
    }
    wholes: dict[str, str] = {}
    for path in tensors if of_parts else ():
        ends = (place for place, character in enumerate(path) if character in ".[")
        whole = next((path[:end] for end in ends if path[:end] in of_parts), None)
        if whole is not None:
            wholes[path] = whole
    return wholes, of_parts


def _carried(tensors: Mapping[str, RawTensor]) -> Iterator[str]:
    """The tensors that others carry as attributes, a quantised weight its scales: no parameters."""
    owner = ""
    for path, tensor in tensors.items():
        if owner and path.startswith((f"{owner}.", f"{owner}[", f"{owner}{{")):
            yield path
        else:
            owner = path if tensor.attributes else ""


def _trains(tensor: RawTensor) -> bool | None:
    return tensor.requires_grad if tensor.is_parameter else None


def _is_empty(leaf: Any) -> bool:
    return isinstance(leaf, Mapping | list | tuple) and not leaf
