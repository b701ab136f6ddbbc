"""Parts that a trainer always saves together, of which some are not there: the folder can be read, but not resumed."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ckptcheck.readers.folders.folder_files import INDEX, is_stored_state
from ckptcheck.readers.folders.megatron_parts import lost_ranks
from ckptcheck.readers.reader import Listing
from ckptcheck.state.raw import Defect, Flaw, RawTree

_NO_WEIGHTS: Final = re.compile(
    r"(optimizer|scheduler|sampler|dl_state_dict|rng_state|random_states|scaler|custom_checkpoint)(_\d+)?"
    r"\.(pt|pth|bin|pkl)|training_args\.bin"
)
"""What the Trainer and Accelerate save beside the weights."""
_TRIO: Final = (
    ("optimizer.pt", re.compile(r"optimizer\.pt")),
    ("scheduler.pt", re.compile(r"scheduler\.pt")),
    ("rng_state.pth", re.compile(r"rng_state(_\d+)?\.pth")),
)
"""What the Trainer saves unless it saves the model only: all of it or nothing."""
_DEEPSPEED: Final = re.compile(r"latest|zero_to_fp32\.py|(.+/)?\w+_states\.pt")
_NUMBERED: Final = (
    ("model", re.compile(r"(?:pytorch_model|model)(?:_(\d{1,4}))?\.(?:bin|safetensors)")),
    ("optimizer", re.compile(r"optimizer(?:_(\d{1,4}))?\.bin")),
    ("scheduler", re.compile(r"scheduler(?:_(\d{1,4}))?\.bin")),
)
"""What Accelerate numbers from the second on, without a gap. Samplers may have gaps: not all of them hold state."""
_RANDOM_STATES: Final = re.compile(r"random_states_\d+\.pkl")
_STEP: Final = re.compile(r"checkpoint-\d+")


def lost_parts(listing: Listing, files: Mapping[str, RawTree]) -> Iterator[Defect]:
    """One defect for each part that is missing; `files` are those that were read."""
    for file, said in (*_adapters(listing), *_trainer(listing, files), *_accelerate(listing), *lost_ranks(files)):
        yield Defect(Flaw.INCOMPLETE, file, said)


def _adapters(listing: Listing) -> Iterator[tuple[str, str]]:
    """PEFT saves an adapter's weights beside its description."""
    for label in listing.files:
        folder, slash, name = label.rpartition("/")
        if name == "adapter_config.json" and not _has_weights(_below(listing, folder + slash)):
            yield label, "the weights of the adapter (adapter_model.safetensors) are not there"


def _trainer(listing: Listing, files: Mapping[str, RawTree]) -> Iterator[tuple[str, str]]:
    """HF's Trainer: weights; optimizer, schedule and generators, unless it was told to save the model only."""
    held = listing.files
    if "trainer_state.json" not in held:
        return
    there = {name: any(map(form.fullmatch, held)) for name, form in _TRIO}
    is_step = _STEP.fullmatch(listing.path.name) is not None
    begun = is_step or "training_args.bin" in held or any(there.values())
    if begun and "adapter_config.json" not in held and not _has_weights(held):
        yield "", "no file holds the weights, which the Trainer saves first (model.safetensors)"
    if not any(there.values()):
        return
    lacking = [name for name, is_there in there.items() if not is_there]
    if any(map(_DEEPSPEED.fullmatch, held)):  # it keeps optimizer and schedule in files of its own
        lacking = [name for name in lacking if name == "rng_state.pth"]
    if any("optim" in label for label in held):  # under another name: FSDP, XLA, SageMaker
        lacking = [name for name in lacking if name != "optimizer.pt"]
    if not _saves_generators(files):
        lacking = [name for name in lacking if name != "rng_state.pth"]
    for name in lacking:
        beside = next(one for one, is_there in there.items() if is_there)
        yield "", f"{name} is not there, which the Trainer saves wherever it saves {beside}"


def _saves_generators(files: Mapping[str, RawTree]) -> bool:
    """Whether transformers was new enough: its state names `save_steps` from 4.32 on, generators came with 4.7."""
    state = files.get("trainer_state.json")
    return state is not None and isinstance(state.root, Mapping) and "save_steps" in state.root


def _accelerate(listing: Listing) -> Iterator[tuple[str, str]]:
    """Accelerate's save_state: all it was given, by number, and each rank's generators."""
    held = listing.files
    has_states = any(map(_RANDOM_STATES.fullmatch, held))
    if not has_states and not ({"optimizer.bin", "scheduler.bin"} <= set(held) and "training_args.bin" not in held):
        return
    numbers = {what: _numbers(form, held) for what, form in _NUMBERED}
    for found in numbers.values():
        lacking = [one for one in range(max(found, default=0)) if one not in found]
        if lacking:
            last = found[max(found)]
            first = last.replace(f"_{max(found)}.", f"_{lacking[0]}." if lacking[0] else ".")
            yield "", f"{first} is not there, though {last} is"
    if numbers["optimizer"] and not numbers["model"] and not _has_weights(held) and not _has_custom(held):
        yield "", "no file holds the weights, which Accelerate saves with optimizer.bin"
    if not has_states and (numbers["model"] or _has_weights(held)):
        yield "", "random_states_0.pkl is not there, which Accelerate always saves, and last"


def _numbers(form: re.Pattern[str], labels: Iterable[str]) -> dict[int, str]:
    matches = map(form.fullmatch, labels)
    return {int(match[1] or 0): match[0] for match in matches if match}


def _has_custom(labels: Iterable[str]) -> bool:
    """Whether an object was registered by hand: it may be the model."""
    return any(label.startswith("custom_checkpoint_") for label in labels)


def _has_weights(labels: Iterable[str]) -> bool:
    """Whether a file, in a sub-folder too, may hold weights: any with tensors but those known for something else."""
    return any(
        (is_stored_state(label) or INDEX.fullmatch(label)) and not _NO_WEIGHTS.fullmatch(label.rpartition("/")[2])
        for label in labels
    )


def _below(listing: Listing, prefix: str) -> list[str]:
    return [label.removeprefix(prefix) for label in listing.files if label.startswith(prefix)]
