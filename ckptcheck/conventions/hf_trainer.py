"""The `checkpoint-N/` folders of the Hugging Face Trainer."""

from collections.abc import Mapping, Sequence
from typing import Final

from ckptcheck.conventions.files import files_of, first_of, keeps_order, matching, unwrapped
from ckptcheck.conventions.parts import Parts, checkpoint
from ckptcheck.conventions.peft import BASE_ABSENT, CONFIG, WEIGHTS
from ckptcheck.conventions.progress import number_of
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTree

STATE: Final = "trainer_state.json"
MODELS: Final = ("model.safetensors", "pytorch_model.bin", "pytorch_model_fsdp.bin", "pytorch_model_fsdp_0", *WEIGHTS)
OPTIMIZERS: Final = ("optimizer.pt", "optimizer.bin", "optimizer_0")
COUNTERS: Final = ("global_step", "epoch", "num_input_tokens_seen")
_RNG: Final = r"rng_state(_(?P<number>\d+))?\.pth"


class HfTrainer:
    """Told by `trainer_state.json`."""

    name = "hf-trainer"

    def claims(self, raw: RawTree) -> bool:
        """Whether the Trainer's own state is there."""
        return isinstance(files_of(raw).get(STATE), Mapping)

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Its optimizer is keyed by index, and a safetensors model keeps no order: names need a list or luck."""
        return checkpoint(raw, self.name, trainer_parts(raw), names)


def trainer_parts(raw: RawTree) -> Parts:
    """The parts of a Trainer's folder."""
    files = files_of(raw)
    parts = Parts()
    used = {STATE}
    if model := first_of(raw, *MODELS):
        parts.model, parts.ordered = unwrapped(files[model], "model"), keeps_order(raw, model)
        used.add(model)
    if optimizer := first_of(raw, *OPTIMIZERS):
        parts.optimizers["optimizer"] = unwrapped(files[optimizer], "optimizer")
        used.add(optimizer)
    for path, put in (("scheduler.pt", parts.schedulers), ("scaler.pt", parts.scalers)):
        if path in files:
            put[path] = files[path]
            used.add(path)
    states = [(int(match["number"] or 0), match[0], value) for match, value in matching(raw, _RNG)]
    for rank, path, value in states:
        parts.generators[rank] = [value]
        used.add(path)
    parts.world_size = len(states) or None
    _add_progress(parts, files[STATE])
    if CONFIG in files:
        parts.notes.append(BASE_ABSENT)
    parts.extra.update({path: value for path, value in files.items() if path not in used})
    return parts


def _add_progress(parts: Parts, state: Mapping[str, object]) -> None:
    parts.progress = {key: state[key] for key in COUNTERS if key in state}
    parts.extra[STATE] = {key: value for key, value in state.items() if key not in COUNTERS}
    parts.step = number_of(state.get("global_step"))
    parts.recorded_step = f"global_step {parts.step} ({STATE})" if parts.step is not None else ""
