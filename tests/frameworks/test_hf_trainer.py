"""Checkpoints that the Trainer of transformers writes, named against its live objects."""

import shutil
from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Severity, Verdict
from ckptcheck.readers.reading import read_raw
from tests.frameworks.hf_target import trainer
from tests.frameworks.live import bytes_of, described, held, state_of

TARGET = f"{Path(__file__).with_name('hf_target.py')}:build"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of four steps, and the Trainer after it."""
    folder = tmp_path_factory.mktemp("hf")
    made = trainer(folder)
    made.train()
    return folder, made


@pytest.fixture
def checkpoint(run, tmp_path):
    """A copy of the last checkpoint, to be spoilt."""
    return Path(shutil.copytree(run[0] / "checkpoint-4", tmp_path / "checkpoint-4"))


def test_the_optimizers_state_has_the_names_of_the_live_parameters(run):
    folder, made = run
    live = described(made.model, [made.optimizer.optimizer])
    found = explain(read_raw(folder / "checkpoint-4"), live=live).state.optimizers[0]
    assert held(found.state) == bytes_of(state_of(made.model, made.optimizer.optimizer))
    assert [group.members for group in found.groups] == [group.members for group in live.optimizers[0].groups]


def test_a_clean_checkpoint_has_no_error(run):
    result = verbs.check(run[0] / "checkpoint-4")
    assert [one.message for one in result.findings if one.severity is Severity.ERROR] == []
    assert result.verdict is Verdict.PASS


def test_a_clean_checkpoint_fits_the_training(run):
    result = verbs.check(run[0] / "checkpoint-4", target=TARGET)
    assert [one.message for one in result.findings if one.severity is Severity.ERROR] == []
    assert result.verdict is Verdict.PASS


def test_a_parameter_without_its_state_is_named(run, checkpoint):
    made = run[1]
    lost = made.optimizer.optimizer.param_groups[0]["params"][3]
    name = next(name for name, one in made.model.named_parameters() if one is lost)
    state = torch.load(checkpoint / "optimizer.pt")
    del state["state"][3]
    torch.save(state, checkpoint / "optimizer.pt")
    result = verbs.check(checkpoint, target=TARGET)
    assert ("CK202", name) in {(one.code, one.where.parameter) for one in result.findings}
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize("file", ["scheduler.pt", "optimizer.pt"])
def test_without_schedule_or_optimizer_the_trainer_loads_neither(checkpoint, file):
    (checkpoint / file).unlink()
    result = verbs.check(checkpoint, purpose="resume")
    assert {"scheduler.pt": "CK204", "optimizer.pt": "CK201"}[file] in {
        one.code for one in result.findings if one.severity is Severity.ERROR
    }
