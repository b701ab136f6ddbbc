import os

import pytest

from ckptcheck.errors import OutputError, UsageError
from ckptcheck.experiment.commands import copies
from ckptcheck.experiment.commands.copies import content_of, copy_working_folder, snapshot


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    for name in ("src", ".git", "__pycache__", ".venv", "data/deep", "out"):
        (folder / name).mkdir(parents=True)
    (tmp_path / "outside.txt").write_text("outside")
    for name in ("train.py", "src/model.py", ".git/HEAD", "__pycache__/x.pyc", ".venv/pyvenv.cfg", "data/deep/a.bin"):
        (folder / name).write_text(name)
    (folder / "train.py").chmod(0o755)
    os.utime(folder / "train.py", (1_000_000, 1_000_000))
    (folder / "inside.txt").symlink_to("src/model.py")
    (folder / "inside_absolute.txt").symlink_to(folder / "src" / "model.py")
    (folder / "outside.txt").symlink_to("../outside.txt")
    (folder / "src" / "up").symlink_to("../data")
    return folder


def copied(project, target, *shared):
    copy_working_folder(project, target, content_of(project, shared))
    return target


def test_a_copy_holds_what_a_script_needs_and_is_its_own(project, tmp_path):
    target = copied(project, tmp_path / "deeper" / "copy")
    assert (target / "src" / "model.py").read_text() == "src/model.py"
    assert (target / "train.py").stat().st_mode & 0o777 == 0o755
    assert (target / "train.py").stat().st_mtime == 1_000_000
    assert (target / "out").is_dir()
    assert not (target / ".git").exists()
    assert not (target / "__pycache__").exists()
    (target / "train.py").write_text("changed")
    assert (project / "train.py").read_text() == "train.py"


def test_environments_and_what_is_shared_are_linked_to(project, tmp_path):
    target = copied(project, tmp_path / "copy", "data")
    assert (target / ".venv").readlink() == project / ".venv"
    assert (target / "data").readlink() == project / "data"
    assert not (target / "src").is_symlink()
    by_pattern = copied(project, tmp_path / "by_pattern", "*.bin")
    assert (by_pattern / "data" / "deep" / "a.bin").readlink() == project / "data" / "deep" / "a.bin"
    by_path = copied(project, tmp_path / "by_path", "data/deep/")
    assert (by_path / "data" / "deep").readlink() == project / "data" / "deep"


def test_links_lead_into_the_copy_where_they_led_inside_and_to_the_same_place_otherwise(project, tmp_path):
    target = copied(project, tmp_path / "deeper" / "copy")
    assert (target / "inside.txt").resolve() == target / "src" / "model.py"
    assert (target / "inside_absolute.txt").resolve() == target / "src" / "model.py"
    assert (target / "src" / "up").resolve() == target / "data"
    assert (target / "outside.txt").read_text() == "outside"


def test_a_glob_that_matches_nothing_is_refused(project):
    with pytest.raises(UsageError, match="'dataset' matches nothing"):
        content_of(project, ("data", "dataset"))


def test_a_folder_too_large_to_copy_is_refused_and_names_the_way_out(project):
    with (project / "data" / "large.bin").open("wb") as file:
        file.truncate(copies.MAX_COPIED_BYTES)  # no block of it is on the disk
    with pytest.raises(UsageError) as refused:
        content_of(project, ())
    for told in ("2.0 GiB", "{dir}", "--share data"):
        assert told in str(refused.value)
    assert content_of(project, ("data",)).nbytes < 1000


def test_a_snapshot_is_as_the_folder_stood(project, tmp_path):
    os.mkfifo(project / "pipe")
    snapshot(project, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert (copy / "inside.txt").readlink() == (project / "inside.txt").readlink()
    assert (copy / "src" / "up").readlink() == (project / "src" / "up").readlink()
    assert (copy / ".git" / "HEAD").read_text() == ".git/HEAD"
    assert (copy / "train.py").stat().st_mtime == 1_000_000
    assert not (copy / "pipe").exists()


def test_a_copy_that_cannot_be_made_says_so(project, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        snapshot(project, tmp_path / "file" / "copy")
