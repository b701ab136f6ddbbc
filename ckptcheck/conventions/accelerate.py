"""The folders of Accelerate's `save_state`."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ckptcheck.conventions.files import files_of, keeps_order, matching, stem, unwrapped
from ckptcheck.conventions.parts import Parts, checkpoint, put
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTree

FIRST_MODEL: Final = "model"
_RNG: Final = r"random_states_(?P<number>\d+)\.pkl"
_MODELS: Final = (
    r"(model|pytorch_model)(_(?P<number>\d+))?\.(safetensors|bin)",
    r"pytorch_model_fsdp(_(?P<number>\d+))?(\.bin)?",
)
_OPTIMIZER: Final = r"optimizer(_(?P<number>\d+))?(\.bin)?"
_SCHEDULER: Final = r"scheduler(_(?P<number>\d+))?\.bin"
_SCALER: Final = r"scaler(_(?P<number>\d+))?\.pt"
_DATA: Final = r"(sampler|dl_state_dict)(_(?P<number>\d+))?\.bin"


class Accelerate:
    """Told by `random_states_<rank>.pkl`; where these are lost, by numbered models and optimizers."""

    name = "accelerate"

    def claims(self, raw: RawTree) -> bool:
        """Whether a process's random states are there, or what several objects were saved as."""
        if any(True for _ in matching(raw, _RNG)):
            return True
        models = [match for pattern in _MODELS for match, _ in matching(raw, pattern)]
        is_numbered = any(match["number"] for match in models)
        return is_numbered and any(match[0].endswith(".bin") for match, _ in matching(raw, _OPTIMIZER))

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """No step is recorded but in objects that the user registered; optimizers are keyed by index."""
        files = files_of(raw)
        parts = Parts(recorded_step="")
        used = _add_model(raw, parts)
        for pattern, part, key in (
            (_OPTIMIZER, parts.optimizers, "optimizer"),
            (_SCHEDULER, parts.schedulers, ""),
            (_DATA, parts.data, ""),
            (_SCALER, parts.scalers, ""),
        ):
            for match, value in matching(raw, pattern):
                put(part, _label(match), unwrapped(value, key) if key else value)
                used.add(match[0])
        states = list(matching(raw, _RNG))
        for match, value in states:
            _add_generators(parts, int(match["number"]), value)
            used.add(match[0])
        parts.world_size = len(states) or None
        for path, value in files.items():
            if path not in used:
                put(parts.extra, stem(path), value)
        return checkpoint(raw, self.name, parts, names)


def _label(match: re.Match[str]) -> str:
    """What a file is called here. Its number tells the object; some versions number the first, most do not."""
    number = int(match["number"] or 0)
    if match[0].startswith("scheduler"):
        return f"scheduler[{number}]"
    kind = FIRST_MODEL if "model" in match[0] else stem(match[0]).removesuffix(f"_{match['number']}")
    return f"{kind}_{number}" if number else kind


def _add_model(raw: RawTree, parts: Parts) -> set[str]:
    """One model has no prefix, several have "model", "model_1", ..., whatever their files are called."""
    models: dict[str, Raw] = {}
    used = set()
    for match, value in (one for pattern in _MODELS for one in matching(raw, pattern)):
        label = _label(match)
        models[label if label not in models else stem(match[0])] = unwrapped(value, "model")
        used.add(match[0])
    parts.ordered = all(keeps_order(raw, path) for path in used)
    if [*models] == [FIRST_MODEL]:
        parts.model = models[FIRST_MODEL]
    elif models:
        parts.model = models
        parts.models = dict(models)
    return used


def _add_generators(parts: Parts, rank: int, value: Raw) -> None:
    if not isinstance(value, Mapping):
        parts.extra[f"random_states_{rank}"] = value
        return
    parts.generators[rank] = [{key: one for key, one in value.items() if key != "step"}]
    if "step" in value and not rank:
        parts.progress["accelerator.step"] = value["step"]
