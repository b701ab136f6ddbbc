"""Checkpoints that torch.distributed.checkpoint writes, named against the live objects."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

from ckptcheck import verbs
from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Severity, Verdict
from ckptcheck.readers.reading import read_raw
from tests.check_cases.training import Mlp, decay_groups, train
from tests.frameworks.live import bytes_of, held, state_of

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def trained():
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.AdamW(decay_groups(model), lr=0.01)
    train(model, optimizer)
    return model, optimizer


def write(folder, model, state):
    dcp.save({"model": model, "optimizer": state, "step": 3}, checkpoint_id=folder, no_dist=True)
    return folder


def test_the_optimizers_state_has_the_names_of_the_live_parameters(trained, tmp_path):
    model, optimizer = trained
    path = write(tmp_path / "step-3", *get_state_dict(model, optimizer))
    found = explain(read_raw(path)).state.optimizers[0]
    assert held(found.state) == bytes_of(state_of(model, optimizer))
    result = verbs.check(path)
    assert [one.message for one in result.findings if one.severity is Severity.ERROR] == []
    assert result.verdict is Verdict.PASS


def test_a_parameter_without_its_state_is_named(trained, tmp_path):
    weights, state = get_state_dict(*trained)
    del state["state"]["layers.1.bias"]
    result = verbs.check(write(tmp_path / "step-3", weights, state))
    assert ("CK202", "layers.1.bias") in {(one.code, one.where.parameter) for one in result.findings}
    assert result.verdict is Verdict.FAIL
