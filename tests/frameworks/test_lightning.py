"""Checkpoints that Lightning writes, named against its live objects."""

from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Severity, Verdict
from ckptcheck.readers.reading import read_raw
from tests.frameworks.lightning_target import trained
from tests.frameworks.live import bytes_of, described, held, state_of

TARGET = f"{Path(__file__).with_name('lightning_target.py')}:build"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lightning")
    return folder / "last.ckpt", *trained(folder)


@pytest.mark.parametrize("alone", [True, False])
def test_the_optimizers_state_has_the_names_of_the_live_parameters(run, alone):
    path, module, trainer = run
    live = None if alone else described(module, trainer.optimizers)
    found = explain(read_raw(path), live=live).state.optimizers[0]
    assert held(found.state) == bytes_of(state_of(module, trainer.optimizers[0]))


@pytest.mark.parametrize("target", [None, TARGET])
def test_a_clean_checkpoint_has_no_error(run, target):
    result = verbs.check(run[0], target=target)
    assert [one.message for one in result.findings if one.severity is Severity.ERROR] == []
    assert result.verdict is Verdict.PASS


def test_a_parameter_without_its_state_is_named(run, tmp_path):
    path, module, trainer = run
    lost = trainer.optimizers[0].param_groups[1]["params"][1]
    name = next(name for name, one in module.named_parameters() if one is lost)
    saved = torch.load(path, weights_only=False)
    index = saved["optimizer_states"][0]["param_groups"][1]["params"][1]
    del saved["optimizer_states"][0]["state"][index]
    torch.save(saved, tmp_path / "spoilt.ckpt")
    result = verbs.check(tmp_path / "spoilt.ckpt", target=TARGET)
    assert ("CK202", name) in {(one.code, one.where.parameter) for one in result.findings}
