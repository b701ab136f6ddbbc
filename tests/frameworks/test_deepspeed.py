"""Kept checkpoints of DeepSpeed, whose import takes too long: clean ones, and one without a parameter's state."""

import shutil
from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Severity
from ckptcheck.readers.reading import read_raw

KEPT = Path(__file__).parents[2] / "fixtures" / "checkpoints" / "10_deepspeed"


@pytest.mark.parametrize("name", sorted(one.name for one in KEPT.iterdir() if one.is_dir()))
def test_a_clean_checkpoint_has_no_error(name):
    result = verbs.check(KEPT / name)
    assert [one.message for one in result.findings if one.severity is Severity.ERROR] == []


def test_a_parameter_without_its_state_is_named(tmp_path):
    folder = Path(shutil.copytree(KEPT / "z0_fp32", tmp_path / "z0"))
    file = folder / "global_step2" / "mp_rank_00_model_states.pt"
    states = torch.load(file, weights_only=False)
    name = explain(read_raw(folder)).state.optimizers[0].groups[0].members[2]
    del states["optimizer"]["state"][states["optimizer"]["param_groups"][0]["params"][2]]
    torch.save(states, file)
    result = verbs.check(folder)
    assert ("CK202", name) in {(one.code, one.where.parameter) for one in result.findings}
