"""The same training state in two containers is identical content, whichever two."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import pytest
import torch

from ckptcheck.comparison.checkpoint_diff import DiffOptions
from ckptcheck.comparison.checkpoints import diff_checkpoints
from ckptcheck.conventions.explaining import explain
from ckptcheck.readers.reading import read_raw
from tests.readers.same_content import WRITERS, Trained

HOLDS_NO_TUPLES = ("safetensors", "sharded safetensors")
"""Containers in which a script finds no room for the generators of numpy and Python."""


@pytest.fixture(scope="module", params=["names", "numbers"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The same state in every container, parameters of the optimizer by name or by number."""
    run = Trained(named=request.param == "names")
    folder = tmp_path_factory.mktemp(request.param)
    return {name: write(run, folder) for name, write in WRITERS.items()}


@pytest.mark.parametrize("pair", list(combinations(WRITERS, 2)), ids=" and ".join)
def test_two_containers_of_one_state_have_identical_content(written, pair):
    left, right = (explain(read_raw(written[name])) for name in pair)
    narrow = any(name in HOLDS_NO_TUPLES for name in pair)
    options = DiffOptions(ignored=("rng/*numpy", "rng/*python")) if narrow else DiffOptions()
    found = diff_checkpoints(left, right, options)
    assert [(row.section, row.parameter, row.key, row.kind, row.left, row.right) for row in found.rows] == []
    assert found.same_content
    assert found.compared.parameters >= 5
    assert found.compared.state_tensors == 15
    assert {"model", "optimizer", "scheduler"} <= {one.section for one in found.summaries if one.tensors or one.values}


@pytest.mark.parametrize("written", ["names"], indirect=True)
@pytest.mark.parametrize("name", WRITERS)
def test_every_container_shows_a_change_of_one_bit(written, name, tmp_path):
    run = Trained(named=True)
    run.optimizer.state[run.model.fc.bias]["exp_avg"].view(torch.int32)[3] ^= 1
    left, right = (explain(read_raw(path)) for path in (written[name], WRITERS[name](run, tmp_path)))
    (row,) = diff_checkpoints(left, right, DiffOptions()).rows
    assert (row.section, row.parameter, row.key) == ("optimizer", "fc.bias", "exp_avg")
    assert row.difference is not None
    assert (row.difference.differing, row.difference.first_at, row.difference.max_ulp) == (1, (3,), 1)
