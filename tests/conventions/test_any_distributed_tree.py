"""Whatever lies under the keys of writers for many ranks, it is explained or refused in words, and nothing is lost."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.table import CONVENTIONS
from ckptcheck.errors import CkptcheckError
from ckptcheck.state.raw import Global, RawTree, tensors_in
from tests.conventions.test_any_tree import refs, tensors, values

KEYS = (
    "state", "timestamp", "rng", "rng_state", "model", "model0", "optimizer", "optimizers", "schedulers", "algorithms",
    "dataset_state", "scaler", "metadata", "train_state", "lr_scheduler", "dataloader", "a.weight", "layers.0.bias",
    "args", "checkpoint_version", "iteration", "fp32_from_fp16_params", "opt_param_scheduler", "param_to_group_meta",
    "optimizer.state.exp_avg.a.weight", "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.x.bucket_idx_0.param",
    "optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1", "rng_state/shard_0_1", "common_state/shard_0_1",
    "optimizer.distributed.dp_group_idx_0.param_state/shard_0_1", "chained_0.optimizer.state.exp_avg.a.weight",
    "seed", "epochs_run", "total_epochs", "_flat_param", "batch", "sample_in_epoch", "step", "Timestamp",
)  # fmt: skip
PATHS = (
    "mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt", "mp_rank_00/distrib_optim.pt",
    "mp_rank_00/layer_wise_optimizer_0.pt", "recipe_state/recipe_state.pt", "epoch_1/model.safetensors",
    "epoch_1/adapter_model.pt", "epoch_0/a.bin", "a_rank0.pt", "a_rank1.pt",
)  # fmt: skip
NAMED = ("torch.distributed._shard.sharded_tensor.api.ShardedTensor", "torch.distributed.tensor.DTensor",
         "torch._tensor._rebuild_from_type_v2")  # fmt: skip

times = some.fixed_dictionaries({"batch": values, "sample_in_epoch": values})
optimizers = some.fixed_dictionaries(
    {"state": some.dictionaries(some.sampled_from([0, 1, "a.weight"]), values, max_size=3),
     "param_groups": some.lists(some.dictionaries(some.sampled_from(["params", "lr"]), values), max_size=3)}
)  # fmt: skip
inner = some.one_of(values, tensors, optimizers, some.dictionaries(some.sampled_from(KEYS), values, max_size=4))
roots = some.one_of(
    some.dictionaries(some.sampled_from(KEYS), inner, max_size=8),
    some.fixed_dictionaries({"state": some.fixed_dictionaries({"timestamp": times, "model": inner}), "rng": inner}),
    some.fixed_dictionaries({"model": inner, "checkpoint_version": values, "iteration": values, "args": values,
                             "optimizer": inner}),
    some.fixed_dictionaries({"seed": values, "epochs_run": values, "total_epochs": values, "optimizer": inner}),
    some.fixed_dictionaries({"train_state": some.fixed_dictionaries({"step": some.integers(0, 9)}), "a.weight": tensors,
                             "lr_scheduler": inner, "dataloader": inner}),
)  # fmt: skip
files = some.dictionaries(some.sampled_from(PATHS), some.one_of(roots, inner), max_size=4)
beside = some.dictionaries(some.sampled_from(["meta.pt", "common.pt", "metadata.json"]), roots, max_size=2)
SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def tree(container: str, root: Any, more: dict[str, Any]) -> RawTree:
    trees = {name: RawTree(Path(name), "torch-zip", one, 0) for name, one in more.items()}
    named = tuple(Global("", name, "plain") for name in NAMED)
    return RawTree(Path("step-3"), container, root, 0, files=trees, globals=named)


@pytest.mark.parametrize("container", ["dcp", "torch-zip"])
@SETTINGS
@given(root=roots, more=beside)
def test_any_keys_of_these_writers_are_explained_and_keep_their_tensors(container, root, more):
    held_against(tree(container, root, more if container == "dcp" else {}))


@SETTINGS
@given(root=files)
def test_any_files_of_these_writers_are_explained_and_keep_their_tensors(root):
    held_against(tree("folder", root, {}))


def held_against(raw: RawTree) -> None:
    for one in CONVENTIONS:
        assert one.claims(raw) in (True, False)
    try:
        found = explain(raw)
    except CkptcheckError:
        return
    assert len(found.namings) == len(found.optimizer_labels) == len(found.state.optimizers)
    if found.convention in ("dcp", "deepspeed"):
        return
    reached = refs(found)
    aliased = {one.entry.ref.place for one in found.state.parameters.values() if one.aliases}
    trees = [raw.root, *(one.root for one in raw.files.values())]
    assert [one for one in tensors_in(trees) if id(one) not in reached and one.place not in aliased] == []
