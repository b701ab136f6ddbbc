"""DeepSpeed's files, made of live tensors as its ZeRO stages cut them, and its real files read by torch."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from ckptcheck.state.raw import Foreign
from tests.samples import CHECKPOINTS

SAMPLES = CHECKPOINTS / "10_deepspeed"
Groups = Sequence[Mapping[str, torch.Tensor]]
"""Each group's tensors by parameter name."""


class _Stub:
    """A class of DeepSpeed that is not installed here."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _Stub if module.startswith("deepspeed") else super().find_class(module, name)


def loaded(path: Path) -> Any:
    """A sample's file as torch reads it, DeepSpeed's own classes stubbed."""
    stubs = SimpleNamespace(Unpickler=_Unpickler, load=lambda file, **_: _Unpickler(file).load(), __name__="stubs")
    return torch.load(path, weights_only=False, pickle_module=stubs)


def flat_parts(tensors: Mapping[str, torch.Tensor], world: int) -> tuple[list[torch.Tensor], int]:
    """Stages 1 and 2: the tensors laid end to end, padded, and cut evenly; and how much padding there is."""
    flat = torch.cat([one.reshape(-1) for one in tensors.values()])
    padding = -len(flat) % (2 * world)
    return list(torch.cat([flat, torch.full((padding,), 77.0)]).chunk(world)), padding


def fragments(tensors: Mapping[str, torch.Tensor], parts: Sequence[torch.Tensor]) -> list[dict[str, Foreign]]:
    """`param_slice_mappings` of each rank."""
    begins, start = {}, 0
    for name, tensor in tensors.items():
        begins[name] = (start, start + tensor.numel())
        start += tensor.numel()
    length = len(parts[0])
    found = []
    for rank in range(len(parts)):
        low, high = rank * length, (rank + 1) * length
        held = {
            name: (max(begin, low) - low, min(end, high) - max(begin, low))
            for name, (begin, end) in begins.items()
            if begin < high and end > low
        }
        found.append({name: fragment(numel, start) for name, (start, numel) in held.items()})
    return found


def fragment(numel: int, start: int) -> Foreign:
    """One entry of `param_slice_mappings`."""
    return Foreign("deepspeed.utils.tensor_fragment.fragment_address", state={"numel": numel, "start": start})


def early_files(masters: Groups, moments: Groups, world: int, *, mapped: bool, **extra: Any) -> dict[str, Any]:
    """The files of stage 1 or 2: `masters` are float32 weights, `moments` the exp_avg of each."""
    files: dict[str, Any] = {"mp_rank_00_model_states.pt": model_states(masters, world, **extra)}
    cuts = [(flat_parts(one, world), flat_parts(two, world)[0]) for one, two in zip(masters, moments, strict=True)]
    for rank in range(world):
        state = {group: {"step": torch.tensor(5.0), "exp_avg": moment[rank]} for group, (_, moment) in enumerate(cuts)}
        pads = [padding if rank == world - 1 else 0 for (_, padding), _ in cuts]
        kept = {
            "base_optimizer_state": {"state": state, "param_groups": hyperparameters(masters)},
            "single_partition_of_fp32_groups": [
                parts[rank][: len(parts[rank]) - pad] for ((parts, _), _), pad in zip(cuts, pads, strict=True)
            ],
            "group_paddings": pads,
            "partition_count": [world] * len(masters),
        }
        if mapped:
            kept["param_slice_mappings"] = [
                fragments(group, parts)[rank] for group, ((parts, _), _) in zip(masters, cuts, strict=True)
            ]
        files[f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"] = {"optimizer_state_dict": kept}
    return files


def late_files(masters: Groups, moments: Groups, world: int, subgroups: Sequence[int], **extra: Any) -> dict[str, Any]:
    """The files of stage 3: `subgroups` says how many parameters each flat buffer holds."""
    files = {}
    pairs = [(one[name], two[name]) for one, two in zip(masters, moments, strict=True) for name in one]
    for rank in range(world):
        placeholders = [{name: torch.empty(0) for name in group} for group in masters]
        model = {
            **model_states(masters, world, **extra),
            "module": {k: v for one in placeholders for k, v in one.items()},
        }
        files[f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt"] = model
        flats, states, start = [], {}, 0
        for place, count in enumerate(subgroups):
            held = pairs[start : start + count]
            flats.append(torch.cat([late_part(one, rank, world) for one, _ in held]))
            states[place] = {
                "step": torch.tensor(5.0),
                "exp_avg": torch.cat([late_part(two, rank, world) for _, two in held]),
            }
            start += count
        files[f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"] = {
            "optimizer_state_dict": {
                "fp32_flat_groups": flats,
                "partition_count": world,
                "zero_stage": 3,
                "optimizer_state_dict": {"state": states, "param_groups": hyperparameters(masters)},
            }
        }
    return files


def late_part(tensor: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """One rank's part of a parameter, padded to be as long as the others'."""
    flat = tensor.reshape(-1)
    length = -(-len(flat) // world)
    padded = torch.cat([flat, torch.full((length * world - len(flat),), 77.0)])
    return padded[rank * length : (rank + 1) * length].clone()


def model_states(masters: Groups, world: int, **extra: Any) -> dict[str, Any]:
    """A model file: the weights are the master weights in bfloat16."""
    module = {name: one.bfloat16() for group in masters for name, one in group.items()}
    return {
        "module": module,
        "buffer_names": [],
        "optimizer": None,
        "param_shapes": [{name: tuple(one.shape) for name, one in group.items()} for group in masters],
        "dp_world_size": world,
        "mp_world_size": 1,
        "global_steps": 5,
        **extra,
    }


def hyperparameters(masters: Groups) -> list[dict[str, Any]]:
    """A param group for each group; a flat group is one parameter to the optimizer."""
    return [{"lr": 0.1 * (place + 1), "params": [place]} for place in range(len(masters))]
