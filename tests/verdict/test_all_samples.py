"""Every kept checkpoint through the three commands: results keep the contract, and each is the same as itself."""

import json
from pathlib import Path

import pytest

import ckptcheck
from ckptcheck.errors import CheckpointError
from ckptcheck.finding import Verdict
from ckptcheck.reports import listing
from ckptcheck.reports.json import document
from tests.reports.contract import breaches

SAMPLES = Path(__file__).parents[2] / "fixtures" / "checkpoints"
REFUSED = {
    "03_reject/export.pt2",
    "03_reject/torchscript.pt",
    "02_torch_edge/failed_save.pt",
    "02_torch_edge/trunc.pt",
    "10_deepspeed/latest_universal",
}
DAMAGED = {
    "02_torch_edge/bitflip.pt",
    "02_torch_edge/skip_data.pt",
    "02_torch_edge/failed_save.pt",
    "02_torch_edge/trunc.pt",
    "09_fsdp_ddp/fsdp1_uop1_full.pt",  # torch wrote both moments of every parameter as the same bytes
}
ALL = sorted(f"{folder.name}/{one.name}" for folder in SAMPLES.iterdir() if folder.is_dir() for one in folder.iterdir())
READ = [name for name in ALL if name not in REFUSED]


def kept(result) -> dict:
    """The result as JSON, which must keep the contract."""
    told = json.loads(json.dumps(document(result)))
    assert breaches(told) == []
    return told


@pytest.mark.parametrize("name", READ)
def test_a_sample_is_described_and_is_the_same_as_itself(name):
    told = kept(ckptcheck.inspect(SAMPLES / name, digests=False))
    assert told["tensors"] or told["values"]
    same = kept(ckptcheck.diff(SAMPLES / name, SAMPLES / name))
    assert (same["verdict"], same["identical_content"]) == ("pass", True)


@pytest.mark.parametrize("name", READ)
def test_the_listing_of_a_sample_is_as_long_as_what_is_in_it(name):
    result = ckptcheck.inspect(SAMPLES / name, digests=True)
    members = sum(len(group["parameters"]) for group in result.parts["groups"])
    lines = listing.render(result).splitlines()
    assert len(lines) == len(result.parts["tensors"]) + len(result.parts["values"]) + members
    assert len(set(lines)) == len(lines), "two things of one name"


@pytest.mark.parametrize("name", [name for name in ALL if name not in REFUSED - DAMAGED])
def test_a_sample_is_whole_unless_it_was_damaged_on_purpose(name):
    told = kept(ckptcheck.check(SAMPLES / name))
    assert told["verdict"] == ("fail" if name in DAMAGED else "pass")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_holds_no_training_state_is_refused(name):
    for call in (ckptcheck.inspect, lambda path: ckptcheck.diff(path, path)):
        with pytest.raises(CheckpointError):
            call(SAMPLES / name)


def test_a_sample_that_was_damaged_does_not_pass_by_its_findings_being_ignored():
    assert ckptcheck.check(SAMPLES / "02_torch_edge" / "trunc.pt", ignore=["CK1"]).verdict is Verdict.INCONCLUSIVE
