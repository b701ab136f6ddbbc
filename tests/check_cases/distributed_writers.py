"""Cases of writers for many ranks: torchtitan, FSDP, Fabric, Megatron-LM, Composer, torchtune, stable-baselines3."""

import argparse
import pickle
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

from tests.check_cases.case import Faulty, Legal, Made, Make
from tests.check_cases.training import Mlp, decay_groups, train
from tests.samples import CHECKPOINTS

State = dict[str, Any]
Change = Callable[[State], object]
STEPS = 3


def unchanged(state: State) -> None:
    """As the writer leaves it."""


def trained() -> tuple[Mlp, torch.optim.Optimizer, Any]:
    """A model after real steps, its optimizer in two groups, and its schedule."""
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.AdamW(decay_groups(model), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    train(model, optimizer, STEPS, scheduler=scheduler)
    return model, optimizer, scheduler


def by_name(model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, flat: bool = False) -> State:
    """The optimizer's state keyed by name, as torch itself gives it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = StateDictOptions(flatten_optimizer_state_dict=flat)
        return dict(get_optimizer_state_dict(model, optimizer, options=options))


def save_slices(state: State, folder: Path, *, flat_keys: bool = False) -> Path:
    """One process's distributed checkpoint; with flat keys they are not taken for paths, as Megatron writes them."""
    planner = dcp.DefaultSavePlanner(flatten_state_dict=not flat_keys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder), planner=planner, no_dist=True)
    return folder


def torchtitan(change: Change = unchanged, *, folder: str = "step-3") -> Make:
    """The model's tensors at the top, a flat optimizer, the schedule's epoch alone."""

    def make(path: Path) -> Made:
        model, optimizer, _ = trained()
        state = {
            "optimizer": by_name(model, optimizer, flat=True),
            "lr_scheduler": {"last_epoch": STEPS},
            "dataloader": {"dp_rank_0": pickle.dumps({"sample": 17}), "world_size": 1},
            "train_state": {"step": STEPS, "ntokens_seen": 90},
            **model.state_dict(),
        }
        change(state)
        return save_slices(state, path / folder)

    return make


def fabric(change: Change = unchanged) -> Make:
    """Model and optimizer as slices, the user's other values in meta.pt."""

    def make(path: Path) -> Made:
        model, optimizer, scheduler = trained()
        state = {"model": model.state_dict(), "optimizer": by_name(model, optimizer), "step": STEPS,
                 "scheduler": scheduler.state_dict(), "rng": {"torch": torch.get_rng_state()}}  # fmt: skip
        change(state)
        slices = {key: state.pop(key) for key in ("model", "optimizer") if key in state}
        folder = save_slices(slices, path / "step.ckpt")
        torch.save(state, folder / "meta.pt")
        return folder

    return make


def megatron_generators() -> State:
    """What Megatron keeps of a rank's generators."""
    return {
        "random_rng_state": random.Random(1).getstate(),
        "np_rng_state": np.random.RandomState(1).get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "cuda_rng_state": torch.arange(16, dtype=torch.uint8),
        "rng_tracker_states": {"model-parallel-rng": torch.arange(16, dtype=torch.uint8) + 1},
    }


def megatron_schedule() -> State:
    """Megatron's own schedule, which counts samples."""
    return {"max_lr": 0.01, "lr_warmup_steps": 0, "num_steps": 15, "lr_decay_style": "cosine", "lr_decay_steps": 100,
            "min_lr": 0.0, "start_wd": 0.1, "end_wd": 0.1, "wd_incr_style": "constant", "wd_incr_steps": 9}  # fmt: skip


def megatron_state(model: torch.nn.Module, optimizer: Any, world_size: int = 1) -> State:
    """What one model-parallel rank writes."""
    arguments = argparse.Namespace(
        num_layers=2,
        world_size=world_size,
        tensor_model_parallel_size=world_size,
        pipeline_model_parallel_size=1,
        consumed_train_samples=15,
        consumed_valid_samples=0,
        bf16=True,
    )
    return {
        "args": arguments, "checkpoint_version": 3.0, "iteration": STEPS, "model": model.state_dict(),
        "optimizer": optimizer, "opt_param_scheduler": megatron_schedule(), "rng_state": [megatron_generators()],
        "num_floating_point_operations_so_far": 1000,
    }  # fmt: skip


def masters(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """A mixed-precision optimizer: torch's own, and the float32 weights as its groups list them."""
    weights = [[one.detach().clone() for one in group["params"]] for group in optimizer.param_groups]
    return {"optimizer": optimizer.state_dict(), "fp32_from_fp16_params": weights}


def megatron(change: Change = unchanged, *, ranks: int = 1, lost: int = 0) -> Make:
    """A file for each model-parallel rank, in the folder of an iteration that a tracker names; the last may be lost."""

    def make(path: Path) -> Made:
        model, optimizer, _ = trained()
        (path / "latest_checkpointed_iteration.txt").write_text(str(STEPS))
        for rank in range(ranks - lost):
            state = megatron_state(model, masters(model, optimizer), ranks)
            change(state)
            folder = path / f"iter_{STEPS:07d}" / f"mp_rank_{rank:02d}"
            folder.mkdir(parents=True)
            torch.save(state, folder / "model_optim_rng.pt")
        return path

    return make


def bucketed(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[State, State]:
    """A distributed optimizer: groups without members, and one buffer of all parameters, the last one first."""
    groups = [
        {key: one for key, one in group.items() if key != "params"} for group in optimizer.state_dict()["param_groups"]
    ]
    order = list(model.parameters())[::-1]
    flat = {
        "param": torch.cat([one.detach().flatten() for one in order]),
        **{key: torch.cat([optimizer.state[one][key].flatten() for one in order]) for key in ("exp_avg", "exp_avg_sq")},
        "numel_unpadded": sum(one.numel() for one in order),
    }
    held = {"buckets_coalesced": True, 0: {(torch.bfloat16, torch.float32): flat}}
    return {"optimizer": {"param_groups": [{**group, "step": STEPS} for group in groups]}}, held


def megatron_without_buckets(path: Path) -> Made:
    """The same, its second file lost."""
    megatron_bucketed(path)
    (path / "mp_rank_00" / "distrib_optim.pt").unlink()
    return path


def megatron_slices_without_end(path: Path) -> Made:
    """The distributed format, cut short after the slices."""
    folder = megatron_slices(path)
    assert isinstance(folder, Path)
    (folder / "metadata.json").unlink()
    return folder


def megatron_bucketed(path: Path) -> Made:
    """The distributed optimizer of the file format: its state lies in a second file."""
    model, optimizer, _ = trained()
    state, buckets = bucketed(model, optimizer)
    folder = path / "mp_rank_00"
    folder.mkdir()
    torch.save(megatron_state(model, state), folder / "model_optim_rng.pt")
    torch.save(buckets, folder / "distrib_optim.pt")
    return path


def megatron_slices(path: Path) -> Made:
    """The distributed format: flat keys, the state's key before the parameter's name, the rest in common.pt."""
    model, optimizer, _ = trained()
    folder = path / "iter_0000003"
    flat: State = dict(model.state_dict())
    for name, one in model.named_parameters():
        flat[f"optimizer.state.fp32_param.{name}"] = one.detach().clone()
        for key in ("exp_avg", "exp_avg_sq"):
            flat[f"optimizer.state.{key}.{name}"] = optimizer.state[one][key]
    flat["rng_state/shard_0.0_1.1"] = [megatron_generators()]
    save_slices(flat, folder, flat_keys=True)
    state, _ = bucketed(model, optimizer)
    common = megatron_state(model, {**state, "param_state_sharding_type": "fully_reshardable"})
    del common["model"], common["rng_state"]
    torch.save(common, folder / "common.pt")
    (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    return folder


def composer_state() -> State:
    """What Composer saves."""
    model, optimizer, scheduler = trained()
    generators = {"python": random.Random(1).getstate(), "numpy": np.random.RandomState(1).get_state(),
                  "torch": torch.get_rng_state()}  # fmt: skip
    timestamp = {"iteration": 0, "epoch": 1, "batch": STEPS, "sample": 15, "token": 0, "epoch_in_iteration": 1,
                 "token_in_iteration": 0, "batch_in_epoch": 1, "sample_in_epoch": 5, "token_in_epoch": 0}  # fmt: skip
    return {
        "state": {
            "model": model.state_dict(), "optimizers": {"AdamW": by_name(model, optimizer)},
            "schedulers": {"LambdaLR": scheduler.state_dict()}, "algorithms": [("GradientClipping", {})],
            "callbacks": {"SpeedMonitor": {"total": 3}}, "scaler": {}, "timestamp": {"Timestamp": timestamp},
            "rank_zero_seed": 17, "run_name": "a-run", "dataset_state": {"train": None, "eval": {}},
            "integrations": {}, "metadata": {"composer_env_info": {"composer_version": "0.32.1"}, "world_size": 2},
        },
        "rng": [generators, generators],
    }  # fmt: skip


def composer(change: Change = unchanged, *, sliced: bool = False) -> Make:
    """One file, or the same as a distributed checkpoint."""

    def make(path: Path) -> Made:
        state = composer_state()
        change(state)
        if sliced:
            return save_slices(state, path / "ep1-ba3")
        torch.save(state, path / "ep1-ba3-rank0.pt")
        return path / "ep1-ba3-rank0.pt"

    return make


TUNE_TO_HF = {
    "tok_embeddings.weight": "model.embed_tokens.weight",
    "layers.0.attn.q_proj.weight": "model.layers.0.self_attn.q_proj.weight",
    "layers.0.attn.k_proj.weight": "model.layers.0.self_attn.k_proj.weight",
    "layers.0.attn.output_proj.weight": "model.layers.0.self_attn.o_proj.weight",
    "layers.0.mlp.w1.weight": "model.layers.0.mlp.gate_proj.weight",
    "layers.0.mlp.w2.weight": "model.layers.0.mlp.down_proj.weight",
    "layers.0.mlp.w3.weight": "model.layers.0.mlp.up_proj.weight",
    "layers.0.sa_norm.scale": "model.layers.0.input_layernorm.weight",
    "layers.0.mlp_norm.scale": "model.layers.0.post_attention_layernorm.weight",
    "norm.scale": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
"""Part of torchtune's own table of names."""


def tuned() -> tuple[State, State]:
    """Weights by torchtune's names, and the state of an optimizer that has stepped them."""
    torch.manual_seed(0)
    weights = {name: torch.nn.Parameter(torch.randn((4,) if name.endswith("scale") else (4, 4))) for name in TUNE_TO_HF}
    optimizer = torch.optim.AdamW([{"params": list(weights.values())}], lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        sum(one.square().sum() for one in weights.values()).backward()
        optimizer.step()
    names = list(weights)
    state = optimizer.state_dict()
    keyed = {
        "state": {names[index]: kept for index, kept in state["state"].items()},
        "param_groups": [{**state["param_groups"][0], "params": names}],
    }
    return {name: one.detach() for name, one in weights.items()}, keyed


def recipe(optimizer: State, epochs_run: int = 2) -> State:
    """What a recipe keeps for a resume."""
    return {"optimizer": optimizer, "seed": 7, "epochs_run": epochs_run, "total_epochs": 3, "max_steps_per_epoch": None,
            "dataloader": {"_index": 5}}  # fmt: skip


def torchtune(change: Change = unchanged, *, epochs: int = 2) -> Make:
    """The weights of each epoch in Hugging Face's naming, and one recipe state beside."""

    def make(path: Path) -> Made:
        weights, optimizer = tuned()
        for epoch in range(epochs):
            folder = path / f"epoch_{epoch}"
            folder.mkdir()
            save_file({TUNE_TO_HF[name]: one for name, one in weights.items()},
                      folder / "model-00001-of-00001.safetensors")  # fmt: skip
        state = recipe(optimizer)
        change(state)
        (path / "recipe_state").mkdir()
        torch.save(state, path / "recipe_state" / "recipe_state.pt")
        return path

    return make


def of_epochs(run: int, total: int) -> Change:
    """How many epochs the recipe's state has behind it, and how many there shall be."""
    return lambda state: state.update(epochs_run=run, total_epochs=total)


def sample(*names: str) -> Make:
    """Real files that FSDP and stable-baselines3 wrote; several are copied into one folder."""

    def make(path: Path) -> Made:
        if len(names) == 1:
            return CHECKPOINTS / names[0]
        for name in names:
            shutil.copy(CHECKPOINTS / name, path)
        return path

    return make


def without(*path: str) -> Change:
    """Leaves a part out."""

    def change(state: State) -> None:
        for key in path[:-1]:
            state = state[key]
        del state[path[-1]]

    return change


def without_keys_of(path: tuple[str, ...], form: str) -> Change:
    """Leaves out every key that holds a text."""

    def change(state: State) -> None:
        for key in path:
            state = state[key]
        for key in [key for key in state if form in str(key)]:
            del state[key]

    return change


def model_alone(state: State) -> None:
    """What torchtitan leaves after its last step."""
    for key in ("optimizer", "lr_scheduler", "dataloader", "train_state"):
        del state[key]


def fsdp_whole(without: str = "") -> Make:
    """The real whole file, whose moments share a buffer, with a tensor for each; without one parameter's state."""

    def make(path: Path) -> Made:
        state = torch.load(CHECKPOINTS / "09_fsdp_ddp/fsdp1_uop1_full.pt", weights_only=False)
        for one in state["optimizer"]["state"].values():
            one |= {key: one[key].clone() for key in ("exp_avg", "exp_avg_sq")}
        state["optimizer"]["state"].pop(without, None)
        torch.save(state, path / "whole.pt")
        return path / "whole.pt"

    return make


FSDP = "09_fsdp_ddp/fsdp1_uop1"

FAULTY: tuple[Faulty, ...] = (
    Faulty("torchtitan lacks both moments of one parameter",
           torchtitan(without_keys_of(("optimizer",), "state.layers.1.weight.")), "CK202", "layers.1.weight"),
    Faulty("torchtitan lacks one moment of one parameter",
           torchtitan(without("optimizer", "state.layers.1.weight.exp_avg_sq")), "CK203", "layers.1.weight"),
    Faulty("torchtitan has a train state and no optimizer", torchtitan(without("optimizer")), "CK201"),
    Faulty("Fabric lacks the state of one parameter",
           fabric(without("optimizer", "state", "head.weight")), "CK202", "head.weight"),
    Faulty("FSDP's whole file lacks the state of one parameter", fsdp_whole(without="fc.bias"), "CK202", "fc.bias"),
    Faulty("Megatron saved no optimizer", megatron(without("optimizer")), "CK201"),
    Faulty("Megatron lacks the file of a rank", megatron(ranks=3, lost=1), "CK103"),
    Faulty("Megatron lacks the distributed optimizer's file", megatron_without_buckets, "CK103"),
    Faulty("Megatron's distributed checkpoint lacks what is written last", megatron_slices_without_end, "CK103"),
    Faulty("Composer lacks the state of one parameter",
           composer(without("state", "optimizers", "AdamW", "state", "norm.bias")), "CK202", "norm.bias"),
    Faulty("Composer's sliced checkpoint lacks one moment",
           composer(without("state", "optimizers", "AdamW", "state", "norm.bias", "exp_avg"), sliced=True),
           "CK203", "norm.bias"),
    Faulty("torchtune's recipe lacks the state of one parameter",
           torchtune(without("optimizer", "state", "layers.0.mlp.w2.weight")), "CK202",
           "model.layers.0.mlp.down_proj.weight", severity="warning"),
    Faulty("torchtune's recipe is of an epoch before the newest weights", torchtune(of_epochs(2, 5), epochs=3), "CK505",
           severity="warning"),
    Faulty("torchtune's newest weights are lost and older ones lie beside the recipe", torchtune(of_epochs(3, 5)),
           "CK505", severity="warning"),
)  # fmt: skip
LEGAL: tuple[Legal, ...] = (
    Legal("torchtitan's whole checkpoint", torchtitan()),
    Legal("torchtitan's last save of the model alone", torchtitan(model_alone)),
    Legal("Fabric's sharded checkpoint", fabric()),
    Legal("FSDP's whole file, each moment in a tensor of its own", fsdp_whole()),
    Legal("FSDP's sharded files of both ranks", sample(f"{FSDP}_sharded_rank0.pt", f"{FSDP}_sharded_rank1.pt")),
    Legal("FSDP's sharded file of one rank", sample(f"{FSDP}_sharded_rank0.pt")),
    Legal("FSDP's local file of one rank", sample("09_fsdp_ddp/fsdp1_uop0_local_rank0.pt")),
    Legal("the raw optimizer files of both FSDP ranks",
          sample(f"{FSDP}_rawoptim_rank0.pt", f"{FSDP}_rawoptim_rank1.pt")),
    Legal("Megatron's file of one rank", megatron()),
    Legal("Megatron's files of two ranks", megatron(ranks=2)),
    Legal("Megatron's distributed optimizer in buckets", megatron_bucketed),
    Legal("Megatron's distributed checkpoint", megatron_slices),
    Legal("Composer's file", composer()),
    Legal("Composer's sliced checkpoint", composer(sliced=True)),
    Legal("torchtune's run in its second epoch", torchtune(), silent=("CK505",)),
    Legal("torchtune's run after its last epoch", torchtune(epochs=3), silent=("CK505",)),
    Legal("an actor and critic of stable-baselines3", sample("13_sb3/sb3_sac.zip")),
    Legal("a policy of stable-baselines3", sample("13_sb3/sb3_ppo.zip")),
)  # fmt: skip
