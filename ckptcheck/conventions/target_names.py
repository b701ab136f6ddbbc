"""Names for a file's optimizers from the live training that shall load it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from ckptcheck.conventions.given import without_adapter
from ckptcheck.conventions.groups import decay_of, state_shapes
from ckptcheck.conventions.naming import Members, infer
from ckptcheck.conventions.weights import Weights, whole_shape
from ckptcheck.conventions.wrappers import Stripper
from ckptcheck.optimizers.guessing import guess
from ckptcheck.optimizers.shapes import ShapeTest, Signature
from ckptcheck.state.checkpoint import Checkpoint, NameSource, Naming
from ckptcheck.state.training_state import Optimizer, Parameter, TrainingState

UNCERTAIN: Final = frozenset({NameSource.MODEL_ORDER, NameSource.GROUPING, NameSource.NONE})
"""Sources of names that a target knows better: the file itself has indices only."""
_LOAD: Final = "torch's load_state_dict puts its state there"


def named_by_target(found: Checkpoint, live: TrainingState) -> Checkpoint:
    """The checkpoint with the live parameters' names where its own optimizers have none that is certain.

    A name is the file's own for a parameter that the file holds, whatever wrappers either side has, else the live one.
    """
    spelled = _spelling(found.state, live)
    optimizers: list[Optimizer] = []
    namings: list[Naming] = []
    for place, (optimizer, known) in enumerate(zip(found.state.optimizers, found.namings, strict=True)):
        names, naming = _named(optimizer, known, _partners(found.state, live, place), live, spelled)
        optimizers.append(_renamed(optimizer, names))
        namings.append(naming)
    return replace(found, state=replace(found.state, optimizers=tuple(optimizers)), namings=tuple(namings))


def _named(
    optimizer: Optimizer,
    naming: Naming,
    partners: Sequence[Optimizer],
    live: TrainingState,
    spelled: Mapping[str, str],
) -> tuple[Mapping[str, str], Naming]:
    """The new name of each member, and where the names come from; no new names where the target tells none."""
    own = [name for group in optimizer.groups for name in group.members if name is not None]
    if naming.source not in UNCERTAIN or not own or len(set(own)) < len(own):
        return {}, naming
    test, members = _members(optimizer)
    shapes = {name: shape for name, one in live.parameters.items() if (shape := whole_shape(one.entry)) is not None}
    fitting = [one for one in partners if _fits(members, one, shapes, test)]
    if len(fitting) == 1:
        held = [name for group in fitting[0].groups for name in group.members]
        names = {ours: spelled[name] for ours, name in zip(own, held, strict=True) if name is not None}
        return names, Naming(NameSource.TARGET, certain=False, reason=_by_place(members, names, naming))
    why = _misfit(members, partners, shapes, test) if len(partners) == 1 else "no live optimizer alone has its groups"
    if naming.source is not NameSource.NONE:
        return {}, replace(naming, reason=f"{naming.reason}; {why}")
    again = infer(members, Weights(shapes=shapes, buffers=live.buffers, ordered=True), test)
    if again.naming.source is NameSource.NONE:
        said = f"{naming.reason}; {why}; against the target's parameters: {again.naming.reason}"
        return {}, replace(naming, reason=said, candidates=again.naming.candidates)
    reason = f"{why}, but the parameters of the target's model in their order do: {again.naming.reason}"
    names = {ours: spelled[name] for ours, name in again.names.items()}
    return names, Naming(NameSource.TARGET, certain=False, reason=reason)


def _partners(state: TrainingState, live: TrainingState, place: int) -> Sequence[Optimizer]:
    """The live optimizer in the same place, or all of them where there are more or fewer than in the file."""
    return live.optimizers[place : place + 1] if len(live.optimizers) == len(state.optimizers) else live.optimizers


def _members(optimizer: Optimizer) -> tuple[ShapeTest, Members]:
    guessed = guess(optimizer)
    test = ShapeTest(guessed.rows, certain=guessed.certain)
    return test, Members(
        groups=tuple(tuple(name for name in group.members if name is not None) for group in optimizer.groups),
        param_names=None,
        signatures=signatures(optimizer, test),
        decays=tuple(decay_of(group.hyperparameters) for group in optimizer.groups),
    )


def signatures(optimizer: Optimizer, test: ShapeTest) -> dict[str, Signature]:
    """What the state of each parameter says of its shape."""
    return {name: test.signature(state_shapes(kept)) for name, kept in optimizer.state.items()}


def _fits(members: Members, live: Optimizer, shapes: Mapping[str, tuple[int, ...]], test: ShapeTest) -> bool:
    return not any(True for _ in _reasons_against(members, live, shapes, test))


def _misfit(
    members: Members, partners: Sequence[Optimizer], shapes: Mapping[str, tuple[int, ...]], test: ShapeTest
) -> str:
    return next(_reasons_against(members, partners[0], shapes, test))


def _reasons_against(
    members: Members, live: Optimizer, shapes: Mapping[str, tuple[int, ...]], test: ShapeTest
) -> Iterator[str]:
    ours, theirs = ([len(group) for group in members.groups], [len(group.members) for group in live.groups])
    if ours != theirs:
        yield f"the target's optimizer has groups of {_sizes(theirs)} parameters, not of {_sizes(ours)}"
        return
    for key, name in zip(members.keys, chain.from_iterable(group.members for group in live.groups), strict=True):
        signature = members.signatures.get(key, ())
        if name is not None and name in shapes and signature and not test.fits(signature, shapes[name]):
            kept, shape = signature[0]
            yield (
                f"the target's optimizer has {name} {[*shapes[name]]} in the place of {key}, whose {kept} is {[*shape]}"
            )


def _sizes(counts: Sequence[int]) -> str:
    return " and ".join(map(str, counts)) if len(counts) < 4 else f"{', '.join(map(str, counts[:3]))}, ..."


def _by_place(members: Members, names: Mapping[str, str], naming: Naming) -> str:
    spoken = sum(1 for key in members.keys if members.signatures.get(key))
    evidence = f"the shapes of {spoken} with state agree" if spoken else "no state tells their shapes"
    reason = f"by their places in the target's param groups, for {_LOAD}; {evidence}"
    unlike = sum(1 for ours, name in names.items() if ours != name) if naming.source is not NameSource.NONE else 0
    return f"{reason}; {naming.source.value} would name {unlike} of them otherwise" if unlike else reason


def _renamed(optimizer: Optimizer, names: Mapping[str, str]) -> Optimizer:
    if not names:
        return optimizer
    groups = tuple(
        replace(group, members=tuple(names.get(name, name) if name is not None else None for name in group.members))
        for group in optimizer.groups
    )
    return replace(
        optimizer, groups=groups, state={names.get(name, name): kept for name, kept in optimizer.state.items()}
    )


def _spelling(state: TrainingState, live: TrainingState) -> dict[str, str]:
    """Each live parameter's name as the file spells it; the live one where the file lacks it."""
    held = _by_stripped(state.parameters)
    strip = Stripper([*live.parameters, *(alias for one in live.parameters.values() for alias in one.aliases)])
    found: dict[str, str] = {}
    for name, one in live.parameters.items():
        stripped = [strip.strip(each) for each in (name, *one.aliases)]
        every = [*stripped, *map(without_adapter, stripped)]
        found[name] = next((held[each] for each in every if each in held), stripped[0] if held else name)
    return found if len(set(found.values())) == len(found) else {name: name for name in live.parameters}


def _by_stripped(parameters: Mapping[str, Parameter]) -> dict[str, str]:
    """The first name of each parameter of a file by each of its names."""
    names = [each for name, one in parameters.items() for each in (name, *one.aliases)]
    strip = Stripper(names)
    return {strip.strip(each): name for name, one in parameters.items() for each in (*one.aliases, name)}
