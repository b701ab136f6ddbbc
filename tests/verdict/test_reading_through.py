"""One pass over a checkpoint: its checksums and its numbers together, and each as if the other were not."""

from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.conventions.explaining import explain
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Defect, Flaw, Member, RawTree
from ckptcheck.verdict.members import SMALL_BYTES, verify_members
from ckptcheck.verdict.reading_through import read_through
from tests.samples import CHECKPOINTS

SAMPLES = sorted(one for folder in CHECKPOINTS.iterdir() if folder.is_dir() and folder.name[:2] not in ("02", "03")
                 for one in folder.iterdir() if not one.name.startswith("latest"))  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_survey_changes_nothing_of_what_checksums_say(sample: Path):
    raw = read_raw(sample, strict=False)
    verified, survey = read_through(raw, explain(raw))
    assert verified == verify_members(raw)
    assert survey is not None and survey.unread == {}


def test_without_a_convention_nothing_is_surveyed():
    raw = read_raw(CHECKPOINTS / "04_hf_trainer" / "checkpoint-2")
    assert read_through(raw, None) == (verify_members(raw), None)


def test_progress_is_told_for_what_is_verified_and_for_what_is_read_beside_it(tmp_path):
    told = []

    class Told:
        def update(self, *one):
            told.append(one)

    torch.save({"model": {"w": torch.ones(2000, 300), "v": torch.ones(2000, 900)[:, :800]}}, tmp_path / "model.pt")
    raw = read_raw(tmp_path / "model.pt")
    read_through(raw, explain(raw), Told())
    name = str(tmp_path / "model.pt")
    assert (name, "MiB verified", 9, 9) in told
    assert told[-1] == (name, "MiB surveyed", 6, 6)


def test_small_members_are_verified_in_their_order_on_one_thread():
    seen = []

    def member(place: int) -> Member:
        def verify() -> Defect | None:
            seen.append(place)
            return Defect(Flaw.CHECKSUM, "", str(place)) if place % 2 else None

        return Member("", str(place), SMALL_BYTES - 1, True, verify)

    found = verify_members(RawTree(Path("x.pt"), "torch-zip", {}, 9, members=tuple(map(member, range(9)))))
    assert seen == [*range(9)]
    assert [one.said for one in found.defects] == ["1", "3", "5", "7"]


def test_a_damaged_tensor_is_a_defect_and_its_numbers_are_not_judged(tmp_path):
    torch.save({"model": {"w": torch.full((9, 9), 7.0), "v": torch.ones(3)}}, tmp_path / "model.pt")
    content = bytearray((tmp_path / "model.pt").read_bytes())
    content[content.index(torch.full((9, 9), 7.0).numpy().tobytes()) + 2] = 0xFF
    (tmp_path / "model.pt").write_bytes(content)
    result = verbs.check(tmp_path / "model.pt")
    assert "CK102" in {one.code for one in result.findings}
    assert any(one.code == "CK501" and "w: its stored bytes are damaged" in one.reason for one in result.not_judged)
