"""The folders of Accelerate's `save_state`."""

from collections.abc import Mapping, Sequence
from typing import Final

from ckptcheck.conventions.files import files_of, keeps_order, matching, stem, unwrapped
from ckptcheck.conventions.parts import Parts, checkpoint, put
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTree

_RNG: Final = r"random_states_(?P<number>\d+)\.pkl"
_MODEL: Final = (
    r"(model|pytorch_model)(_(?P<number>\d+))?\.(safetensors|bin)|pytorch_model_fsdp(_(?P<fsdp>\d+))?(\.bin)?"
)
_OPTIMIZER: Final = r"optimizer(_(?P<number>\d+))?(\.bin)?"
_SCHEDULER: Final = r"scheduler(_(?P<number>\d+))?\.bin"
_DATA: Final = r"(sampler|dl_state_dict)(_(?P<number>\d+))?\.bin"


class Accelerate:
    """Told by `random_states_<rank>.pkl`."""

    name = "accelerate"

    def claims(self, raw: RawTree) -> bool:
        """Whether a process's random states are there."""
        return any(True for _ in matching(raw, _RNG))

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """No step is recorded but in objects that the user registered; optimizers are keyed by index."""
        files = files_of(raw)
        parts = Parts(recorded_step="")
        used = _add_model(raw, parts)
        for pattern, part, key in (
            (_OPTIMIZER, parts.optimizers, "optimizer"),
            (_SCHEDULER, parts.schedulers, ""),
            (_DATA, parts.data, ""),
            (r"scaler\.pt", parts.scalers, ""),
        ):
            for match, value in matching(raw, pattern):
                put(part, stem(match[0]), unwrapped(value, key) if key else value)
                used.add(match[0])
        states = list(matching(raw, _RNG))
        for match, value in states:
            _add_generators(parts, int(match["number"]), value)
            used.add(match[0])
        parts.world_size = len(states)
        for path, value in files.items():
            if path not in used:
                put(parts.extra, stem(path), value)
        return checkpoint(raw, self.name, parts, names)


def _add_model(raw: RawTree, parts: Parts) -> set[str]:
    """One model has no prefix, several have their files' names."""
    models = {match[0]: unwrapped(value, "model") for match, value in matching(raw, _MODEL)}
    parts.ordered = all(keeps_order(raw, path) for path in models)
    if len(models) == 1:
        parts.model = next(iter(models.values()))
    elif models:
        parts.model = {stem(path): value for path, value in models.items()}
        parts.models = dict(parts.model)
    return set(models)


def _add_generators(parts: Parts, rank: int, value: Raw) -> None:
    if not isinstance(value, Mapping):
        parts.extra[f"random_states_{rank}"] = value
        return
    parts.generators[rank] = [{key: one for key, one in value.items() if key != "step"}]
    if "step" in value and not rank:
        parts.progress["accelerator.step"] = value["step"]
