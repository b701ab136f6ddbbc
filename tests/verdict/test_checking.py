"""Members verified in threads, and what `check` says of files that are whole, damaged or absent."""

import threading
from pathlib import Path

import pytest

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.finding import Verdict
from ckptcheck.state.raw import Defect, Flaw, Member, RawTree
from ckptcheck.verdict.checking import THREADS, check_files, files_part, verify_members

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
    return check_files(path, select, ignore, fail_on)


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
    assert check(MODEL, select=("CK2",)).verdict is Verdict.INCONCLUSIVE


def test_what_is_no_checkpoint_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"hello, this is a text\n")
    with pytest.raises(CheckpointError):
        check(path)


def test_what_is_absent_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no such file"):
        check(tmp_path / "absent")
