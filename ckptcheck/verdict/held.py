"""A file held against live objects after a load: the file's tensors digested as the recorder digests live ones."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from ckptcheck.comparison.states import StateDiff, compare_states
from ckptcheck.rules.loads.dry_run import DryRun, Paired, Slot, slot_of
from ckptcheck.state.digest import PLAIN_DIGEST, XXH3_128, Digest
from ckptcheck.state.raw import tensors_in
from ckptcheck.state.scalars import number_in
from ckptcheck.state.tensor import TensorRef
from ckptcheck.state.training_state import Entry, Optimizer, Parameter, TrainingState
from ckptcheck.verdict.pairing import pair_optimizers

MAX_ROUNDED_BYTES: Final = 1 << 30
"""So much of what a load has changed is held against roundings of the file's."""
_CHUNK_BYTES: Final = 1 << 22
_NOTHING: Final = Optimizer(None, ())


def held_against(dry: DryRun, loaded: TrainingState | None) -> DryRun:
    """The dry-run with its optimizers paired and, where a load was made, its result compared with the file.

    Pairs that it has already are kept.
    Raises DamagedCheckpointError where bytes are missing.
    """
    digests = Digests()
    found = dry.pairs or pair_optimizers(dry.checkpoint, dry.built)
    pairs = tuple(replace(one, file=_with_digested_groups(one.file, digests)) if one.file else one for one in found)
    renamed = [one.file for one in pairs if one.file is not None]
    state = dry.checkpoint.state
    parameters = {**state.parameters, **_tied(dry, digests)}
    known = replace(state, parameters=parameters, optimizers=tuple(renamed) or state.optimizers)
    checkpoint = replace(dry.checkpoint, state=known)
    dry = replace(dry, checkpoint=checkpoint, pairs=pairs)
    if loaded is None:
        return dry
    load = _compared(state, pairs, loaded, digests)
    held = frozenset(_held(dry, load, loaded, digests))
    return replace(dry, loaded=loaded, load=load, held=held, rounded=dict(_rounded(dry, load)))


def _tied(dry: DryRun, digests: "Digests") -> dict[str, Parameter]:
    """The file's parameters that are several where the target has one, with digests to tell whether they are equal."""
    stored = dry.checkpoint.state.parameters
    ties = [{name, *one.aliases} & stored.keys() for name, one in dry.built.parameters.items() if one.aliases]
    return {
        name: replace(stored[name], entry=digests.entry(stored[name].entry))
        for names in ties
        if len(names) > 1
        for name in names
    }


class Digests:
    """Digests of a file's tensors, each read once, through one buffer."""

    def __init__(self) -> None:
        self._buffer = bytearray(_CHUNK_BYTES)
        self._known: dict[int, tuple[TensorRef, Digest]] = {}

    def of(self, ref: TensorRef) -> Digest:
        """The digest of the tensor's bytes."""
        if id(ref) not in self._known:
            self._known[id(ref)] = ref, self._read(ref)
        return self._known[id(ref)][1]

    def _read(self, ref: TensorRef) -> Digest:
        from xxhash import xxh3_128

        hasher, view, total = xxh3_128(), memoryview(self._buffer), ref.spec.nbytes
        for start in range(0, total, len(self._buffer)):
            part = view[: min(len(self._buffer), total - start)]
            ref.read_into(start, part)
            hasher.update(part)
        return Digest(XXH3_128, hasher.digest())

    def entry(self, one: Entry) -> Entry:
        """The entry with a digest that a recorded one can be held against."""
        if one.ref is None or (one.digest is not None and one.digest.algorithm in (XXH3_128, PLAIN_DIGEST)):
            return one
        return replace(one, digest=self.of(one.ref), value=one.value if one.value is not None else number_in(one.ref))

    def entries(self, found: Mapping[str, Entry]) -> dict[str, Entry]:
        """All of them."""
        return {key: self.entry(one) for key, one in found.items()}


def _compared(file: TrainingState, pairs: tuple[Paired, ...], loaded: TrainingState, digests: Digests) -> StateDiff:
    """The file against the live objects, both without what either of them lacks as a whole."""
    parameters = {name: one for name, one in file.parameters.items() if name in loaded.parameters}
    buffers = {name: one for name, one in file.buffers.items() if name in loaded.buffers}
    sections = file.sections.keys() & loaded.sections.keys()
    known = [one.file is not None for one in pairs]
    left = replace(
        file,
        parameters={name: replace(one, entry=digests.entry(one.entry), grad=None) for name, one in parameters.items()},
        buffers=digests.entries(buffers),
        optimizers=tuple(_digested(one.file, digests) if one.file is not None else _NOTHING for one in pairs),
        sections={name: digests.entries(file.sections[name]) for name in sections},
        rng=digests.entries(file.rng),
    )
    right = replace(
        loaded,
        parameters={name: replace(loaded.parameters[name], grad=None) for name in parameters},
        buffers={name: loaded.buffers[name] for name in buffers},
        optimizers=tuple(
            one if known[place] else _NOTHING for place, one in enumerate(loaded.optimizers[: len(pairs)])
        ),
        sections={name: loaded.sections[name] for name in sections},
    )
    return compare_states(left, right)


def _digested(optimizer: Optimizer, digests: Digests) -> Optimizer:
    state = {name: digests.entries(one) for name, one in optimizer.state.items()}
    return replace(_with_digested_groups(optimizer, digests), state=state)


def _with_digested_groups(optimizer: Optimizer, digests: Digests) -> Optimizer:
    """A hyperparameter can be a tensor, as a learning rate of a captured graph is."""
    groups = (replace(one, hyperparameters=digests.entries(one.hyperparameters)) for one in optimizer.groups)
    return replace(optimizer, groups=tuple(groups))


def _rounded(dry: DryRun, load: StateDiff) -> Iterator[tuple[Slot, str]]:
    """Entries of which the live one is the file's, rounded: to which dtype. Only so many bytes are looked at."""
    built = {**dry.built.buffers, **{name: one.entry for name, one in dry.built.parameters.items()}}
    from ckptcheck.comparison.narrowed_digest import narrowed_digest, narrower_than

    left = MAX_ROUNDED_BYTES
    for one in (*load.of("param"), *load.of("state"), *load.of("buffer")):
        file, live = one.left, one.right
        if file is None or live is None or file.ref is None or file.spec is None or file.spec != live.spec:
            continue
        if one.section != "state" and one.name in built and built[one.name].digest == live.digest:
            continue
        left -= file.nbytes
        if left < 0:
            return
        through = (dtype for dtype in narrower_than(file.spec) if narrowed_digest(file.ref, dtype) == live.digest)
        if dtype := next(through, None):
            yield slot_of(one), dtype


def _held(dry: DryRun, load: StateDiff, loaded: TrainingState, digests: Digests) -> Iterator[str]:
    """Live parameters and buffers that hold what some tensor of the file holds."""
    live = {**loaded.buffers, **{name: one.entry for name, one in loaded.parameters.items()}}
    differing = {one.name for section in ("param", "buffer") for one in load.of(section)}
    same = (load.left.parameters.keys() | load.left.buffers.keys()) - differing
    rest = {name: one for name, one in live.items() if name not in same}
    specs = {one.spec for one in rest.values()}
    contents = {
        (tensor.spec, digests.of(tensor).value)
        for tensor in tensors_in(dry.checkpoint.raw.root)
        if tensor.spec in specs
    } if rest else set()  # fmt: skip
    yield from same
    yield from (
        name for name, one in rest.items() if one.digest is not None and (one.spec, one.digest.value) in contents
    )
