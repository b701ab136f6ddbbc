"""CK312: what should be two tensors is one in the file."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ckptcheck.finding import Place, Severity
from ckptcheck.optimizers.row import Kind
from ckptcheck.rules.rule import Evidence, Rule, rule
from ckptcheck.rules.stored.optimizer_state import Kept, optimizers_of
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTensor, tensors_in
from ckptcheck.state.tensor import TensorRef
from ckptcheck.state.training_state import Entry, TrainingState

_OWN: Final = frozenset({Kind.PARAMETER, Kind.ROWS, Kind.COLUMNS, Kind.STACKED})
"""State that belongs to one parameter and follows its gradients; maps of a quantisation are often shared."""
_COPY: Final = re.compile(
    r"(?:^|[._])(?:best|swa|avg|averaged?|shadow|teacher|target|snapshot|backup|prev|previous|old|init|initial|copy)"
    r"(?:$|[._])",
    re.IGNORECASE,
)
"""In the key of weights that were put aside; a second key for the same ones, as "net" beside "model", is none."""
_EMA: Final = "ema"
"""The average is CK208's affair."""

_Spot: TypeAlias = tuple[object, ...]


class _Owner(NamedTuple):
    """A parameter and a key of its state."""

    name: str
    key: str


@rule("CK312", "aliased-copies", Severity.ERROR)
def aliased_copies(stored: Stored) -> Iterator[Evidence]:
    """Two things that must be two tensors are the very same bytes of the file: one of them was lost, or never copied.

    Why: of two moments in one buffer the later one is left, and after `torch.load` both are still one tensor, so that
    every update overwrites the other. Best weights that are the last ones cannot be gone back to.
    Example: FSDP1's whole optimizer state on a CPU, gathered into a buffer that is used again; `best =
    model.state_dict()` without a copy, which the training goes on changing.
    Fix: `clone()` each tensor of the optimizer state when it is gathered; `copy.deepcopy(model.state_dict())` for best
    weights.
    Limits: optimizer state is an error, told where the optimizer's class is known. Further weights ("best", "target",
    "swa", ...) that are all the model's own are a warning: a script may save the last weights twice where they are the
    best. Tied weights, slices of one flat buffer, one-element state, and equal bytes in two places are silent; an
    average that is no copy is CK208.
    """
    for one in optimizers_of(stored) if stored.purpose is Purpose.RESUME else ():
        yield from _one_for_two(one, stored.checkpoint.state)
    yield from _no_copies(stored.checkpoint)


def _one_for_two(one: Kept, state: TrainingState) -> Iterator[Evidence]:
    within: dict[tuple[str, ...], list[str]] = defaultdict(list)
    across: list[tuple[_Owner, _Owner]] = []
    for owners in _shared(one).values():
        keys: dict[str, list[str]] = defaultdict(list)
        for owner in owners:
            keys[owner.name].append(owner.key)
        for name, own in keys.items():
            if len(own) > 1:
                within[tuple(own)].append(name)
        first = owners[0]
        other = next((each for each in owners if each.name != first.name and _are_two(first, each, state)), None)
        if other is not None:
            across.append((first, other))
    for same, parameters in within.items():
        yield Evidence(
            f"{' and '.join(same)} of {count(parameters, 'parameter')} in optimizer {one.place} are the very same "
            f"bytes of the file: {names(parameters)}; one was lost when it was saved, and a resume updates both as one",
            Place(parameter=parameters[0], key=same[1], optimizer=one.place, group=one.members.get(parameters[0])),
            {"keys": kept(same), "parameters": kept(parameters), "count": len(parameters)},
            "clone each tensor of the optimizer state before it is saved; resume from another checkpoint",
        )
    if across:
        left, right = across[0]
        pairs = [f"{ours.key} of {ours.name} and {theirs.key} of {theirs.name}" for ours, theirs in across]
        yield Evidence(
            f"{names(pairs)} in optimizer {one.place} {'is' if len(pairs) == 1 else 'are each'} one tensor of the "
            "file: the state of one parameter was lost when it was saved",
            Place(parameter=right.name, key=right.key, optimizer=one.place, group=one.members.get(right.name)),
            {"shared_with": left.name, "pairs": kept(pairs), "count": len(pairs)},
            "clone each tensor of the optimizer state before it is saved; resume from another checkpoint",
        )


def _shared(one: Kept) -> Mapping[_Spot, Sequence[_Owner]]:
    """Bytes that are the state of several, by their place in the files."""
    kinds: dict[str, set[Kind]] = defaultdict(set)
    for row in one.rows:
        for key, kind in row.keys.items():
            kinds[key].add(kind)
    own = {key for key, found in kinds.items() if found <= _OWN}
    if not own or one.is_one_state:
        return {}
    places: dict[_Spot, list[_Owner]] = defaultdict(list)
    for name, state in one.optimizer.state.items():
        for key in sorted(own & state.keys()):
            spot = _spot(state[key].ref)
            if spot is not None:
                places[spot].append(_Owner(name, key))
    return {spot: sorted(owners) for spot, owners in places.items() if len(owners) > 1}


def _spot(ref: TensorRef | None) -> _Spot | None:
    """Where a tensor of more than one element lies; None for one number that was expanded, and where nobody knows."""
    if not isinstance(ref, RawTensor) or ref.spec.numel < 2 or ref.shard is not None:
        return None
    sizes = zip(ref.spec.shape, ref.stride or (), strict=False)
    is_expanded = ref.stride is not None and all(stride == 0 for size, stride in sizes if size > 1)
    return None if is_expanded else ref.place


def _are_two(one: _Owner, other: _Owner, state: TrainingState) -> bool:
    """Whether two names are surely two parameters: numbers are, and so are two of the model's that are not tied."""
    if one.name.startswith("#") and other.name.startswith("#"):
        return True
    held = [state.parameters.get(one.name), state.parameters.get(other.name)]
    if held[0] is None or held[1] is None or other.name in held[0].aliases:
        return False
    spots = [_place(each.entry) for each in held if each is not None]
    return spots[0] is None or spots[0] != spots[1]


def _place(entry: Entry) -> _Spot | None:
    return entry.ref.place if isinstance(entry.ref, RawTensor) else None


def _no_copies(checkpoint: Checkpoint) -> Iterator[Evidence]:
    """Further weights that were put aside and are the model's own, tensor for tensor."""
    state = checkpoint.state
    further = {key: one for key, one in checkpoint.models.items() if _COPY.search(key) and key != _EMA}
    if not further:
        return
    own = {_place(one.entry) for one in state.parameters.values()} | {_place(one) for one in state.buffers.values()}
    for key, value in further.items():
        spots = Counter(one.place for one in tensors_in(value))
        if None in spots or not spots.keys() <= own or not any(one.spec.numel > 1 for one in tensors_in(value)):
            continue
        reached = Counter(one.place for one in tensors_in(checkpoint.raw.root))
        if all(reached[spot] > times for spot, times in spots.items()):
            yield Evidence(
                f"the weights under {key} are no copy: all {len(spots)} tensors of it are the model's own in the file, "
                "so the two are the last ones",
                Place(key=key, parameter=next(iter(state.parameters), None)),
                {"tensors": len(spots), "weights": key},
                "put copy.deepcopy(model.state_dict()) aside: the tensors of state_dict() go on being trained",
                Severity.WARNING,
            )


RULES: Final[tuple[Rule[Stored], ...]] = (aliased_copies,)
