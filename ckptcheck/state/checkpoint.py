"""A checkpoint understood: who wrote it, its training state, and how sure the names are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ckptcheck.state.raw import Raw, RawTree
from ckptcheck.state.training_state import TrainingState


class NameSource(StrEnum):
    """Where the parameter names of an optimizer's state come from, the best first."""

    PARAM_NAMES = "param_names"
    """The group's own `param_names`."""
    KEYS = "keys"
    """The state is keyed by name."""
    SLICES = "slices"
    """DeepSpeed's slice mappings or parameter shapes."""
    USER = "user"
    """A list that the user gave."""
    MODEL_ORDER = "model-order"
    """The order of the model's state_dict fits every index, in number and shape, and is the only one that does."""
    GROUPING = "grouping"
    """One known rule alone sorts the model's parameters into groups of these numbers and shapes."""
    TARGET = "target"
    """The live optimizer that shall load it has groups of these numbers and shapes: there a load puts the state."""
    NONE = "none"
    """Parameters are numbered as in the file: "#0", "#1", ..."""


@dataclass(frozen=True, slots=True)
class Naming:
    """How one optimizer's parameters got their names.

    `certain` is False where shapes and order alone speak for them; `reason` says in one sentence why these names, or
    why none. `candidates` are the known grouping rules that fit, where they name the parameters in unlike ways.
    """

    source: NameSource
    certain: bool
    reason: str
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint as its writer's convention explains it.

    Attributes:
        raw: as read.
        convention: the writer: "hf-trainer", "accelerate", "lightning", "deepspeed", "store", ..., or "plain".
        state: the training state by parameter name. Entries of tensors have a `ref` and no digest.
        namings: one for each optimizer of the state.
        optimizer_labels: one for each optimizer of the state: the file's own key for it ("optim_G", "optimizer_1"), ""
            where it has one under a usual name, or a list of them.
        stripped: wrapper prefixes that were taken off names, as "module." or "_orig_mod.".
        recorded_step: the step in the file's own words, as "global_step 2 (trainer_state.json)"; "" without one.
        world_size: number of ranks that wrote it, None where the file does not say.
        unrecognised: paths of raw values that no part of the convention explains; they stand in section "extra".
        descriptions: paths in section "extra" that describe the model and hold no training state (config.json):
            they are not held against a checkpoint that has no such part.
        notes: what a reader should know, one sentence each.
        models: further weights beside the model, by name: `--left-section` can choose one ("ema", "discriminator").
    """

    raw: RawTree
    convention: str
    state: TrainingState
    namings: tuple[Naming, ...] = ()
    optimizer_labels: tuple[str, ...] = ()
    stripped: tuple[str, ...] = ()
    recorded_step: str = ""
    world_size: int | None = None
    unrecognised: tuple[str, ...] = ()
    descriptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    models: Mapping[str, Raw] = field(default_factory=dict)


def numbered(index: int) -> str:
    """The name of a parameter whose name is not known: its index in the optimizer's state_dict."""
    return f"#{index}"
