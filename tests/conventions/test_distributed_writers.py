"""Checkpoints of writers for many ranks: every part in its place, by name, and nothing of it lost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.table import CONVENTIONS
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from ckptcheck.state.raw import Danger, Global, Shard, tensors_in
from tests.check_cases import distributed_writers as writers
from tests.conventions.made import folder, raw_tree
from tests.conventions.test_any_tree import refs
from tests.readers.live_values import bytes_of

CONVENTION_OF = {
    "torchtitan": "torchtitan", "Fabric": "fabric", "FSDP": "fsdp", "Megatron": "megatron", "Composer": "composer",
    "torchtune": "torchtune", "stable-baselines3": "stable-baselines3",
}  # fmt: skip


def made(make: Any, path: Path) -> Checkpoint:
    return explain(read_raw(make(path)))


def held(found: Checkpoint) -> dict[tuple[str, str], bytes]:
    """The bytes of every state tensor, by parameter and key."""
    return {
        (name, key): bytes(one.ref.fetch())
        for optimizer in found.state.optimizers
        for name, kept in optimizer.state.items()
        for key, one in kept.items()
        if one.ref is not None
    }


def live() -> dict[tuple[str, str], bytes]:
    """What the optimizer of the cases holds, by name, as torch itself has it."""
    model, optimizer, _ = writers.trained()
    names = {one: name for name, one in model.named_parameters()}
    return {(names[one], key): bytes_of(value) for one, kept in optimizer.state.items() for key, value in kept.items()}


@pytest.mark.parametrize("case", writers.LEGAL, ids=lambda case: case.name)
def test_each_writer_is_told_and_no_tensor_of_it_is_lost(case, tmp_path):
    found = made(case.make, tmp_path)
    assert found.convention == next(name for word, name in CONVENTION_OF.items() if word in case.name)
    reached = refs(found)
    aliased = {one.entry.ref.place for one in found.state.parameters.values() if one.aliases}
    trees = [found.raw.root, *(tree.root for tree in found.raw.files.values())]
    tensors = [one for one in tensors_in(trees) if one.class_name != "numpy.ndarray"]  # these are values
    assert [one for one in tensors if id(one) not in reached and one.place not in aliased] == []
    assert len(found.namings) == len(found.optimizer_labels) == len(found.state.optimizers)


@pytest.mark.parametrize(
    "make", [writers.torchtitan(), writers.fabric(), writers.composer(), writers.composer(sliced=True)]
)
def test_state_comes_to_its_parameter_and_to_its_group(make, tmp_path):
    found = made(make, tmp_path)
    assert held(found) == live()
    assert found.namings[0].source is NameSource.KEYS
    matrices = {name for name, one in found.state.parameters.items() if len(one.entry.spec.shape) > 1}
    groups = found.state.optimizers[0].groups
    assert [(set(one.members), one.hyperparameters["weight_decay"].value) for one in groups] == [
        (matrices, 0.1),
        (set(found.state.parameters) - matrices, 0.0),
    ]
    assert found.state.step == 3
    assert found.unrecognised == ()


def test_torchtitans_parts_are_schedule_data_and_progress(tmp_path):
    found = made(writers.torchtitan(), tmp_path)
    sections = found.state.sections
    assert sections["schedule"]["last_epoch"].value == 3
    assert {path: one.value for path, one in sections["progress"].items()} == {
        "train_state.step": 3, "train_state.ntokens_seen": 90,
    }  # fmt: skip
    assert set(sections["data"]) == {"dataloader.dp_rank_0", "dataloader.world_size"}
    assert not any("alone" in note for note in found.notes)


def test_torchtitans_last_save_says_that_no_optimizer_is_normal(tmp_path):
    found = made(writers.torchtitan(writers.model_alone), tmp_path)
    assert (found.state.step, found.recorded_step) == (3, "step 3 (the folder's name)")
    assert "last_save_model_only" in found.notes[0]
    lost = made(writers.torchtitan(writers.without("optimizer")), tmp_path / "lost")
    assert (lost.notes, lost.recorded_step) == ((), "train_state.step 3")
    other = made(writers.torchtitan(writers.model_alone, folder="weights"), tmp_path)
    assert other.convention == "dcp"
    assert list(other.state.parameters) == list(found.state.parameters)


def test_fabrics_other_values_stand_under_the_users_own_keys(tmp_path):
    found = made(writers.fabric(lambda state: state.update({"hyperparameters": {"width": 6}})), tmp_path)
    assert found.recorded_step == "step 3"
    assert list(found.state.rng) == ["torch"]
    assert found.state.sections["schedule"]["last_epoch"].value == 3
    assert found.state.sections["extra"]["hyperparameters.width"].value == 6


def test_a_key_that_fabric_has_in_both_places_is_kept_twice(tmp_path):
    path = writers.fabric()(tmp_path)
    torch.save({"model": {"note": "x"}, "step": 3}, path / "meta.pt")
    found = explain(read_raw(path))
    assert found.state.sections["extra"]["meta.pt.model.note"].value == "'x'"
    assert len(found.state.parameters) == 8


def test_the_ranks_of_fsdps_sharded_files_make_one_model(tmp_path):
    sharded = [f"{writers.FSDP}_sharded_rank{rank}.pt" for rank in (0, 1)]
    found = made(writers.sample(*sharded), tmp_path)
    whole = made(writers.sample(f"{writers.FSDP}_full.pt"), tmp_path)
    assert found.world_size == 2
    assert {name: bytes(one.entry.ref.fetch()) for name, one in found.state.parameters.items()} == {
        name: bytes(one.entry.ref.fetch()) for name, one in whole.state.parameters.items()
    }
    # torch wrote exp_avg_sq in both places of the whole file
    assert {key: one for key, one in held(found).items() if key[1] != "exp_avg"} == {
        key: one for key, one in held(whole).items() if key[1] != "exp_avg"
    }


def test_raw_slices_of_fsdp_are_said_to_be_what_cannot_be_loaded_elsewhere(tmp_path):
    raw = [f"{writers.FSDP}_rawoptim_rank{rank}.pt" for rank in (0, 1)]
    found = made(writers.sample(*raw), tmp_path)
    assert found.world_size == 2
    assert [one.source for one in found.namings] == [NameSource.NONE, NameSource.NONE]
    # rank 0 has slices of three parameters, rank 1 of the last two; nobody has lost a fourth one's state
    assert [[group.members for group in one.groups] for one in found.state.optimizers] == [
        [(), ("#0", "#1", "#2")], [(), ("#2", "#3")],
    ]  # fmt: skip
    assert sum("FSDP.optim_state_dict" in note for note in found.notes) == 2
    listed = [one.value for path, one in found.state.sections["extra"].items() if ".params[" in path]
    assert listed == [0, 1, 2, 3, 0, 1, 2, 3]


def test_raw_slices_beside_whole_weights_are_told_by_their_shapes(tmp_path):
    state = torch.load(writers.CHECKPOINTS / f"{writers.FSDP}_rawoptim_rank0.pt", weights_only=False)
    whole = torch.load(writers.CHECKPOINTS / f"{writers.FSDP}_full.pt", weights_only=False)
    weights = {name: one.clone() for name, one in whole["model"].items()}
    torch.save({"model": weights, "optimizer": state["optim_raw"]}, tmp_path / "last.pt")
    found = explain(read_raw(tmp_path / "last.pt"))
    assert (found.convention, found.namings[0].source) == ("fsdp", NameSource.NONE)
    assert found.optimizer_labels == ("",)


@pytest.mark.parametrize(("offsets", "shape", "convention"), [((2, 0), (2, 3), "fsdp"), ((0, 2), (4, 1), "plain")])
def test_pieces_along_rows_are_fsdps_and_along_columns_of_tensor_parallelism(offsets, shape, convention):
    whole = raw_tree({"model": {"a.weight": torch.ones(shape), "a.bias": torch.ones(2)}})
    model = whole.root["model"]
    pieces = {
        "a.weight": replace(model["a.weight"], shard=Shard((4, 3), offsets, rank=1)),
        "a.bias": replace(model["a.bias"], shard=Shard((4,), (2,), rank=1)),
    }
    named = (Global("", "torch.distributed.tensor.DTensor", Danger.UNKNOWN),)
    assert explain(replace(whole, root={"model": pieces}, globals=named)).convention == convention


def test_fsdp2s_files_of_ranks_are_fsdps(tmp_path):
    ranks = [f"09_fsdp_ddp/fsdp2_dtensor_rank{rank}.pt" for rank in (0, 1)]
    found = made(writers.sample(*ranks), tmp_path)
    assert (found.convention, found.world_size) == ("fsdp", 2)
    assert made(writers.sample(ranks[0]), tmp_path).convention == "fsdp"
    assert made(writers.sample("09_fsdp_ddp/fsdp2_full.pt"), tmp_path).convention == "plain"


def test_composers_timestamp_is_progress_and_the_place_in_the_data(tmp_path):
    found = made(writers.composer(), tmp_path)
    sections = found.state.sections
    assert (found.state.step, found.recorded_step, found.world_size) == (3, "timestamp.batch 3", 2)
    assert sections["progress"]["timestamp.epoch"].value == 1
    assert sections["data"]["timestamp.batch_in_epoch"].value == 1
    assert found.state.optimizers[0].class_name == "AdamW"
    assert sections["schedule"]["last_epoch"].value == 3
    assert {"torch", "torch (rank 1)", "numpy", "python"} <= set(found.state.rng)
    assert "scaler" not in sections
    assert sections["extra"]["state.rank_zero_seed"].value == 17


def test_composers_older_timestamp_average_dataset_and_scaler_are_known():
    state = writers.composer_state()
    inner = state["state"]
    inner["timestamp"] = inner["timestamp"]["Timestamp"]
    average = {"named_parameters_dict": {"head.bias": torch.ones(3)}, "named_buffers_dict": {}}
    inner["algorithms"] = [("EMA", {"ema_model": average, "ema_started": True})]
    inner["dataset_state"] = {"train": {"sample_in_epoch": 5}, "eval": {}}
    inner["scaler"] = {"GradScaler": torch.amp.GradScaler("cpu").state_dict()}
    inner["optimizers"] = {"AdamW": inner["optimizers"]["AdamW"], "Mine": {"odd": 1}}
    found = explain(raw_tree(state))
    sections = found.state.sections
    assert found.convention == "composer"
    assert found.state.step == 3
    assert sections["ema"]["named_parameters_dict.head.bias"].spec.shape == (3,)
    assert sections["extra"]["state.algorithms.EMA.ema_started"].value is True
    assert sections["data"]["dataset_state.train.sample_in_epoch"].value == 5
    assert sections["scaler"]["growth_interval"].value == 2000
    assert found.unrecognised == ("optimizers.Mine",)
    assert not any("skips" in note for note in found.notes)


def test_composers_weights_alone_are_a_release():
    noted = {"composer_env_info": {"composer_version": "0.32.1"}, "world_size": 4}
    state = {"state": {"model": {"w.weight": torch.ones(2)}, "integrations": {}, "metadata": noted}}
    found = explain(raw_tree(state))
    assert (found.convention, found.world_size, found.state.step) == ("composer", 4, None)
    assert "weights_only" in found.notes[0]


def test_torchtunes_optimizer_stands_under_the_names_of_the_weights(tmp_path):
    found = made(writers.torchtune(), tmp_path)
    _, optimizer = writers.tuned()
    names = writers.TUNE_TO_HF
    assert held(found) == {
        (names[name], key): bytes_of(one) for name, kept in optimizer["state"].items() for key, one in kept.items()
    }
    assert set(found.state.optimizers[0].groups[0].members) == set(names.values()) == set(found.state.parameters)
    assert found.state.sections["progress"]["epochs_run"].value == 2
    assert found.state.sections["data"]["dataloader._index"].value == 5
    assert found.state.sections["extra"]["recipe_state/recipe_state.seed"].value == 7
    assert not any("epoch_" in note for note in found.notes)


def test_weights_of_a_later_epoch_than_the_recipe_are_said(tmp_path):
    found = made(writers.torchtune(epochs=3), tmp_path)
    assert any("epoch_2" in note and "after 2 epochs" in note for note in found.notes)
    assert set(found.raw.files) == {"epoch_2/model-00001-of-00001.safetensors", "recipe_state/recipe_state.pt"}


def test_torchtunes_optimizer_keeps_its_own_names_where_not_all_are_known(tmp_path):
    def strange(state):
        state["optimizer"]["state"]["layers.0.rope"] = state["optimizer"]["state"].pop("norm.scale")

    found = made(writers.torchtune(strange), tmp_path)
    assert "layers.0.rope" in found.state.optimizers[0].state
    assert any("is not known" in note for note in found.notes)


def test_torchtunes_adapter_is_the_model_that_trains():
    base = {"model.norm.weight": torch.ones(4)}
    adapter = {"layers.0.attn.q_proj.lora_a.weight": torch.ones(2, 4)}
    optimizer = {
        "state": {next(iter(adapter)): {"exp_avg": torch.ones(2, 4)}},
        "param_groups": [{"lr": 0.1, "params": list(adapter)}],
    }
    files = {
        "epoch_1/model.safetensors": base, "epoch_1/adapter_model.pt": adapter,
        "epoch_1/adapter_model.safetensors": {"base_model.w.weight": torch.ones(2)},
        "epoch_1/adapter_config.json": {"r": 2}, "recipe_state/recipe_state.pt": writers.recipe(optimizer),
    }  # fmt: skip
    found = explain(folder(files))
    assert (found.convention, list(found.state.parameters)) == ("torchtune", list(adapter))
    assert found.state.optimizers[0].groups[0].members == tuple(adapter)
    assert list(found.models) == ["epoch_1/model"]
    assert {"epoch_1/model.model.norm.weight", "epoch_1/adapter_model.base_model.w.weight"} <= set(
        found.state.sections["extra"]
    )


def test_optimizers_of_single_parameters_stand_as_one():
    _, optimizer = writers.tuned()
    each = {
        name: {"state": {0: kept}, "param_groups": [{"lr": 0.5 if "mlp" in name else 0.25, "params": [0]}]}
        for name, kept in optimizer["state"].items()
    }
    found = explain(raw_tree(writers.recipe(each)))
    (one,) = found.state.optimizers
    assert found.convention == "torchtune"
    assert sorted(one.state) == sorted(writers.TUNE_TO_HF)
    assert [group.hyperparameters["lr"].value for group in one.groups] == [0.25, 0.5]
    assert {name for name in one.groups[1].members if "mlp" in name} == set(one.groups[1].members)


def test_torchtunes_asynchronous_save_is_one_distributed_checkpoint(tmp_path):
    weights, optimizer = writers.tuned()
    state = {"model": weights, **writers.recipe(optimizer)}
    found = explain(read_raw(writers.save_slices(state, tmp_path / "epoch_0")))
    assert found.convention == "torchtune"
    assert set(found.state.optimizers[0].state) == set(found.state.parameters) == set(weights)
    assert found.state.sections["data"]["dataloader._index"].value == 5


def archive(files: dict[str, Any]) -> Checkpoint:
    tree = folder(files)
    return explain(type(tree)(tree.path, "zip", tree.root, 0, files=tree.files))


@pytest.mark.parametrize("lists_targets", [False, True])
def test_a_q_networks_optimizer_has_the_network_and_never_its_target(lists_targets):
    net = {"q_net.0.weight": torch.nn.Parameter(torch.ones(2, 3)), "q_net.0.bias": torch.nn.Parameter(torch.ones(2))}
    target = {name.replace("q_net", "q_net_target"): torch.nn.Parameter(one.detach() + 1) for name, one in net.items()}
    optimizer = torch.optim.Adam([*net.values(), *(target.values() if lists_targets else ())])
    sum(one.sum() for one in net.values()).backward()
    optimizer.step()
    files = {
        "policy.pth": {**net, **target}, "policy.optimizer.pth": optimizer.state_dict(), "pytorch_variables.pth": {},
        "data": {"num_timesteps": 40, "replay_buffer_class": {}},
    }  # fmt: skip
    found = archive(files)
    assert list(found.state.optimizers[0].state) == list(net)
    assert found.state.optimizers[0].groups[0].members == (*net, *(target if lists_targets else ()))
    assert [note.split()[0] for note in found.notes[:1]] == ["q_net_target"]
    assert any("replay buffer" in note for note in found.notes)


NEAR_MISSES: dict[str, Any] = {
    "slices whose model has a key of its own": (
        "dcp", {"model": {"a.w": torch.ones(2)}, "train_state": {"step": 1}, "optimizer": {"state.a.w.step": 1}},
    ),
    "slices of a model under its key and of an average at the top": (
        "dcp", {"model": {"a.w": torch.ones(2)}, "average.a.w": torch.ones(2), "train_state": {"step": 1}},
    ),
    "slices with a train state and no weights": ("dcp", {"train_state": {"step": 1}}),
    "slices with an optimizer of another form": (
        "dcp", {"a.w": torch.ones(2), "train_state": {"step": 1},
                "optimizer": {"state": {}, "param_groups": [{"lr": 1, "params": []}]}},
    ),
    "slices of a flat optimizer whose names come first": (
        "dcp", {"a.w": torch.ones(2), "optimizer.state.a.w.exp_avg": torch.ones(2)},
    ),
    "a script's own state": ("torch-zip", {"state": {"model": {"a.w": torch.ones(2)}, "step": 3}, "rng": []}),
    "an optimizer's state and time": ("torch-zip", {"state": {0: {"step": 1}}, "param_groups": [{"params": [0]}]}),
    "a recipe of seeds": ("torch-zip", {"model": {"a.w": torch.ones(2)}, "seed": 1, "epochs_run": 2}),
    "a version beside a model": ("torch-zip", {"checkpoint_version": 3.0, "model": {"a.w": torch.ones(2)}}),
    "a model with vectors alone": (
        "torch-zip", {"model": {"a.w": torch.ones(5), "b.w": torch.ones(3)},
                      "optimizer": {"state": {0: {"exp_avg": torch.ones(5)}, 1: {"exp_avg": torch.ones(3)}},
                                    "param_groups": [{"params": [0, 1]}]}},
    ),
    "vectors that are trained beside a frozen matrix": (
        "torch-zip", {"model": {"a.w": torch.ones(2, 3), "b.w": torch.ones(5), "c.w": torch.ones(3)},
                      "optimizer": {"state": {0: {"exp_avg": torch.ones(5)}, 1: {"exp_avg": torch.ones(3)}},
                                    "param_groups": [{"params": [0, 1]}]}},
    ),
    "a flat copy of all parameters": (
        "torch-zip", {"model": {"a.w": torch.ones(2, 3), "b.w": torch.ones(3)},
                      "optimizer": {"state": {0: {"exp_avg": torch.ones(9)}}, "param_groups": [{"params": [0]}]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_only_like_a_writers_is_not_taken_for_its(name):
    container, root = NEAR_MISSES[name]
    tree = raw_tree(root, container)
    taken = [one.name for one in CONVENTIONS if one.name in CONVENTION_OF.values() and one.claims(tree)]
    assert taken == []
    assert explain(tree).convention in ("dcp", "plain", "flat", "nanogpt")


def test_deepspeeds_and_loose_files_are_not_megatrons():
    module = {"module": {"a.w": torch.ones(2)}}
    assert explain(folder({"mp_rank_00_model_states.pt": module})).convention == "deepspeed"
    assert explain(folder({"mp_rank_00/other.pt": {"a.w": torch.ones(2)}})).convention != "megatron"
