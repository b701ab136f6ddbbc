"""CK3: what one checkpoint says of groups, order, ties and names."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ckptcheck.conventions.exchangeable import exchangeable
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also, rule
from ckptcheck.rules.runs.binding import trainable_parameter_in_no_group
from ckptcheck.rules.stored.shapes import parameter_order_mismatch, state_shape_mismatch
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.stored.ties import tied_weights_broken
from ckptcheck.rules.stored.unnamed_shapes import state_of_no_parameters_shape
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.checkpoint import Checkpoint, NameSource, Naming
from ckptcheck.state.training_state import Optimizer, TrainingState

_SOURCES: Final = {
    NameSource.MODEL_ORDER: "the order of the model's file",
    NameSource.GROUPING: "a known grouping rule",
    NameSource.TARGET: "the target",
}
_BUILD_BY_NAME: Final = (
    "build the optimizer from model.named_parameters(): torch 2.6 and later then keep param_names in the file"
)


@rule("CK308", "names-not-aligned", Severity.INFO)
def names_not_aligned(stored: Stored) -> Iterator[Evidence]:
    """Which parameter an optimizer's state belongs to is not said by a name: it is inferred, or not known at all.

    Why: torch keys optimizer state by index. Where shapes are equal, an exchange leaves no trace that a file shows.
    Example: an optimizer over `model.parameters()`: its groups list 0, 1, 2.
    Fix: build it from `model.named_parameters()`, so that its groups keep `param_names`, or check with a target.
    Limits: names that shapes, order or a known grouping rule give are not certain, and are said to be so. Not told
    of a release, whose optimizer nobody loads.
    """
    if stored.purpose is not Purpose.RESUME:
        return
    for place, (optimizer, naming) in enumerate(_optimizers(stored.checkpoint)):
        members = optimizer.members
        if not members:
            continue
        if naming.certain:
            if (
                _are_strangers(members, stored.checkpoint)
                and not _prefixed(members, naming, stored.checkpoint.state)[1]
            ):
                yield _strangers(place, members, naming, stored.checkpoint.state)
            continue
        classes = exchangeable(optimizer)
        unseen = sum(map(len, classes))
        name, verb = ("name", "is") if len(members) == 1 else ("names", "are")
        how = f"inferred from {_SOURCES[naming.source]}" if naming.source in _SOURCES else "not known"
        named = f"the {name} of {count(members, 'parameter')} of optimizer {place} {verb}"
        yield Evidence(
            f"{named} {how}: {naming.reason}{_risk(unseen)}",
            Place(optimizer=place),
            {
                "source": naming.source.value,
                "parameters": len(members),
                "exchangeable": unseen,
                "classes": [kept(one) for one in classes[:_SHOWN_CLASSES]],
                "candidates": list[Json](naming.candidates),
            },
            _BUILD_BY_NAME,
        )


_SHOWN_CLASSES: Final = 20


def _risk(unseen: int) -> str:
    return f"; {unseen} of them have state of another one's shape, and an exchange would not be seen" if unseen else ""


def _are_strangers(members: Sequence[str], checkpoint: Checkpoint) -> bool:
    """Whether no member is a tensor of the model's, nor can be one of a further model's."""
    held = _held(checkpoint.state)
    return bool(held) and not checkpoint.models and held.isdisjoint(members)


def _strangers(place: int, members: Sequence[str], naming: Naming, state: TrainingState) -> Evidence:
    return Evidence(
        f"none of the {count(members, 'name')} of optimizer {place} is one of the model's: it has {names(members)}, "
        f"the model {names(state.parameters)}",
        Place(optimizer=place, parameter=members[0]),
        {"source": naming.source.value, "parameters": len(members), "only_in_optimizer": kept(members)},
        "give the model's file and the optimizer the names of the same module",
    )


@rule("CK305", "parameter-in-two-groups", Severity.ERROR)
def parameter_in_two_groups(stored: Stored) -> Iterator[Evidence]:
    """An optimizer lists a parameter twice: in two groups, or twice in one.

    Why: each step updates it twice, with the hyperparameters of both; torch refuses it in two groups, warns in one.
    Example: a tied head is added to a list that has the embedding in it.
    Fix: take each parameter once, as `named_parameters()` does.
    Limits: two optimizers that share a parameter are no fault.
    """
    for place, optimizer in enumerate(stored.checkpoint.state.optimizers):
        listed = Counter(optimizer.members)
        twice = [name for name, times in listed.items() if times > 1]
        if not twice:
            continue
        where = {
            name: [group for group, one in enumerate(optimizer.groups) for member in one.members if member == name]
            for name in twice
        }
        spelled = (f"{name} ({_groups(where[name])})" for name in twice)
        places: dict[str, Json] = {name: list[Json](where[name]) for name in twice[:_SHOWN_CLASSES]}
        yield Evidence(
            f"{count(twice, 'parameter')} of optimizer {place} {'is' if len(twice) == 1 else 'are'} listed more than "
            f"once: {names(spelled)}",
            Place(optimizer=place, parameter=twice[0], group=where[twice[0]][-1]),
            {"parameters": kept(twice), "groups": places},
            "hand each parameter to the optimizer once",
        )


@rule("CK310", "key-prefix-mismatch", Severity.ERROR)
def key_prefix_mismatch(stored: Stored) -> Iterator[Evidence]:
    """Names that should be the same differ by a prefix, so that a load by name finds nothing.

    Why: `load_state_dict(strict=False)` loads nothing and says nothing; a strict load raises.
    Example: `_orig_mod.` of a compiled model, `module.` of DDP, `model.` of a surrounding module.
    Fix: save the bare model's state_dict, or take the prefix off before the load.
    Limits: a wrapper's prefix is no fault in a checkpoint to resume from, and a warning in a release: the wrapped model
    takes it. In one file a prefix of an optimizer that is keyed by name is a warning: it may be a submodule's.
    """
    checkpoint = stored.checkpoint
    wrapper = checkpoint.stripped
    if stored.purpose is Purpose.RELEASE and wrapper and checkpoint.state.parameters:
        yield Evidence(
            f"the model's names carry what {'wrappers' if len(wrapper) > 1 else 'a wrapper'} put into them "
            f"({', '.join(wrapper)}): the bare model finds none of its names in the file",
            Place(parameter=next(iter(checkpoint.state.parameters))),
            {"prefixes": list[Json](wrapper)},
            "save the state_dict of the bare model (model.module, model._orig_mod)",
            severity=Severity.WARNING,
        )
    for place, (optimizer, naming) in enumerate(_optimizers(checkpoint)):
        members = list(dict.fromkeys((*optimizer.members, *optimizer.state)))
        if not members or not _are_strangers(members, checkpoint):
            continue
        longer, prefix = _prefixed(members, naming, checkpoint.state)
        if prefix:
            has = "has" if longer else "lacks"
            yield Evidence(
                f"every name of optimizer {place} {has} the prefix {prefix!r} that the model's "
                f"names {'lack' if longer else 'have'}: a load by name puts no state into the model's parameters",
                Place(optimizer=place, parameter=members[0]),
                {"prefix": prefix, "longer": "optimizer" if longer else "model", "parameters": len(members)},
                "save the model and its optimizer under the names of the same module",
                severity=Severity.WARNING,
            )


def _groups(listed: Sequence[int]) -> str:
    """Where a parameter is listed: "groups 0 and 1", "twice in group 0"."""
    places = [*dict.fromkeys(listed)]
    times = "" if len(places) == len(listed) else "twice in " if len(listed) == 2 else f"{len(listed)} times in "
    return f"{times}group{'s' if len(places) > 1 else ''} {' and '.join(map(str, places))}"


def _prefixed(members: Sequence[str], naming: Naming, state: TrainingState) -> tuple[bool, str]:
    """The prefix that alone parts the names of an optimizer that goes by name from the model's; "" where none does.

    And whether the optimizer's names have it.
    """
    if naming.source is not NameSource.KEYS:
        return False, ""
    held = _held(state)
    for longer in (True, False):
        for name in held:
            long, short = (members[0], name) if longer else (name, members[0])
            prefix = long.removesuffix(short)
            if not long.endswith(f".{short}") or not prefix:
                continue
            if all((one.removeprefix(prefix) if longer else prefix + one) in held for one in members):
                return longer, prefix
    return False, ""


@also(trainable_parameter_in_no_group)
def a_trainable_parameter_beside_one_that_is_stepped(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """A parameter that the file says is trainable is in no group, though another of its module is."""
    state = stored.checkpoint.state
    trained = [name for name, one in state.parameters.items() if one.requires_grad]
    namings = stored.checkpoint.namings
    if not trained or not namings:
        return
    held = {name for optimizer in state.optimizers for name in optimizer.members}
    left = [name for name in trained if held.isdisjoint((name, *state.parameters[name].aliases))]
    if not left or not held:
        return
    if not all(one.certain for one in namings):
        yield Unjudged("names of an optimizer's parameters are not certain")
        return
    owners = {name.rpartition(".")[0] for name in held}
    beside = [name for name in left if name.rpartition(".")[0] in owners]
    if beside:
        yield Evidence(
            f"{count(beside, 'trainable parameter')} {'is' if len(beside) == 1 else 'are'} in no group, though others "
            f"of the same module are: {names(beside)}",
            Place(parameter=beside[0]),
            {"parameters": kept(beside)},
            "build the optimizer over all trainable parameters, or set requires_grad to False",
        )
    elif len(left) < len(trained):
        yield Unjudged(f"{names(left)}: trainable and in no group, whole modules, which may be meant so")


def _optimizers(checkpoint: Checkpoint) -> Iterator[tuple[Optimizer, Naming]]:
    yield from zip(checkpoint.state.optimizers, checkpoint.namings, strict=False)


def _held(state: TrainingState) -> set[str]:
    """Every name of the model's tensors."""
    return {*state.parameters, *state.buffers, *(name for one in state.parameters.values() for name in one.aliases)}


RULES: Final[tuple[Rule[Stored], ...]] = (
    parameter_order_mismatch,
    a_trainable_parameter_beside_one_that_is_stepped,
    state_shape_mismatch,
    state_of_no_parameters_shape,
    parameter_in_two_groups,
    names_not_aligned,
    key_prefix_mismatch,
    tied_weights_broken,
)
