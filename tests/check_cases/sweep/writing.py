"""The containers that one checkpoint is written into."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

Saved = dict[str, Any]
Write = Callable[[Saved, Path], Path]
MODEL_KEYS = ("model", "state_dict", "model_state_dict")


def as_zip(state: Saved, place: Path) -> Path:
    """torch.save."""
    torch.save(state, place.with_suffix(".pt"))
    return place.with_suffix(".pt")


def as_legacy(state: Saved, place: Path) -> Path:
    """torch.save as it was before version 1.6."""
    torch.save(state, place.with_suffix(".pth"), _use_new_zipfile_serialization=False)
    return place.with_suffix(".pth")


def as_dcp(state: Saved, place: Path) -> Path:
    """torch.distributed.checkpoint by one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=place, no_dist=True)
    return place


def as_folder(state: Saved, place: Path) -> Path:
    """Weights in safetensors, each tensor once, and one file for each other part."""
    place.mkdir()
    key = next(one for one in MODEL_KEYS if one in state)
    as_weights(state, place / "model")
    for part, content in state.items():
        if part != key:
            torch.save(content, place / f"{'optimizer' if part.startswith('optim') else part}.pt")
    return place


def as_weights(state: Saved, place: Path) -> Path:
    """The weights alone, in safetensors."""
    save_file(once(weights_of(state)), place.with_suffix(".safetensors"))
    return place.with_suffix(".safetensors")


def as_torch_weights(state: Saved, place: Path) -> Path:
    """The weights alone, by torch.save."""
    torch.save(weights_of(state), place.with_suffix(".pth"))
    return place.with_suffix(".pth")


def weights_of(state: Saved) -> dict[str, torch.Tensor]:
    """The model's state_dict."""
    return state[next(one for one in MODEL_KEYS if one in state)]


def once(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each tensor under its first name, as safetensors asks."""
    seen: set[int] = set()
    found = {}
    for name, one in weights.items():
        if one.data_ptr() not in seen or not one.numel():
            seen.add(one.data_ptr())
            found[name] = one.contiguous()
    return found


WRITERS: tuple[Write, ...] = (as_zip, as_zip, as_zip, as_legacy, as_dcp, as_folder)
