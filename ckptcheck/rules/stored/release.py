"""CK2: what a release must not hold."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.rule import Evidence, Rule, rule
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.words import count_of, names
from ckptcheck.state.training_state import Entry, TrainingState

_ARGUMENTS: Final = frozenset(
    {"training_args", "trainer_state", "train_args", "args", "hyper_parameters", "cfg", "callbacks"}
)
"""First parts of paths that say how the training was run and what it went through."""
_SECTIONS: Final = {
    "schedule": "the schedule",
    "scaler": "the gradient scaler",
    "ema": "averaged weights beside the model",
    "data": "the position in the data",
}


@rule("CK210", "training-state-in-release", Severity.ERROR)
def training_state_in_release(stored: Stored) -> Iterator[Evidence]:
    """A checkpoint that is released holds what only a training needs.

    Why: it is several times as large as the weights, and shows more of the training than its owner may want to ship:
    arguments hold paths, hosts and tokens.
    Example: a training checkpoint that was uploaded as it lay, its optimizer with it.
    Fix: save the weights alone, of the model or of its average, best as safetensors.
    Limits: an error with `--for release`, else a warning; arguments that were left over are a warning, else an info.
    Steps and epochs are not told, nor what describes the model, as config.json.
    """
    if stored.purpose is not Purpose.RELEASE:
        return
    state, path = stored.checkpoint.state, str(stored.checkpoint.raw.path)
    left = {**_optimizers(state), **_parts(state)}
    if left:
        nbytes = sum(left.values())
        yield Evidence(
            f"the release holds {names(left)}: {count_of(nbytes, 'byte')} that only a training needs",
            Place(path=path),
            {"parts": [{"part": part, "bytes": size} for part, size in left.items()], "bytes": nbytes},
            "save the weights alone, or say --for resume where a training goes on from it",
            Severity.ERROR if stored.asked else Severity.WARNING,
        )
    arguments = _arguments(state.sections.get("extra", {}))
    if arguments:
        listed: list[Json] = [*arguments]
        yield Evidence(
            f"the release holds what its training was run with: {names(arguments)}",
            Place(path=path, key=arguments[0]),
            {"parts": listed},
            "leave it out, or look through it for paths, hosts and tokens",
            Severity.WARNING if stored.asked else Severity.INFO,
        )


def _optimizers(state: TrainingState) -> dict[str, int]:
    if not state.optimizers:
        return {}
    kept = (entry for one in state.optimizers for held in one.state.values() for entry in held.values())
    return {"optimizer state": sum(entry.nbytes for entry in kept)}


def _parts(state: TrainingState) -> dict[str, int]:
    """What else of a training is there, in words, with its bytes; averaged weights only where the model is, too."""
    found = {
        said: _bytes_in(state.sections[section])
        for section, said in _SECTIONS.items()
        if section in state.sections and (section != "ema" or state.parameters)
    }
    return found | ({"generators": _bytes_in(state.rng)} if state.rng else {})


def _bytes_in(entries: Mapping[str, Entry]) -> int:
    return sum(entry.nbytes for entry in entries.values())


def _arguments(extra: Mapping[str, Entry]) -> Sequence[str]:
    """The first parts of paths that tell of the training."""
    heads = dict.fromkeys(path.partition("[")[0].partition("{")[0] for path in extra)
    firsts = dict.fromkeys(head.partition(".")[0] for head in heads if head.partition(".")[0] in _ARGUMENTS)
    return [*firsts]


RULES: Final[tuple[Rule[Stored], ...]] = (training_state_in_release,)
"""They judge a checkpoint that is released, no other."""
