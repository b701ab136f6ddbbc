"""CK309-CK311: weights that a load leaves as they were built, names that differ by a prefix, ties that break."""

from collections.abc import Iterator, Sequence
from typing import Final

from ckptcheck.finding import Severity
from ckptcheck.rules.loads.dry_run import DryRun
from ckptcheck.rules.loads.views import at, file_names
from ckptcheck.rules.rule import Evidence, Rule, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored import binding as stored
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.training_state import TrainingState


@also(runs.weights_not_loaded)
def weights_not_loaded(dry: DryRun) -> Iterator[Evidence]:
    """Parameters of the target are, after the load, still as it built them; or the file has nothing for them."""
    if not dry.checkpoint.state.parameters and dry.loaded is None:
        return
    left = _as_built(dry) if dry.weights_were_tried else _without_weights(dry)
    if not left:
        return
    stored_names = file_names(dry)
    absent = [name for name in left if name not in stored_names]
    total = len(dry.built.parameters)
    one = len(left) == 1
    how = f"after the load {'it is' if one else 'they are'} as the target built {'it' if one else 'them'}"
    if not dry.weights_were_tried:
        how = "it stays as built" if one else "they stay as built"
    which = f"the file does not hold {'it' if one else 'them'}, " if len(absent) == len(left) else ""
    yield Evidence(
        f"{len(left)} of {total} parameters of the target {'gets' if one else 'get'} no weights from the file: "
        f"{names(left)}; {which}{how}",
        at(parameter=left[0]),
        {"parameters": kept(left), "not_loaded": len(left), "of": total, "absent_from_file": kept(absent)},
        "load with strict=True, and look at the missing and unexpected keys",
    )


def _without_weights(dry: DryRun) -> list[str]:
    """Trainable parameters that the file has under none of their names, or in another shape."""
    found = []
    stored_state = dry.checkpoint.state
    own = {alias: one for name, one in stored_state.parameters.items() for alias in (name, *one.aliases)}
    for name, one in dry.built.parameters.items():
        other = next((own[each] for each in (name, *one.aliases) if each in own), None)
        if other is None and name in stored_state.buffers:
            continue
        spec, live = (other.entry.spec if other is not None else None), one.entry.spec
        differs = spec is not None and live is not None and spec.shape != live.shape
        if differs or (other is None and one.requires_grad):
            found.append(name)
    return found


def _as_built(dry: DryRun) -> list[str]:
    """Parameters that the load left alone and that hold nothing of the file.

    A frozen one that the file lacks is none: an adapter's checkpoint leaves the base to whoever builds it.
    """
    found = []
    after, stored_names = dry.now.parameters, file_names(dry)
    for name, one in dry.built.parameters.items():
        now = after.get(name)
        if now is None or now.entry.digest != one.entry.digest or name in dry.held:
            continue
        if one.requires_grad or name in stored_names:
            found.append(name)
    return found


@also(stored.key_prefix_mismatch)
def key_prefix_mismatch(dry: DryRun) -> Iterator[Evidence]:
    """All names of the file's model differ from the target's by a prefix, and the load put nothing into it."""
    theirs = [*dry.checkpoint.state.parameters]
    ours = [*dry.built.parameters]
    if not theirs or not ours or set(ours) & set(theirs) or (dry.loaded is not None and set(ours) <= dry.held):
        return
    for longer, long, short in (("file", theirs, ours), ("target", ours, theirs)):
        prefix = _prefix(long, short)
        if prefix:
            other = "target" if longer == "file" else "file"
            yield Evidence(
                f"every name of the {longer}'s model has the prefix {prefix!r} that the {other}'s names lack: a load "
                "by name finds nothing",
                at(parameter=ours[0]),
                {"prefix": prefix, "longer": longer, "file": kept(theirs[:4]), "target": kept(ours[:4])},
                "take the prefix off, or put it on, before load_state_dict",
            )
            return


def _prefix(long: Sequence[str], short: Sequence[str]) -> str:
    """The prefix without which all of the long names that have it are the short ones; "" where there is none."""
    known = set(short)
    for name in short:
        prefix = long[0].removesuffix(name)
        if prefix and prefix != long[0] and prefix.endswith("."):
            bare = {one.removeprefix(prefix) for one in long if one.startswith(prefix)}
            if len(bare & known) == min(len(bare), len(known)):
                return prefix
    return ""


@also(runs.tied_weights_broken)
def tied_weights_broken(dry: DryRun) -> Iterator[Evidence]:
    """The load unties what the target ties, or the file holds two tensors for what is one in the target."""
    if dry.loaded is not None:
        before, after = _ties(dry.built), _ties(dry.loaded)
        for pair in sorted(before - after):
            if pair[0] in dry.loaded.parameters and pair[1] in dry.loaded.parameters:
                yield Evidence(
                    f"{pair[0]} and {pair[1]} are one tensor in the target and two after the load",
                    at(parameter=pair[0], key=pair[1]),
                    {"names": list(pair), "how": "untied"},
                    "load in place (no assign=True), or tie the weights again before the optimizer is built",
                )
    parameters = dry.checkpoint.state.parameters
    for first, alias in sorted(_ties(dry.built)):
        if first in parameters and alias in parameters and _unlike(dry, first, alias):
            yield Evidence(
                f"{first} and {alias} are one tensor in the target, and the file holds two unlike ones: one is lost",
                at(parameter=first, key=alias),
                {"names": [first, alias], "how": "two in the file"},
                "resume with the model that was saved: untied, or tied before the save",
            )


def _unlike(dry: DryRun, first: str, alias: str) -> bool:
    """Whether the file's two tensors surely differ: in shape or dtype, or in bytes."""
    one, other = (dry.checkpoint.state.parameters[name].entry for name in (first, alias))
    if one.spec != other.spec:
        return True
    return one.digest is not None and other.digest is not None and one.digest != other.digest


def _ties(state: TrainingState) -> set[tuple[str, str]]:
    return {(name, alias) for name, one in state.parameters.items() for alias in one.aliases}


@also(runs.weights_not_loaded, severity=Severity.WARNING)
def weights_without_a_place(dry: DryRun) -> Iterator[Evidence]:
    """The file holds weights that the target has no place for, beside others that it has."""
    live = {each for name, one in dry.built.parameters.items() for each in (name, *one.aliases)} | {*dry.built.buffers}
    theirs = {each for name, one in dry.checkpoint.state.parameters.items() for each in (name, *one.aliases)}
    surplus = [name for name in dry.checkpoint.state.parameters if name not in live]
    renamed = dry.raised is None and {*dry.built.parameters} <= dry.held and len(theirs) <= len(live)
    if surplus and theirs & live and not renamed:
        yield Evidence(
            f"the file holds {count(surplus, 'tensor')} that the target's model has no place for: {names(surplus)}",
            at(parameter=surplus[0]),
            {"only_in_file": kept(surplus), "of": len(dry.checkpoint.state.parameters)},
            "resume with the model that was saved",
        )


RULES: Final[tuple[Rule[DryRun], ...]] = (
    weights_not_loaded,
    weights_without_a_place,
    key_prefix_mismatch,
    tied_weights_broken,
)
