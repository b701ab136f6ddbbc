"""Megatron-LM's optimizers: torch's own with float32 masters beside, or groups here and buckets without names there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ckptcheck.conventions.entries import entries
from ckptcheck.conventions.groups import explain_optimizer, is_optimizer
from ckptcheck.conventions.parts import put
from ckptcheck.conventions.regrouping import param_groups_of
from ckptcheck.conventions.weights import Weights
from ckptcheck.state.checkpoint import NameSource, Naming
from ckptcheck.state.raw import Raw, RawTensor
from ckptcheck.state.training_state import Entry, Optimizer

FP32: Final = "fp32_param"
MASTERS: Final = ("fp32_from_fp16_params", "fp32_from_fp16")
_INNER: Final = ("optimizer", "optimizer_state_dict")
SCALER: Final = "grad_scaler"
IN_BUCKETS: Final = (
    "the distributed optimizer keeps its state in buckets of several parameters each, without their names: it cannot "
    "be aligned with parameters unless the model is built as the writer built it"
)
SOME_LAYERS: Final = "each data-parallel rank keeps the state of some parameters, and does not say of which"
NO_MEMBERS: Final = "the groups do not say which parameters are in them"


@dataclass(slots=True)
class Kept:
    """One optimizer as it was saved.

    Attributes:
        label: what the file calls it.
        inner: torch's state_dict, under a distributed optimizer its groups without members.
        scaler: the gradient scaler's state; None without.
        buckets: state by bucket and key; empty where the state is keyed by parameter.
        beside: what else lay with it, by path.
        reason: why its parameters cannot be named; "" where they may be.
    """

    label: str
    inner: dict[Any, Raw]
    scaler: Raw = None
    buckets: dict[str, Raw] = field(default_factory=dict)
    beside: dict[str, Raw] = field(default_factory=dict)
    reason: str = ""


def kept_optimizers(label: str, value: Raw, buckets: Raw) -> tuple[list[Kept], dict[str, Raw]]:
    """The optimizers of one rank's `optimizer`, one or a chain; and what is none, by path."""
    chain = _chain(value)
    of_each = list(buckets) if isinstance(buckets, list | tuple) else [buckets]
    found: list[Kept] = []
    strange: dict[str, Raw] = {}
    for place, one in enumerate(chain):
        here = f"{label}[{place}]" if len(chain) > 1 else label
        kept = _kept(here, one)
        if kept is None:
            strange[here] = one
            kept = Kept(here, {"state": {}, "param_groups": []})
        if place < len(of_each) and of_each[place] is not None:
            _add_buckets(kept, of_each[place])
        if kept.buckets or is_optimizer(kept.inner):
            found.append(kept)
        else:
            strange.update(kept.beside)
    strange.update({f"{label}.buckets[{place}]": one for place, one in enumerate(of_each) if place >= len(chain)})
    return found, {path: one for path, one in strange.items() if one is not None}


def _chain(value: Raw) -> list[Raw]:
    """Chained optimizers are a list, or a dict by their places."""
    if isinstance(value, list | tuple) and value:
        return list(value)
    if isinstance(value, Mapping) and value:
        places = {str(key): one for key, one in value.items()}
        if all(key.isdecimal() and len(key) < 6 for key in places):
            return [places[key] for key in sorted(places, key=int)]
    return [value]


def _kept(label: str, value: Raw) -> Kept | None:
    if is_optimizer(value):
        return Kept(label, dict(value))
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("state"), Mapping) and isinstance(value.get("param_to_group_meta"), Mapping):
        meta = {str(name): one for name, one in value["param_to_group_meta"].items() if isinstance(one, Mapping)}
        inner = {"state": value["state"], "param_groups": param_groups_of(meta)}
        rest = {key: one for key, one in value.items() if key not in ("state", "param_to_group_meta")}
        return Kept(label, {**inner, **rest})
    key = next((key for key in _INNER if is_optimizer(value.get(key))), None)
    if key is None:
        return None
    kept = Kept(label, dict(value[key]), value.get(SCALER))
    for name, one in value.items():
        if name in MASTERS and _with_masters(kept.inner, one):
            continue
        if name not in (key, SCALER):
            kept.beside[f"{label}.{name}"] = one
    return kept


def _with_masters(inner: dict[Any, Raw], masters: Raw) -> bool:
    """Put float32 weights, listed as the groups' members are, into their state; False where the lists are unlike."""
    groups, state = inner["param_groups"], dict(inner.get("state", {}))
    if not isinstance(masters, list | tuple) or len(masters) != len(groups):
        return False
    pairs: list[tuple[Any, Raw]] = []
    for group, tensors in zip(groups, masters, strict=True):
        listed = group.get("params")
        if not isinstance(listed, list | tuple) or not isinstance(tensors, list | tuple) or len(listed) != len(tensors):
            return False
        pairs += zip(listed, tensors, strict=True)
    held = [state.get(key, {}) for key, _ in pairs]
    if not all(isinstance(one, Mapping) and FP32 not in one for one in held):
        return False
    if not all(isinstance(key, int | str) and isinstance(tensor, RawTensor) for key, tensor in pairs):
        return False
    for (key, tensor), one in zip(pairs, held, strict=True):
        state[key] = {**one, FP32: tensor}
    inner["state"] = state
    return True


def _add_buckets(kept: Kept, value: Raw) -> None:
    """The state of a distributed optimizer, by buffer, dtype and, in some formats, bucket."""
    if not isinstance(value, Mapping):
        kept.beside[f"{kept.label}.buckets"] = value
        return
    rest: dict[str, Raw] = {}
    for key, one in value.items():
        for name, state in _buckets(str(key), one, rest):
            tensors = {inner: held for inner, held in state.items() if isinstance(held, RawTensor)}
            own = {FP32 if key == "param" and FP32 not in tensors else key: one for key, one in tensors.items()}
            path = put(kept.buckets, name, own)
            beside = {inner: held for inner, held in state.items() if inner not in tensors}
            if beside:
                put(rest, path, beside)
    kept.beside.update({f"{kept.label}.buckets.{name}": one for name, one in rest.items()})


def _buckets(name: str, value: Raw, rest: dict[str, Raw]) -> Iterator[tuple[str, Mapping[str, Raw]]]:
    """Each innermost dict with tensors in it, by a name made of the keys above it; `rest` gets what is none."""
    if isinstance(value, Mapping) and any(isinstance(one, RawTensor) for one in value.values()):
        texts: dict[str, Raw] = {}
        for key, one in value.items():
            put(texts, str(key), one)
        yield name, texts
    elif isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _buckets(f"{name}, {_text(key)}", one, rest)
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in value):
        for place, one in enumerate(value):
            yield from _buckets(f"{name}[{place}]", one, rest)
    else:
        put(rest, name, value)


def _text(key: Any) -> str:
    """A key of dtypes: those of parameter and gradient."""
    parts = key if isinstance(key, tuple) else (key,)
    return "/".join(str(one).removeprefix("torch.") for one in parts)


def explained(
    kept: Kept, model: Weights, names: Sequence[str] | None
) -> tuple[Optimizer, Naming, dict[str, Raw], list[str]]:
    """The optimizer by name, how it got them, what lay in it beside, and notes."""
    if not kept.buckets:
        done = explain_optimizer(kept.inner, Weights() if kept.reason else model, names)
        if kept.reason and done.naming.source is NameSource.NONE:
            done = replace(done, naming=replace(done.naming, reason=kept.reason))
        rest = {f"{kept.label}.{path}": one for path, one in done.rest.items()}
        return done.optimizer, done.naming, rest, [f"{kept.label} {said}" for said in done.notes]
    held = {"state": {}, **kept.inner}
    done = explain_optimizer(held, model, None)
    state: dict[str, Mapping[str, Entry]] = {**done.optimizer.state}
    state.update({f"bucket {name}": entries(one) for name, one in kept.buckets.items()})
    naming = Naming(NameSource.NONE, certain=False, reason=IN_BUCKETS)
    rest = {f"{kept.label}.{path}": one for path, one in done.rest.items()}
    return replace(done.optimizer, state=state), naming, rest, [f"{kept.label}: {IN_BUCKETS}"]


def by_name(
    label: str, kept: Sequence[Kept], state: Mapping[str, Mapping[str, Raw]], model: Weights
) -> tuple[Optimizer, Naming, list[str]]:
    """The optimizer of a distributed checkpoint, whose state is keyed by name and whose groups have no members."""
    held: dict[str, Mapping[str, Entry]] = {model.name_of(name): entries(one) for name, one in state.items()}
    groups = [
        group for one in kept for group in explain_optimizer({"state": {}, **one.inner}, model, None).optimizer.groups
    ]
    notes = []
    if len(groups) == 1 and not groups[0].members:
        groups = [replace(groups[0], members=tuple(held))]
    elif groups and not any(one.members for one in groups):
        notes.append(f"{label}: {NO_MEMBERS}")
    naming = Naming(NameSource.KEYS, certain=True, reason="the state is keyed by name")
    return Optimizer(None, tuple(groups), held), naming, notes
