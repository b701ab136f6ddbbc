"""CK311: a tie that a checkpoint's own description promises and its weights break."""

from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.comparison.survey import Content, Survey
from ckptcheck.finding import Json, Place
from ckptcheck.rules.rule import Evidence, Unjudged, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.state.training_state import TrainingState
from ckptcheck.trace.items import Item

_CONFIG: Final = "config.json"
_TIED: Final = "tie_word_embeddings"
_INPUTS: Final = (
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight", "shared.weight",
    "tok_embeddings.weight",
)  # fmt: skip
_OUTPUTS: Final = ("lm_head.weight", "embed_out.weight", "cls.predictions.decoder.weight")


@also(runs.tied_weights_broken, "survey")
def tied_weights_broken(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """config.json ties the input and output embeddings, and the file holds both with unlike values."""
    root, survey = stored.checkpoint.raw.root, stored.survey
    config = root.get(_CONFIG) if isinstance(root, Mapping) else None
    if not isinstance(config, Mapping) or config.get(_TIED) is not True or survey is None:
        return
    pair = _pair(stored.checkpoint.state)
    contents = [_content(survey, name) for name in pair]
    if not pair or None in contents:
        return
    if contents[0] == contents[1]:
        yield Unjudged(
            f"{pair[0]} and {pair[1]}, which {_CONFIG} ties, are two tensors, whose elements were not compared"
        )
        return
    told: dict[str, Json] = {name: one.largest for name, one in zip(pair, contents, strict=True) if one is not None}
    yield Evidence(
        f"{_CONFIG} says {_TIED}, and {pair[0]} and {pair[1]} are stored as two tensors with unlike values: the model "
        "that loads them keeps the first",
        Place(parameter=pair[1]),
        {"largest": told},
        "tie the weights again before saving, or set tie_word_embeddings to false",
    )


def _pair(state: TrainingState) -> tuple[str, ...]:
    """The input and the output embedding, where each is one parameter of its own and both are of one shape."""
    found = []
    for endings in (_INPUTS, _OUTPUTS):
        one = [name for name in state.parameters if any(name == end or name.endswith(f".{end}") for end in endings)]
        if len(one) != 1:
            return ()
        found.append(one[0])
    specs = [state.parameters[name].entry.spec for name in found]
    return tuple(found) if specs[0] is not None and specs[0] == specs[1] else ()


def _content(survey: Survey, name: str) -> Content | None:
    return survey.contents.get(Item("param", name))
