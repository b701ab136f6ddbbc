"""Checkpoints that Accelerate writes, named against its live objects."""

import shutil
from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Severity, Verdict
from ckptcheck.readers.reading import read_raw
from tests.frameworks.accelerate_target import trained
from tests.frameworks.live import bytes_of, described, held, state_of

TARGET = f"{Path(__file__).with_name('accelerate_target.py')}:build"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accelerate") / "checkpoint_0"
    return folder, *trained(folder)


def test_the_optimizers_state_has_the_names_of_the_live_parameters(run):
    folder, model, optimizer = run
    found = explain(read_raw(folder), live=described(model, [optimizer])).state.optimizers[0]
    assert held(found.state) == bytes_of(state_of(model, optimizer))


@pytest.mark.parametrize("target", [None, TARGET])
def test_a_clean_checkpoint_has_no_error(run, target):
    result = verbs.check(run[0], target=target)
    assert [one.message for one in result.findings if one.severity is Severity.ERROR] == []
    assert result.verdict is Verdict.PASS


def test_a_parameter_without_its_state_is_named(run, tmp_path):
    folder, model, optimizer = run
    spoilt = Path(shutil.copytree(folder, tmp_path / "checkpoint_0"))
    lost = optimizer.param_groups[1]["params"][0]
    name = next(name for name, one in model.named_parameters() if one is lost)
    state = torch.load(spoilt / "optimizer.bin")
    del state["state"][state["param_groups"][1]["params"][0]]
    torch.save(state, spoilt / "optimizer.bin")
    result = verbs.check(spoilt, target=TARGET)
    assert ("CK202", name) in {(one.code, one.where.parameter) for one in result.findings}
