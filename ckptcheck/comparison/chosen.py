"""One set of weights of each side, chosen by the user: is the release the EMA of step 50,000?"""

from collections.abc import Iterable
from typing import Final

from ckptcheck.comparison.checkpoint_diff import section_of
from ckptcheck.comparison.model_pairs import Names
from ckptcheck.conventions.weights import weights
from ckptcheck.conventions.wrappers import BESIDE, Stripper
from ckptcheck.errors import UsageError
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.training_state import Entry

MODEL: Final = "model"
MAX_BEGIN: Final = 4
"""Parts of a name that may stand before the parameter's own name."""
_AVERAGES: Final = ("ema", "shadow", "averag", "swa")


def chosen_weights(checkpoint: Checkpoint, section: str, side: str) -> Names:
    """The weights in one section or further model of a checkpoint; "" is the model.

    Raises UsageError where the checkpoint has no such section, or one without tensors.
    """
    if section in ("", MODEL):
        return Names.of(checkpoint.state)
    held = _held(checkpoint)
    if section in checkpoint.models:
        found = weights(checkpoint.models[section], ordered=False)
        owners = {name: (one.entry, "param") for name, one in found.parameters.items()}
        owners.update((name, (entry, "buffer")) for name, entry in found.buffers.items())
        names = Names(owners, found.alias_of)
    elif section in held:
        strip = Stripper(held[section])
        names = Names({strip.strip(path): (entry, "param") for path, entry in held[section].items()})
    else:
        known = ", ".join(dict.fromkeys((MODEL, *checkpoint.models, *held)))
        raise UsageError(f"--{side}-section {section!r}: {checkpoint.raw.path} has no such weights; it has {known}")
    return Names({name: owned for name, owned in names.owners.items() if name not in BESIDE}, names.owner_of)


def aligned(left: Names, right: Names) -> tuple[Names, Names, str]:
    """Both with names that agree: what stands before the names of one side is taken off, and told in a sentence."""
    if left.owners.keys() & right.owners.keys():
        return left, right, ""
    for side, one, other in (("left", left, right), ("right", right, left)):
        begin = _begin(one.owners, {*other.owners, *other.owner_of})
        if begin:
            cut = {name.removeprefix(begin): owned for name, owned in one.owners.items() if name.startswith(begin)}
            said = f"{begin!r} was taken off the names on the {side}"
            return (Names(cut), right, said) if side == "left" else (left, Names(cut), said)
    return left, right, ""


def _held(checkpoint: Checkpoint) -> dict[str, dict[str, Entry]]:
    """The tensors of each section that has some."""
    found: dict[str, dict[str, Entry]] = {}
    for section, entries in checkpoint.state.sections.items():
        for path, entry in entries.items():
            if entry.spec is not None:
                found.setdefault(section_of(section, path), {}).setdefault(path, entry)
    return found


def _begin(names: Iterable[str], known: set[str]) -> str:
    """What stands before most of the names that the other side knows; of equals, what is called an average."""
    counts: dict[str, int] = {}
    for name in names:
        parts = name.split(".")
        for end in range(1, min(MAX_BEGIN + 1, len(parts))):
            if ".".join(parts[end:]) in known:
                begin = ".".join(parts[:end]) + "."
                counts[begin] = counts.get(begin, 0) + 1
    is_average = {begin: any(word in begin.lower() for word in _AVERAGES) for begin in counts}
    return max(counts, key=lambda begin: (counts[begin], is_average[begin]), default="")
