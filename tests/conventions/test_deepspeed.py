"""DeepSpeed's partitions come back as parameters, whatever stage cut them, and never as anything else."""

import json
from pathlib import Path

import pytest
import torch

from ckptcheck.conventions.deepspeed import DeepSpeed
from ckptcheck.conventions.deepspeed_flat import FP32
from ckptcheck.conventions.explaining import explain
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from ckptcheck.state.raw import Foreign
from tests.conventions.made import folder
from tests.conventions.zero_files import (
    SAMPLES,
    early_files,
    fragment,
    late_files,
    loaded,
    model_states,
)
from tests.readers.live_values import bytes_of

KEYS = ("exp_avg", "exp_avg_sq", FP32, "step")


def states(checkpoint: Checkpoint) -> dict[tuple[str, str], bytes]:
    """Bytes of all optimizer state by parameter and key."""
    (optimizer,) = checkpoint.state.optimizers
    return {(name, key): bytes(one.ref.fetch()) for name, kept in optimizer.state.items() for key, one in kept.items()}


def weights(checkpoint: Checkpoint) -> dict[str, bytes]:
    return {name: bytes(one.entry.ref.fetch()) for name, one in checkpoint.state.parameters.items()}


def sample(name: str) -> Checkpoint:
    return explain(read_raw(SAMPLES / name))


def group_list() -> list[dict[str, torch.Tensor]]:
    """Two groups whose tensors have odd sizes, so that every stage cuts inside of them."""
    torch.manual_seed(0)
    return [
        {"emb.weight": torch.randn(7, 4), "scale": torch.randn(()), "fc.weight": torch.randn(3, 5)},
        {"fc.bias": torch.randn(3), "one": torch.randn(2)},
    ]


def merged(groups: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: one for group in groups for name, one in group.items()}


def test_deepspeeds_own_conversion_to_universal_holds_what_we_put_together():
    zero, universal = sample("z1_bf16"), sample("universal_z1")
    assert states(zero) == states(universal)
    assert weights(zero) == weights(universal)
    assert {key for _, key in states(zero)} == set(KEYS)
    assert zero.state.optimizers[0].groups == universal.state.optimizers[0].groups
    for name, kept in universal.state.optimizers[0].state.items():
        for key in ("exp_avg", "exp_avg_sq"):
            path = SAMPLES / "universal_z1" / "zero" / name / f"{key}.pt"
            assert bytes(kept[key].ref.fetch()) == bytes_of(loaded(path)["param"])


@pytest.mark.parametrize("name", ["z1_fp32", "z1_bf16", "z2_bf16"])
def test_stages_one_and_two_equal_what_torch_cuts_out_of_the_flat_buffers(name):
    folder = SAMPLES / name / "global_step2"
    ranks = [loaded(path)["optimizer_state_dict"] for path in sorted(folder.glob("*optim_states.pt"))]
    model = loaded(folder / "mp_rank_00_model_states.pt")
    wanted = {}
    for group, shapes in enumerate(model["param_shapes"]):
        flats = {
            FP32: torch.cat([one["single_partition_of_fp32_groups"][group] for one in ranks]),
            "exp_avg": torch.cat([one["base_optimizer_state"]["state"][group]["exp_avg"] for one in ranks]),
            "exp_avg_sq": torch.cat([one["base_optimizer_state"]["state"][group]["exp_avg_sq"] for one in ranks]),
        }
        start = 0
        for parameter, shape in shapes.items():
            for key, flat in flats.items():
                wanted[parameter, key] = bytes_of(flat[start : start + shape.numel()].reshape(shape))
            wanted[parameter, "step"] = bytes_of(torch.tensor(2.0))
            start += shape.numel()
    assert states(sample(name)) == wanted
    assert weights(sample(name)) == {parameter: bytes_of(one) for parameter, one in model["module"].items()}


def test_stage_three_equals_what_torch_puts_together_of_the_ranks():
    folder = SAMPLES / "z3_bf16" / "global_step2"
    ranks = [loaded(path)["optimizer_state_dict"] for path in sorted(folder.glob("*optim_states.pt"))]
    models = [loaded(path) for path in sorted(folder.glob("*model_states.pt"))]
    found, moments = {}, {}
    for group, shapes in enumerate(models[0]["param_shapes"]):
        start = 0
        for parameter, shape in shapes.items():
            length = -(-shape.numel() // 2)
            for flats, wanted in (
                ([one["fp32_flat_groups"][group] for one in ranks], found),
                ([one["optimizer_state_dict"]["state"][group]["exp_avg"] for one in ranks], moments),
            ):
                both = torch.cat([flat[start : start + length] for flat in flats])
                wanted[parameter] = bytes_of(both[: shape.numel()])
            start += length
    for parameter, shape in models[0]["frozen_param_shapes"].items():
        both = torch.cat([one["frozen_param_fragments"][parameter] for one in models])
        found[parameter] = bytes_of(both[: shape.numel()])
    checkpoint = sample("z3_bf16")
    assert weights(checkpoint) == found
    assert {name: one for (name, key), one in states(checkpoint).items() if key == "exp_avg"} == moments
    assert FP32 not in {key for _, key in states(checkpoint)}
    assert checkpoint.state.parameters["emb.weight"].entry.spec.shape == (7, 4)


def test_the_same_training_under_stages_one_to_three_has_the_same_moments():
    names = ("z1_bf16", "z2_bf16", "z3_bf16")
    without = [{pair: one for pair, one in states(sample(name)).items() if pair[1] != FP32} for name in names]
    assert without[0] == without[1] == without[2]


def test_everything_beside_the_tensors_is_explained():
    checkpoint = sample("z1_bf16")
    state = checkpoint.state
    assert checkpoint.convention == "deepspeed"
    assert (state.step, checkpoint.recorded_step, checkpoint.world_size) == (2, "global_steps 2", 2)
    assert [group.members for group in state.optimizers[0].groups] == [
        ("emb.weight", "fc.weight", "head.weight"),
        ("fc.bias",),
    ]
    assert [group.hyperparameters["weight_decay"].value for group in state.optimizers[0].groups] == [0.1, 0.0]
    assert "params" not in state.optimizers[0].groups[0].hyperparameters
    assert checkpoint.namings[0].source == NameSource.SLICES
    assert checkpoint.namings[0].certain
    assert state.sections["schedule"]["last_epoch"].value == 2
    assert state.sections["scaler"]["cur_scale"].value == 1.0
    assert state.sections["extra"]["my"].value == "'x'"
    assert state.sections["extra"]["optimizer.clip_grad"].value == 1.0
    assert checkpoint.unrecognised == ()
    assert checkpoint.notes == ()


def test_stage_zero_is_a_plain_optimizer_keyed_by_index():
    checkpoint = sample("z0_fp32")
    (optimizer,) = checkpoint.state.optimizers
    whole = loaded(SAMPLES / "z0_fp32" / "global_step2" / "mp_rank_00_model_states.pt")
    assert [bytes(kept["exp_avg"].ref.fetch()) for kept in optimizer.state.values()] == [
        bytes_of(kept["exp_avg"]) for kept in whole["optimizer"]["state"].values()
    ]
    assert len(optimizer.groups) == 2


WORLDS = [1, 2, 3, 5]


@pytest.mark.parametrize("mapped", [True, False], ids=["with slice mappings", "by shapes alone"])
@pytest.mark.parametrize("world", WORLDS)
def test_stages_one_and_two_give_back_the_tensors_that_were_cut(world, mapped):
    masters, moments = group_list(), group_list()
    moments = [{name: one * 3 for name, one in group.items()} for group in moments]
    checkpoint = explain(folder(early_files(masters, moments, world, mapped=mapped)))
    assert checkpoint.notes == ()
    found = states(checkpoint)
    for name, one in merged(masters).items():
        assert found[name, FP32] == bytes_of(one)
        assert found[name, "exp_avg"] == bytes_of(merged(moments)[name])
        assert found[name, "step"] == bytes_of(torch.tensor(5.0))
    assert checkpoint.state.parameters["emb.weight"].entry.spec.dtype == "bfloat16"


@pytest.mark.parametrize("subgroups", [[3, 2], [1, 1, 1, 1, 1], [1, 2, 2]], ids=str)
@pytest.mark.parametrize("world", WORLDS)
def test_stage_three_gives_back_the_tensors_that_were_cut(world, subgroups):
    masters, moments = group_list(), group_list()
    moments = [{name: one * 3 for name, one in group.items()} for group in moments]
    checkpoint = explain(folder(late_files(masters, moments, world, subgroups)))
    assert checkpoint.notes == ()
    assert weights(checkpoint) == {name: bytes_of(one) for name, one in merged(masters).items()}
    assert {name: one for (name, key), one in states(checkpoint).items() if key == "exp_avg"} == {
        name: bytes_of(one) for name, one in merged(moments).items()
    }


def test_old_elastic_files_without_groups_are_read():
    files = early_files(group_list(), group_list(), 2, mapped=False)
    for name, value in files.items():
        if "optim" in name:
            kept = value["optimizer_state_dict"]
            kept["base_optimizer_state"] = list(kept["base_optimizer_state"]["state"].values())
    checkpoint = explain(folder(files))
    assert states(checkpoint)["fc.weight", "exp_avg"] == bytes_of(group_list()[0]["fc.weight"])
    assert [group.members for group in checkpoint.state.optimizers[0].groups] == [
        ("emb.weight", "scale", "fc.weight"),
        ("fc.bias", "one"),
    ]


def without(files, name):
    return {path: value for path, value in files.items() if name not in path}


def test_without_one_rank_no_state_is_made_of_the_others():
    files = early_files(group_list(), group_list(), 3, mapped=True)
    checkpoint = explain(folder(without(files, "rank_1_mp")))
    assert checkpoint.state.optimizers[0].state == {}
    assert "2 of 3 ranks" in checkpoint.notes[0]
    assert [len(group.members) for group in checkpoint.state.optimizers[0].groups] == [3, 2]


def lane(files, rank):
    return files[f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"]["optimizer_state_dict"]


def drop_key(files):
    del lane(files, 1)["base_optimizer_state"]["state"][0]["exp_avg"]


def shorten(files):
    state = lane(files, 1)["base_optimizer_state"]["state"][0]
    state["exp_avg"] = state["exp_avg"][:-1]


def stretch(files):
    lane(files, 0)["param_slice_mappings"][0]["emb.weight"] = fragment(22, 10**6)


def overlap(files):
    lane(files, 1)["param_slice_mappings"][0]["emb.weight"] = fragment(28, 0)


def enlarge(files):
    files["mp_rank_00_model_states.pt"]["param_shapes"][0]["emb.weight"] = (7, 5)


HARMS = {
    "a key missing on one rank": (drop_key, "exp_avg", True),
    "a part too short": (shorten, "exp_avg", True),
    "a slice beyond the part": (stretch, "exp_avg", True),
    "slices that overlap": (overlap, "exp_avg", True),
    "shapes of another model": (enlarge, "exp_avg", True),
}


@pytest.mark.parametrize(("harm", "key", "mapped"), HARMS.values(), ids=HARMS.keys())
def test_what_does_not_fit_is_said_and_left_out(harm, key, mapped):
    files = early_files(group_list(), group_list(), 2, mapped=mapped)
    harm(files)
    checkpoint = explain(folder(files))
    assert ("emb.weight", key) not in states(checkpoint)
    assert any("emb.weight" in note for note in checkpoint.notes)
    assert states(checkpoint)["fc.bias", key] == bytes_of(group_list()[1]["fc.bias"])


def test_stage_three_with_shapes_of_another_model_gives_no_values():
    files = late_files(group_list(), group_list(), 2, [3, 2])
    for name, value in files.items():
        if "model" in name:
            value["param_shapes"][0]["emb.weight"] = (9, 4)
    checkpoint = explain(folder(files))
    assert checkpoint.state.optimizers[0].state == {}
    assert len(checkpoint.notes) == 5
    assert checkpoint.state.parameters["emb.weight"].entry.spec.shape == (0,)


def test_shared_parameters_are_aliases_of_their_owner():
    masters = [{"emb.weight": torch.randn(4, 3)}]
    files = late_files(masters, masters, 2, [1], shared_params={"head.weight": "emb.weight"})
    for name, value in files.items():
        if "model" in name:
            value["module"] = {"head.weight": torch.empty(0), "emb.weight": torch.empty(0)}
    checkpoint = explain(folder(files))
    assert list(checkpoint.state.parameters) == ["emb.weight"]
    assert checkpoint.state.parameters["emb.weight"].aliases == ("head.weight",)
    assert weights(checkpoint) == {"emb.weight": bytes_of(masters[0]["emb.weight"])}


def test_buffers_that_the_file_names_are_no_parameters():
    files = early_files(group_list(), group_list(), 2, mapped=True, buffer_names=["mask"])
    files["mp_rank_00_model_states.pt"]["module"]["mask"] = torch.ones(3)
    checkpoint = explain(folder(files))
    assert list(checkpoint.state.buffers) == ["mask"]
    assert "mask" not in checkpoint.state.parameters


def test_tensor_parallel_ranks_stand_beside_each_other():
    one = early_files(group_list(), group_list(), 2, mapped=True)
    other = early_files([{"emb.weight": torch.zeros(7, 4)}], [{"emb.weight": torch.ones(7, 4)}], 2, mapped=True)
    files = {**one, **{name.replace("mp_rank_00", "mp_rank_01"): value for name, value in other.items()}}
    checkpoint = explain(folder(files))
    assert "mp_rank_01/emb.weight" in checkpoint.state.parameters
    assert states(checkpoint)["mp_rank_01/emb.weight", "exp_avg"] == bytes_of(torch.ones(7, 4))
    assert states(checkpoint)["mp_rank_00/emb.weight", FP32] == bytes_of(group_list()[0]["emb.weight"])
    assert any("not joined" in note for note in checkpoint.notes)


def test_a_dynamic_loss_scaler_is_the_scaler():
    scaler = Foreign("deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", state={"cur_scale": 1024.0, "cur_iter": 7})
    files = early_files(group_list(), group_list(), 2, mapped=True)
    lane(files, 0).update(loss_scaler=scaler, overflow=False)
    section = explain(folder(files)).state.sections["scaler"]
    assert {key: one.value for key, one in section.items()} == {"cur_scale": 1024.0, "cur_iter": 7, "overflow": False}


def test_of_several_tags_the_newest_is_read():
    files = {
        f"global_step{step}/mp_rank_00_model_states.pt": {**model_states(group_list(), 1), "global_steps": step}
        for step in (9, 10)
    }
    checkpoint = explain(folder(files))
    assert checkpoint.state.step == 10
    assert any("global_step10" in note for note in checkpoint.notes)


def test_a_trainers_folder_around_it_keeps_its_generators_and_progress():
    inner = early_files(group_list(), group_list(), 2, mapped=True)
    files = {f"global_step5/{name}": value for name, value in inner.items()}
    files["trainer_state.json"] = {"global_step": 6, "epoch": 1.5}
    files["rng_state_0.pth"] = {"cpu": torch.zeros(5056, dtype=torch.uint8)}
    checkpoint = explain(folder(files))
    assert checkpoint.convention == "hf-trainer"
    assert checkpoint.state.step == 6
    assert list(checkpoint.state.rng) == ["torch"]
    assert checkpoint.state.sections["progress"]["epoch"].value == 1.5
    assert checkpoint.state.sections["progress"]["global_steps"].value == 5
    assert states(checkpoint)["fc.bias", "exp_avg"] == bytes_of(group_list()[1]["fc.bias"])


def test_other_folders_are_not_claimed(tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps({}))
    assert not DeepSpeed().claims(folder({"model.pt": {"module": {}}, "mp_rank_00_model_states.pt": [1]}))
    assert not DeepSpeed().claims(folder({}))
