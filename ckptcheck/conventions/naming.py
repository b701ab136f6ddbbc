"""From an optimizer's indices to parameter names, by the best source there is, and how sure it is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ckptcheck.conventions.fitting import Shape, by_group, embed, fitting, names_by_shape
from ckptcheck.conventions.given import as_in_file, check_given
from ckptcheck.conventions.grouping import Fit, fitting_rules
from ckptcheck.conventions.weights import Weights
from ckptcheck.conventions.wrappers import Stripper
from ckptcheck.optimizers.shapes import ShapeTest, Signature
from ckptcheck.state.checkpoint import NameSource, Naming, numbered

MAX_DIGITS: Final = 18
"""A longer text of digits is a name."""
Key: TypeAlias = Any
"""What stands in `params` and keys the state: an index, or a name."""


@dataclass(frozen=True, slots=True)
class Members:
    """The param groups of an optimizer as the file has them.

    `groups` holds the keys of each group's parameters; `param_names` the names that the groups list, None where
    they list none; `signatures` what the state of each key says about its parameter's shape; `decays` each group's
    weight decay, None where it is not known.
    """

    groups: tuple[tuple[Key, ...], ...]
    param_names: tuple[tuple[str, ...], ...] | None
    signatures: Mapping[Key, Signature]
    decays: tuple[float | None, ...] = ()

    @property
    def keys(self) -> list[Key]:
        """All keys, group after group."""
        return [key for group in self.groups for key in group]


@dataclass(frozen=True, slots=True)
class NamedMembers:
    """The name of each key of an optimizer's groups, and how it was found; no name where `naming.source` is NONE."""

    names: Mapping[Key, str]
    naming: Naming


def name_members(members: Members, model: Weights, test: ShapeTest, names: Sequence[str] | None = None) -> NamedMembers:
    """Name an optimizer's parameters: by its own names, by the names that the user gives, or by the model's order.

    Raises UsageError where the user's names contradict the file.
    """
    keys = members.keys
    if members.param_names is not None:
        given = [name for group in members.param_names for name in group]
        return _named(keys, given, model, NameSource.PARAM_NAMES, "the groups list param_names")
    held = keys or list(members.signatures)
    if held and not any(is_index(key) for key in held):
        return _named(keys, keys, model, NameSource.KEYS, "the groups and the state are keyed by name")
    if names is not None and len(names) == len(keys):
        own = as_in_file(names, model)
        named = _named(keys, own, model, NameSource.USER, "named by the list that was given")
        check_given(named.names, model, members.signatures, test)
        return named
    wrong = f"the list that was given has {len(names)} names for {len(keys)} parameters; " if names is not None else ""
    found = infer(members, model, test)
    naming = replace(found.naming, reason=f"{wrong}{found.naming.reason}")
    return NamedMembers(found.names or {key: numbered(key) for key in keys}, naming)


def _named(keys: Sequence[Key], given: Sequence[str], model: Weights, source: NameSource, reason: str) -> NamedMembers:
    names = [model.name_of(name) for name in given]
    if not any(name in model.shapes for name in names):  # the optimizer was made of the wrapped model, or is alone
        own = Stripper(given)
        bare = [model.name_of(own.strip(name)) for name in given]
        names = bare if not model.shapes or any(name in model.shapes for name in bare) else names
    found = _first_of_each(keys, names)
    if len(set(found.values())) < len(found) == len(set(given)):  # ties must not make one of two parameters
        found = {key: model.strip.strip(name) for key, name in zip(keys, given, strict=True)}
    return NamedMembers(found, Naming(source, certain=True, reason=reason))


def _first_of_each(keys: Sequence[Key], names: Sequence[str]) -> dict[Key, str]:
    """The name of each key; of one that is listed twice that of its first place, as the second took another's."""
    found: dict[Key, str] = {}
    for key, name in zip(keys, names, strict=True):
        found.setdefault(key, name)
    return found


def is_index(key: Key) -> bool:
    """Whether a key is a parameter's number, or the text of one in a format that knows text only."""
    return isinstance(key, int) or (isinstance(key, str) and key.isdecimal() and len(key) <= MAX_DIGITS)


def infer(members: Members, model: Weights, test: ShapeTest) -> NamedMembers:
    """The only assignment of the model's parameters that fits the groups, and why; no names where there is none."""
    members = _once(members)
    keys, shapes = members.keys, model.shapes
    if not keys:
        return _unnamed("the groups list no parameters")
    if not shapes:
        return _unnamed("no model lies beside the optimizer, so its indices cannot be named")
    if len(keys) > len(shapes):
        return _unnamed(f"{len(keys)} indices do not fit the model's {len(shapes)} parameters")
    if not model.ordered:
        names, reason = _by_shape(members, shapes, test)
    elif names := _by_place(keys, members.signatures, shapes, test):
        reason = _reason(members, shapes, "by their places in the model")
    elif sum(1 for group in members.groups if group) == 1:
        names, reason = _by_order(members, shapes, test)
    else:
        return _by_group(members, model, test)
    if not names:
        return _unnamed(reason)
    naming = Naming(NameSource.MODEL_ORDER, certain=False, reason=reason)
    return NamedMembers(dict(zip(keys, names, strict=True)), naming)


def _once(members: Members) -> Members:
    """The members without the second listing of one that is listed twice."""
    if len(set(members.keys)) == len(members.keys):
        return members
    first = {key: place for place, group in reversed([*enumerate(members.groups)]) for key in group}
    groups = (
        tuple(key for key in dict.fromkeys(group) if first[key] == place) for place, group in enumerate(members.groups)
    )
    return replace(members, groups=tuple(groups))


def _unnamed(reason: str, candidates: tuple[str, ...] = ()) -> NamedMembers:
    return NamedMembers({}, Naming(NameSource.NONE, certain=False, reason=reason, candidates=candidates))


def _by_group(members: Members, model: Weights, test: ShapeTest) -> NamedMembers:
    """The names of several groups' members: shapes force who is in which group, or one known grouping rule alone fits.

    Shapes force nothing about the order within a group: a rule that sorts by name says more where no other rule fits.
    """
    forced, not_forced = by_group(members.groups, members.signatures, model.shapes, test)
    fits: tuple[Fit, ...] = ()
    if told := 2 * _spoken(members) >= len(members.keys):  # sizes of groups are no evidence by themselves
        decays = members.decays or (None,) * len(members.groups)
        fits = fitting_rules(members.groups, members.signatures, decays, model, test)
    if forced and (not fits or any(fit.names == forced for fit in fits)):
        reason = _reason(members, model.shapes, "group by group: no shape stands in two groups")
        naming = Naming(NameSource.MODEL_ORDER, certain=False, reason=reason)
        return NamedMembers(dict(zip(members.keys, forced, strict=True)), naming)
    not_forced = not_forced or "shapes force the groups and not the order in them"
    if not fits:
        return _unnamed(f"{not_forced}; no known grouping rule fits" if told else not_forced)
    if len(fits) > 1:
        labels = tuple(f"{fit.rules[0].label} ({fit.rules[0].writer})" for fit in fits)
        said = " and ".join((", ".join(labels[:-1]), labels[-1]))
        return _unnamed(f"{not_forced}; {len(fits)} known grouping rules fit, each in its own way: {said}", labels)
    reason = f"the only known grouping rule that fits: {_spelled(fits[0])}; the shapes of {_spoken(members)} agree"
    naming = Naming(NameSource.GROUPING, certain=False, reason=reason)
    return NamedMembers(dict(zip(members.keys, fits[0].names, strict=True)), naming)


def _spelled(fit: Fit) -> str:
    return f"{fit.rules[0].label}, as in {fit.rules[0].writer}"


def _by_order(members: Members, shapes: Mapping[str, Shape], test: ShapeTest) -> tuple[tuple[str, ...], str]:
    """The names of one group's members in the model's order, () where there are none or several; and the reason."""
    keys = members.keys
    names = embed([members.signatures.get(key, ()) for key in keys], list(shapes), shapes, test)
    if names is None:
        return (), f"the shapes of {len(keys)} indices do not fit the model's {len(shapes)} parameters in order"
    if not names:
        return (), "more than one assignment of the model's parameters fits the order and the shapes"
    return names, _reason(members, shapes, "in order")


def _by_place(
    keys: Sequence[Key], signatures: Mapping[Key, Signature], shapes: Mapping[str, Shape], test: ShapeTest
) -> tuple[str, ...]:
    """Names where indices are places in the model, frozen parameters counted (FSDP); () where they are not."""
    names = list(shapes)
    places = [int(key) for key in keys if is_index(key)]
    if len(places) < len(keys) or places == list(range(len(keys))):
        return ()
    if min(places) < 0 or max(places) >= len(names):
        return ()
    assigned = tuple(names[place] for place in places)
    fit = all(test.fits(signatures.get(key, ()), shapes[name]) for key, name in zip(keys, assigned, strict=True))
    return assigned if fit else ()


def _by_shape(members: Members, shapes: Mapping[str, Shape], test: ShapeTest) -> tuple[tuple[str, ...], str]:
    """The names that shapes alone force, each index fitting one parameter only, and no two the same; and the reason."""
    keys = members.keys
    of_shape = names_by_shape(shapes)
    names_of = {
        signature: fitting(signature, of_shape, test) for signature in {members.signatures.get(key, ()) for key in keys}
    }
    choices = [names_of[members.signatures.get(key, ())] for key in keys]
    if not all(choices):
        return (), f"the shapes of {len(keys)} indices do not fit the model's {len(shapes)} parameters"
    forced = tuple(choice[0] for choice in choices)
    if all(len(choice) == 1 for choice in choices) and max(Counter(forced).values()) == 1:
        return forced, f"each of {_of(keys, shapes)} has a shape that one parameter of the model alone has"
    return (), "the model's file does not keep the parameters' order, and several have the same shape"


def _reason(members: Members, shapes: Mapping[str, Shape], how: str) -> str:
    spoken = _spoken(members)
    evidence = f"the shapes of {spoken} with state agree" if spoken else "no state tells their shapes"
    return f"{_of(members.keys, shapes)} fit the model's parameters {how}; {evidence}"


def _spoken(members: Members) -> int:
    """How many keys have state that says something of the parameter's shape."""
    return sum(1 for key in members.keys if members.signatures.get(key))


def _of(keys: Sequence[Key], shapes: Mapping[str, Shape]) -> str:
    return f"{len(keys)} indices" if len(keys) == len(shapes) else f"{len(keys)} indices of {len(shapes)} parameters"
