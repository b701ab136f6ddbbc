import json
import os
from pathlib import Path

import pytest

from ckptcheck.cli.streams import write_file
from ckptcheck.errors import OutputError
from tests.cli.fakes import FakeVerbs
from tests.reports.results import BROKEN, CLEAN, HOSTILE


def test_text_goes_to_stdout_and_nothing_to_stderr(ckptcheck):
    outcome = ckptcheck("verify", "t", verbs=FakeVerbs(BROKEN))
    assert outcome.stdout.startswith("FAIL  optimizer state missing for parameter (CK202)")
    assert "\x1b" not in outcome.stdout
    assert outcome.stderr == ""


def test_quiet_says_the_verdict_only(ckptcheck):
    assert ckptcheck("verify", "t", "-q", verbs=FakeVerbs(CLEAN)).stdout.count("\n") == 1


def test_the_width_is_that_of_the_terminal(ckptcheck, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, ckptcheck("verify", "t", verbs=FakeVerbs(BROKEN)).stdout.splitlines())) <= 60


@pytest.mark.parametrize(("color", "no_color", "shown"), [
    ("always", "", True), ("always", "1", True), ("auto", "", False), ("never", "", False),
])  # fmt: skip
def test_colour_is_shown_where_it_was_asked_for(ckptcheck, monkeypatch, color, no_color, shown):
    monkeypatch.setenv("NO_COLOR", no_color)
    outcome = ckptcheck("verify", "t", "--color", color, verbs=FakeVerbs(BROKEN))
    assert ("\x1b[" in outcome.stdout) is shown


def test_hostile_names_reach_no_stream_raw(ckptcheck):
    outcome = ckptcheck("verify", "t", "-v", "--color", "never", verbs=FakeVerbs(HOSTILE))
    assert all(character.isprintable() or character == "\n" for character in outcome.output)


def test_the_demo_shows_both_results(ckptcheck):
    verbs = FakeVerbs(CLEAN, broken=BROKEN)
    said = ckptcheck("demo", verbs=verbs).stdout
    assert said.startswith("A checkpoint that holds everything:\nPASS  the resumed run")
    assert "\n\nThe same, and its load forgets the optimizer:\nFAIL  optimizer state missing" in said
    assert ckptcheck("demo", "-q", verbs=verbs).stdout.startswith("PASS")
    assert [one["verdict"] for one in json.loads(ckptcheck("demo", "--format", "json", verbs=verbs).stdout)] == [
        "pass",
        "fail",
    ]


def test_reports_are_written_beside_what_goes_to_stdout(ckptcheck, tmp_path):
    paths = tmp_path / "r.json", tmp_path / "r.txt"
    options = ("--report", f"json={paths[0]}", "--report", f"text={paths[1]}")
    outcome = ckptcheck("verify", "t", *options, "--color", "always", verbs=FakeVerbs(BROKEN))
    assert outcome.exit_code == 1
    assert outcome.stdout.startswith("\x1b[")
    assert json.loads(paths[0].read_text())["verdict"] == "fail"
    assert paths[1].read_text().startswith("FAIL  ")
    assert sorted(tmp_path.iterdir()) == sorted(paths)


@pytest.mark.parametrize("place", ["missing/r.json", "."])
def test_a_report_that_cannot_be_written_is_refused_before_any_training(ckptcheck, tmp_path, place):
    verbs = FakeVerbs(CLEAN)
    outcome = ckptcheck("verify", "t", "--report", f"json={tmp_path / place}", verbs=verbs)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("ckptcheck: error: cannot write")
    assert verbs.called == {}
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_fails_late_does_not_take_the_result_with_it(ckptcheck, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    verbs = FakeVerbs(BROKEN, during=folder.rmdir)
    outcome = ckptcheck("verify", "t", "--report", f"json={folder / 'r.json'}", verbs=verbs)
    assert outcome.exit_code == 2
    assert outcome.stdout.startswith("FAIL")
    assert "ckptcheck: error: cannot write" in outcome.stderr


def test_a_report_that_fails_late_leaves_one_document_on_stdout(ckptcheck, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    verbs = FakeVerbs(BROKEN, during=folder.rmdir)
    outcome = ckptcheck("verify", "t", "--format", "json", "--report", f"text={folder / 'r'}", verbs=verbs)
    assert json.loads(outcome.stdout)["verdict"] == "error"


def test_a_file_is_replaced_whole_and_keeps_its_link(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "link").is_symlink()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    target = tmp_path / "r.json"
    target.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"cannot write .*r\.json: No space left on device"):
        write_file(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_device_is_written_and_stays_a_device():
    write_file(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()
