"""Megatron-LM: ranks and their optimizers, buckets without names, and the flat keys of its distributed format."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck.conventions.explaining import explain
from ckptcheck.errors import UsageError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from tests.check_cases import distributed_writers as writers
from tests.conventions.made import folder, raw_tree
from tests.conventions.test_distributed_writers import held, live
from tests.readers.live_values import bytes_of


def explained(make: Any, path: Path, names: list[str] | None = None) -> Checkpoint:
    return explain(read_raw(make(path)), names)


def state_of(**more: Any) -> dict[str, Any]:
    model, optimizer, _ = writers.trained()
    return {**writers.megatron_state(model, writers.masters(model, optimizer)), **more}


def masters_of(prefix: str = "") -> dict[tuple[str, str], bytes]:
    model, _, _ = writers.trained()
    return {(f"{prefix}{name}", "fp32_param"): bytes_of(one) for name, one in model.named_parameters()}


def test_float32_weights_stand_in_the_state_of_their_parameters(tmp_path):
    found = explained(writers.megatron(), tmp_path)
    assert held(found) == {**live(), **masters_of()}
    assert (found.state.step, found.recorded_step, found.world_size) == (3, "iteration 3", 1)


def test_the_place_in_the_data_the_schedule_and_the_generators_are_found(tmp_path):
    found = explained(writers.megatron(), tmp_path)
    sections = found.state.sections
    assert {path: one.value for path, one in sections["data"].items()} == {
        "args.consumed_train_samples": 15, "args.consumed_valid_samples": 0,
    }  # fmt: skip
    assert sections["extra"]["args.num_layers"].value == 2
    assert sections["schedule"]["num_steps"].value == 15
    assert list(found.state.rng) == ["python", "numpy", "torch", "cuda:0"]
    assert any("model-parallel-rng" in path for path in sections["extra"])
    assert found.unrecognised == ()


def test_each_rank_has_its_own_names_and_optimizer(tmp_path):
    found = explained(writers.megatron(ranks=2), tmp_path)
    model, _, _ = writers.trained()
    wanted = [f"mp_rank_{rank:02d}.{name}" for rank in (0, 1) for name, _ in model.named_parameters()]
    assert list(found.state.parameters) == wanted
    assert found.optimizer_labels == ("mp_rank_00.optimizer", "mp_rank_01.optimizer")
    of_second = {(f"mp_rank_01.{name}", key): one for (name, key), one in live().items()}
    assert {**of_second, **masters_of("mp_rank_01.")}.items() <= held(found).items()
    assert list(found.state.sections["progress"]) == ["iteration"]


def test_what_a_later_rank_has_unlike_the_first_is_kept():
    files = {
        f"mp_rank_0{rank}/model_optim_rng.pt": {**state_of(), "num_floating_point_operations_so_far": rank}
        for rank in (0, 1)
    }
    extra = explain(folder(files)).state.sections["extra"]
    assert extra["num_floating_point_operations_so_far"].value == 0
    assert extra["mp_rank_01.num_floating_point_operations_so_far"].value == 1
    assert "mp_rank_01.checkpoint_version" not in extra


def test_names_that_the_user_gives_go_to_the_ranks_in_order(tmp_path):
    model, _, _ = writers.trained()
    by_group = sorted(model.named_parameters(), key=lambda item: item[1].ndim < 2)
    names = [name for name, _ in by_group]
    found = explained(writers.megatron(), tmp_path, names)
    assert found.namings[0].source is NameSource.USER
    assert [name for group in found.state.optimizers[0].groups for name in group.members] == names
    with pytest.raises(UsageError, match="7 parameter names"):
        explain(found.raw, names[:7])


def test_buckets_have_their_bytes_and_no_names(tmp_path):
    found = explained(writers.megatron_bucketed, tmp_path)
    model, optimizer, _ = writers.trained()
    order = list(model.parameters())[::-1]
    flat = {key: b"".join(bytes_of(optimizer.state[one][key]) for one in order) for key in ("exp_avg", "exp_avg_sq")}
    flat["fp32_param"] = b"".join(map(bytes_of, order))
    assert held(found) == {("bucket 0, bfloat16/float32", key): one for key, one in flat.items()}
    assert (found.namings[0].source, found.namings[0].certain) == (NameSource.NONE, False)
    assert [one.members for one in found.state.optimizers[0].groups] == [(), ()]
    assert found.state.optimizers[0].groups[0].hyperparameters["step"].value == 3
    extra = found.state.sections["extra"]
    assert extra["optimizer.buckets.buckets_coalesced"].value is True
    assert any(path.endswith("numel_unpadded") for path in extra)
    assert any("cannot be aligned" in note for note in found.notes)


def test_chained_optimizers_each_have_their_buckets():
    model, optimizer, _ = writers.trained()
    state, buckets = writers.bucketed(model, optimizer)
    root = writers.megatron_state(model, [state, state])
    files = {"mp_rank_00/model_optim_rng.pt": root, "mp_rank_00/distrib_optim.pt": [buckets, None, buckets]}
    found = explain(folder(files))
    assert found.optimizer_labels == ("", "")
    assert [len(one.state) for one in found.state.optimizers] == [1, 0]
    kept = found.state.sections["extra"]
    assert any(path.startswith("optimizer.buckets[2]") and one.ref for path, one in kept.items())


def test_a_chain_of_torchs_own_optimizers_is_named_each():
    first = torch.optim.SGD([torch.nn.Parameter(torch.ones(2, 3))], 0.1, momentum=0.9)
    second = torch.optim.SGD([torch.nn.Parameter(torch.ones(5))], 0.1, momentum=0.9)
    for one in (first, second):
        sum(p.sum() for group in one.param_groups for p in group["params"]).backward()
        one.step()
    root = {"checkpoint_version": 3.0, "iteration": 1, "model": {"a.weight": torch.ones(2, 3), "b.bias": torch.ones(5)},
            "optimizer": {0: first.state_dict(), 1: second.state_dict()}}  # fmt: skip
    found = explain(raw_tree(root))
    assert [list(one.state) for one in found.state.optimizers] == [["a.weight"], ["b.bias"]]


def test_a_pipeline_stage_of_several_parts_names_each():
    root = state_of()
    weights = root.pop("model")
    root |= {"model0": {"decoder": {"w": torch.ones(2)}}, "model1": weights}
    found = explain(raw_tree(root))
    assert found.convention == "megatron"
    assert {"model0.decoder.w", "model1.head.bias"} <= set(found.state.parameters)


def test_a_file_of_one_data_parallel_ranks_layers_has_no_names():
    model, optimizer, _ = writers.trained()
    files = {
        "mp_rank_00/model_optim_rng.pt": writers.megatron_state(model, None),
        "mp_rank_00/layer_wise_optimizer_0.pt": [optimizer.state_dict()],
    }
    found = explain(folder(files))
    assert found.namings[0].source is NameSource.NONE
    assert "data-parallel rank" in found.namings[0].reason
    assert len(held(found)) == 24


def test_generators_at_the_top_and_a_schedule_of_older_versions_are_known():
    root = state_of(lr_scheduler=writers.megatron_schedule(), **writers.megatron_generators())
    del root["rng_state"], root["opt_param_scheduler"], root["args"]
    root["total_iters"] = root.pop("iteration")
    root["args"] = argparse.Namespace(world_size="8")
    found = explain(raw_tree({**root, "iteration": "3"}))
    assert list(found.state.rng) == ["python", "numpy", "torch", "cuda:0"]
    assert found.recorded_step == "total_iters 3"
    assert found.state.sections["schedule"]["num_steps"].value == 15
    assert found.world_size is None


def test_masters_that_do_not_fit_the_groups_are_kept_beside():
    root = state_of()
    root["optimizer"]["fp32_from_fp16_params"].pop()
    found = explain(raw_tree(root))
    assert not any(key == "fp32_param" for _, key in held(found))
    assert sum("fp32_from_fp16_params" in path for path in found.state.sections["extra"]) == 3


def test_the_scaler_is_one():
    root = state_of()
    root["optimizer"]["grad_scaler"] = {"scale": torch.tensor(2.0), "growth_tracker": 0, "hysteresis_tracker": 2}
    assert explain(raw_tree(root)).state.sections["scaler"]["hysteresis_tracker"].value == 2


def test_state_of_the_distributed_format_goes_by_name(tmp_path):
    found = explained(writers.megatron_slices, tmp_path)
    moments = {(name, key): one for (name, key), one in live().items() if key != "step"}
    assert held(found) == {**moments, **masters_of()}
    assert (found.namings[0].source, found.namings[0].certain) == (NameSource.KEYS, True)
    assert [one.hyperparameters["weight_decay"].value for one in found.state.optimizers[0].groups] == [0.1, 0.0]
    assert "torch" in found.state.rng
    assert found.state.sections["data"]["args.consumed_train_samples"].value == 15
    assert found.unrecognised == ()


def test_one_group_of_the_distributed_format_has_every_parameter():
    root = {"a.weight": torch.ones(2), "optimizer.state.exp_avg.a.weight": torch.ones(2), "iteration": 4,
            "optimizer": {"optimizer": {"param_groups": [{"lr": 0.5}], "state": {"common_step": 4}}}}  # fmt: skip
    found = explain(raw_tree(root, "dcp"))
    assert found.convention == "megatron"
    assert found.state.optimizers[0].groups[0].members == ("a.weight",)
    assert found.state.sections["progress"]["optimizer.state.common_step"].value == 4
    assert found.state.step == 4


def test_buckets_of_the_distributed_format_are_kept_by_group_and_bucket():
    key = "optimizer.distributed.dp_group_idx_0"
    bucket = f"{key}.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_1"
    root = {
        "a.weight": torch.ones(2), f"{bucket}.exp_avg": torch.ones(6), f"{bucket}.param": torch.zeros(6),
        f"{key}.optimizer/shard_0_1": {"param_groups": [{"lr": 0.5, "step": 4}]},
        f"{key}.per_bucket_numel/shard_0_1": [{"x": 6}], "decoder._extra_state/shard_0_2": None,
        "common_state/shard_0_1": {"iteration": 4, "checkpoint_version": 3.0},
    }  # fmt: skip
    found = explain(raw_tree(root, "dcp"))
    (one,) = found.state.optimizers
    assert next(iter(one.state.values())).keys() == {"exp_avg", "fp32_param"}
    assert "bucket_idx_1" in next(iter(one.state))
    assert one.groups[0].hyperparameters["lr"].value == 0.5
    assert found.namings[0].source is NameSource.NONE
    assert found.state.step == 4
    assert "decoder._extra_state/shard_0_2" in found.state.sections["extra"]


def test_groups_that_are_kept_for_each_parameter_are_groups_again():
    root = state_of()
    weights = root["model"]
    names = list(weights)
    root["optimizer"] = {
        "state": {name: {"exp_avg": torch.zeros_like(weights[name])} for name in names},
        "param_to_group_meta": {name: {"lr": 0.5, "wd_mult": float("bias" not in name)} for name in names},
    }
    root["rng_state"] = {"(0, 0)": root["rng_state"], "(0, 1)": root["rng_state"]}
    found = explain(raw_tree(root, "dcp"))
    assert [{"bias" in name for name in one.members} for one in found.state.optimizers[0].groups] == [{False}, {True}]
    assert set(found.state.optimizers[0].state) == set(names)
    assert {"torch", "torch (rank 1)"} <= set(found.state.rng)
