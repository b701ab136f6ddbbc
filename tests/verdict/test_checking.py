"""Members verified in threads, and what `check` says of files that are whole, damaged or absent."""

import shutil
import threading
import zipfile
from pathlib import Path

import pytest

import ckptcheck
from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.finding import Verdict
from ckptcheck.reports import text
from ckptcheck.reports.page import Page
from ckptcheck.state.raw import Defect, Flaw, Member, RawTree
from ckptcheck.verdict.check_question import CheckQuestion
from ckptcheck.verdict.checking import check_checkpoint
from ckptcheck.verdict.files_part import files_part
from ckptcheck.verdict.members import THREADS, verify_members

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "fixtures" / "checkpoints" / "15_safetensors_sharded" / "sharded"


def member(name: str, verify, *, nbytes: int = 1 << 20, has_checksum: bool = True, file: str = "") -> Member:
    return Member(file, name, nbytes, has_checksum, verify)


def tree(*members: Member, files=None) -> RawTree:
    return RawTree(Path("x.pt"), "torch-zip", {}, 100, members=members, files=files or {})


def raising(error: Exception):
    def verify() -> Defect | None:
        raise error

    return verify


def nothing() -> None:
    return None


def test_all_that_is_wrong_comes_in_the_order_of_the_file():
    bad = [Defect(Flaw.CHECKSUM, "", f"data/{place}") for place in range(20)]
    members = [member(one.said, (lambda one=one: one) if place % 2 else nothing) for place, one in enumerate(bad)]
    assert list(verify_members(tree(*members)).defects) == bad[1::2]


@pytest.mark.parametrize(("error", "flaw"), [
    (DamagedCheckpointError("cut short", Flaw.UNREADABLE), Flaw.UNREADABLE),
    (DamagedCheckpointError("no shard", Flaw.INCOMPLETE), Flaw.INCOMPLETE),
    (CheckpointError("x.pt: cannot be read (Input/output error)"), Flaw.UNREADABLE),
])  # fmt: skip
def test_a_member_that_cannot_be_read_is_a_defect(error, flaw):
    found = verify_members(tree(member("a", raising(error), file="f"), member("b", nothing)))
    assert found.defects == (Defect(flaw, "f", str(error)),)


def test_a_bug_in_a_member_is_not_taken_for_a_defect():
    with pytest.raises(ZeroDivisionError):
        verify_members(tree(member("a", raising(ZeroDivisionError()))))


def test_bytes_count_as_verified_where_they_carry_a_checksum():
    found = verify_members(tree(member("a", nothing, nbytes=5), member("b", nothing, nbytes=7, has_checksum=False)))
    assert found.nbytes == 5


def test_two_members_are_verified_at_once():
    meeting = threading.Barrier(THREADS, timeout=10)
    verify_members(tree(*(member(name, lambda: meeting.wait() and None) for name in "abcd")))
    assert not meeting.broken


def test_progress_is_told_in_bytes_of_the_whole():
    told = []

    class Told:
        def update(self, *one):
            told.append(one)

    verify_members(tree(member("a", nothing), member("b", nothing, nbytes=2 << 20)), Told())
    assert told[-1] == ("x.pt", "MiB verified", 3, 3)
    assert len(told) == 2


def test_files_say_whether_their_bytes_carry_checksums():
    files = {name: RawTree(Path(name), "torch-zip", {}, 9) for name in ("on", "off", "part", "none")}
    members = [member("a", nothing, file="on"), member("b", nothing, file="off", has_checksum=False),
               member("c", nothing, file="part"), member("d", nothing, file="part", has_checksum=False),
               member("e", nothing, file="none", nbytes=0)]  # fmt: skip
    told = {one["path"]: one["checksums"] for one in files_part(tree(*members, files=files))}
    assert told == {"on": "on", "off": "off", "part": "in part", "none": "off"}


def check(path: Path, select=("CK",), ignore=(), fail_on="error"):
    return check_checkpoint(path, CheckQuestion(select=select, ignore=ignore, fail_on=fail_on))


def cut(tmp_path: Path) -> Path:
    whole = next(MODEL.glob("*.safetensors")).read_bytes()
    path = tmp_path / "cut.safetensors"
    path.write_bytes(whole[:-10])
    return path


def test_whole_files_pass_and_say_what_they_are():
    result = check(MODEL)
    assert result.verdict is Verdict.PASS
    assert result.findings == ()
    assert result.parts["layout"]["container"]


def test_a_file_that_was_cut_short_is_a_finding(tmp_path):
    result = check(cut(tmp_path))
    assert result.verdict is Verdict.FAIL
    assert [one.code for one in result.findings] == ["CK101"]
    assert result.parts["layout"] is None


@pytest.mark.parametrize("fail_on", ["never"])
def test_a_damaged_file_never_passes(tmp_path, fail_on):
    assert check(cut(tmp_path), fail_on=fail_on).verdict is Verdict.INCONCLUSIVE
    assert check(cut(tmp_path), ignore=("CK101",)).verdict is Verdict.INCONCLUSIVE


def test_where_no_rule_judges_nothing_passes():
    assert check(MODEL, select=("CK7",)).verdict is Verdict.INCONCLUSIVE


def test_what_is_no_checkpoint_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"hello, this is a text\n")
    with pytest.raises(CheckpointError):
        check(path)


def test_what_is_absent_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no such file"):
        check(tmp_path / "absent")


def told(result) -> list[str]:
    """The lines of the report, joined where they were wrapped."""
    return text.render(result, Page(width=4_000)).splitlines()


CHECKPOINTS = ROOT / "fixtures" / "checkpoints"


def test_what_was_checked_is_named():
    path = CHECKPOINTS / "04_hf_trainer" / "checkpoint-2"
    result = check(path)
    assert (result.parts["path"], result.parts["chosen"]) == (str(path), None)
    assert f"Checked      {path}" in told(result)


def test_of_a_run_the_chosen_checkpoint_is_named_and_how_many_there_are(tmp_path):
    run = Path(shutil.copytree(CHECKPOINTS / "04_hf_trainer", tmp_path / "run"))
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-3")
    result = check(run)
    assert result.parts["path"] == str(run / "checkpoint-4")
    assert result.parts["chosen"] == {"reason": "the newest", "of": 3, "skipped": []}
    assert f"Checked      {run / 'checkpoint-4'}, the newest of 3; name another to check it" in told(result)
    (run / "checkpoint-4" / "trainer_state.json").unlink()
    lines = told(check(run))
    assert f"Checked      {run / 'checkpoint-3'}, the newest that is whole, one of 3; name another to check it" in lines
    assert any(line.startswith("             passed over: checkpoint-4: trainer_state.json") for line in lines)


def test_the_only_checkpoint_of_a_run_has_no_other_to_name():
    path = CHECKPOINTS / "05_hf_trainer_peft"
    assert f"Checked      {path / 'checkpoint-2'}, the newest" in told(check(path))


def test_a_damaged_checkpoint_is_named_too(tmp_path):
    path = cut(tmp_path)
    assert f"Checked      {path}" in told(check(path))


def files_in(path: Path) -> dict[str, str]:
    return {one["path"]: one["checksums"] for one in check(path).parts["files"]}


def test_the_files_of_a_set_of_shards_are_the_shards_and_their_index():
    there = {path.name for path in MODEL.iterdir()}
    assert files_in(MODEL) == dict.fromkeys(there, "off")
    assert sum(one["bytes"] for one in check(MODEL).parts["files"]) == sum(p.stat().st_size for p in MODEL.iterdir())


def test_the_files_of_a_distributed_checkpoint_are_its_slices_and_their_description():
    path = CHECKPOINTS / "08_dcp" / "dcp_fsdp2"
    found = files_in(path)
    assert found == {one.name: "off" if one.name == ".metadata" else "on" for one in path.iterdir()}
    assert {one["path"]: one["bytes"] for one in check(path).parts["files"]} == {
        one.name: one.stat().st_size for one in path.iterdir()
    }


def test_the_files_of_ranks_that_were_joined_are_named_as_they_lie(tmp_path):
    names = ["fsdp2_dtensor_rank0.pt", "fsdp2_dtensor_rank1.pt"]
    for name in names:
        shutil.copy(CHECKPOINTS / "09_fsdp_ddp" / name, tmp_path)
    assert files_in(tmp_path) == dict.fromkeys(names, "on")


def test_bytes_that_were_only_parsed_are_named_and_not_called_whole(tmp_path):
    folder = Path(shutil.copytree(CHECKPOINTS / "06_accelerate_bin" / "checkpoint_1", tmp_path / "checkpoint_1"))
    assert told(check(folder))[0] == "PASS  nothing is missing for a resume; the files are whole"
    (folder / "config.json").write_text('{"hidden_size": 4}')
    result = check(folder)
    lines = told(result)
    assert lines[0] == "PASS  nothing is missing for a resume; no damage found, some bytes carry no checksum"
    assert "             only parsed, no checksums in: config.json" in lines
    assert [(one.code, one.reason) for one in result.not_judged] == [
        ("CK102", "18 bytes carry no checksum: config.json")
    ]


def test_the_bytes_of_metadata_carry_no_checksum():
    path = CHECKPOINTS / "08_dcp" / "dcp_plain"
    result = check(path)
    nbytes = (path / ".metadata").stat().st_size
    assert told(result)[0] == "PASS  nothing is missing for a resume; no damage found, some bytes carry no checksum"
    assert [one.reason for one in result.not_judged] == [f"{nbytes} bytes carry no checksum: .metadata"]


def test_the_checksums_of_an_archive_are_held_against_its_json_too(tmp_path):
    path = tmp_path / "ppo.zip"
    content = bytearray((CHECKPOINTS / "13_sb3" / "sb3_ppo.zip").read_bytes())
    assert check(CHECKPOINTS / "13_sb3" / "sb3_ppo.zip").not_judged == ()
    with zipfile.ZipFile(CHECKPOINTS / "13_sb3" / "sb3_ppo.zip") as archive:
        begin = archive.getinfo("data").header_offset + 30 + len("data")
    content[content.index(b"0.99", begin) + 2] ^= 1  # a digit
    path.write_bytes(content)
    result = check(path)
    assert result.verdict is Verdict.FAIL
    assert [one.code for one in result.findings if one.code < "CK2"] == ["CK102"]


def test_a_set_of_shards_beside_a_single_file_is_left_over(tmp_path):
    folder = Path(shutil.copytree(MODEL, tmp_path / "model"))
    shutil.copy(CHECKPOINTS / "04_hf_trainer" / "checkpoint-2" / "model.safetensors", folder)
    result = check(folder)
    (found,) = result.findings
    assert (found.code, found.where.path) == ("CK107", "model.safetensors.index.json")
    assert "beside model.safetensors" in found.message
    inspected = ckptcheck.inspect(folder)
    assert any("beside model.safetensors" in note for note in inspected.parts["notes"])
    assert inspected.parts["tensors"]


def test_bytes_behind_the_end_of_a_file_are_told_and_are_no_finding(tmp_path):
    path = Path(shutil.copy(next((ROOT / "fixtures" / "hostile" / "zip").glob("sound.pt")), tmp_path / "longer.pt"))
    assert "trailing_bytes" not in check_checkpoint(path, CheckQuestion()).parts["files"][0]
    path.write_bytes(path.read_bytes() + b"junk" * 10)
    result = check_checkpoint(path, CheckQuestion())
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert result.parts["files"][0]["trailing_bytes"] == 40
    assert "Not read     40 bytes behind the end of the file" in text.render(result, Page())


def test_bytes_behind_the_end_are_told_of_the_file_in_a_folder(tmp_path):
    folder = Path(shutil.copytree(CHECKPOINTS / "04_hf_trainer" / "checkpoint-2", tmp_path / "run"))
    path = folder / "optimizer.pt"
    path.write_bytes(path.read_bytes() + b"junk")
    rows = check_checkpoint(folder, CheckQuestion()).parts["files"]
    assert {row["path"]: row["trailing_bytes"] for row in rows if "trailing_bytes" in row} == {"optimizer.pt": 4}
