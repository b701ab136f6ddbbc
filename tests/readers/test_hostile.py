"""Files made to mislead: each ends in time, in bounded memory and as expected, and nothing in it is executed.

The files are made by `python -m fixtures.hostile.make`; `python -m tests.readers.test_hostile` writes anew what is
said of them into fixtures/hostile/expected.json, to be read by somebody before it is kept.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import tensors_in
from fixtures.hostile import make, pickles, safe, zips
from tests.readers import large_attacks
from tests.readers.exploring import CODES, Outcome, Watch, flaws_of

HOSTILE = Path(make.__file__).parent
EXPECTED_FILE = HOSTILE / "expected.json"
EXPECTED: dict[str, dict[str, Any]] = json.loads(EXPECTED_FILE.read_text())


def attacks() -> list[str]:
    """The files and folders of every family."""
    return sorted({"/".join(path.split("/")[:2]) for path in make.files()})


def told(outcome: Outcome) -> dict[str, Any]:
    """What was said, without where the files lie, and what was found in what could be read."""
    found = {key: value for key, value in outcome.found.items() if key in ("runs_code", "defects") and value}
    said = {"says": outcome.said.replace(f"{HOSTILE}/", "")} if outcome.said else {}
    flaw = {"flaw": outcome.flaw} if outcome.flaw else {}
    text = json.dumps({"ends": outcome.kind, **flaw, **said, **found})
    whole: dict[str, Any] = json.loads(text.replace(f"{HOSTILE}/", ""))
    return whole


def ending(watch: Watch, attack: str) -> dict[str, Any]:
    """How reading it ends; of what ends it where damage is not put up with, also what is found where it is."""
    strict = watch("explore", HOSTILE / attack, True)
    assert strict.is_proper, strict
    whole = told(strict)
    if strict.kind != "fine":
        lax = watch("explore", HOSTILE / attack, False)
        assert lax.is_proper, lax
        if lax.kind == "fine":
            whole["lax"] = told(lax)
    return whole


@pytest.mark.parametrize("attack", attacks())
def test_what_is_made_to_mislead_ends_as_it_must(watch: Watch, attack: str):
    assert ending(watch, attack) == EXPECTED[attack]


@pytest.mark.parametrize("attack", attacks())
def test_check_finds_the_damage_that_reading_comes_upon(watch: Watch, attack: str):
    outcome = watch("judge", HOSTILE / attack)
    assert outcome.is_proper, outcome
    expected = EXPECTED[attack]
    if expected["ends"] == "refused":
        assert outcome.kind == "refused"
        return
    assert {CODES[flaw] for flaw in flaws_of(expected)} <= set(outcome.found["codes"])
    if flaws_of(expected):
        assert outcome.found["verdict"] == "fail"


@pytest.mark.parametrize("attack", attacks())
def test_diff_of_a_file_and_itself_ends_as_reading_it_does(watch: Watch, attack: str):
    outcome = watch("compare", HOSTILE / attack)
    assert outcome.is_proper, outcome
    if EXPECTED[attack]["ends"] == "fine":
        assert outcome.kind == "refused" or outcome.found["verdict"] != "fail"
    else:
        assert outcome.kind == EXPECTED[attack]["ends"]


def test_the_files_are_those_that_the_script_makes():
    kept = {path.relative_to(HOSTILE).as_posix() for path in HOSTILE.rglob("*") if path.is_file()}
    made = make.files()
    families = {path.split("/")[0] for path in made}
    assert {path for path in kept if path.split("/")[0] in families} == made.keys()
    assert all((HOSTILE / path).read_bytes() == content for path, content in made.items())
    assert EXPECTED.keys() == set(attacks())


@pytest.mark.parametrize("sound", ["zip/sound.pt", "legacy/sound.pt", "tar/sound.pt", "dcp/sound", "index/sound"])
def test_torch_is_not_needed(watch: Watch, sound: str):
    assert watch("explore", HOSTILE / sound, True).found["torch"] is False


def test_what_would_run_is_named_wherever_it_can_be_read():
    running = {f"pickle/runs_{name}.pt" for name in pickles.RUNNING}
    read = {attack for attack in running if EXPECTED[attack]["ends"] == "fine"}
    assert len(read) > 25
    assert [attack for attack in read if not EXPECTED[attack].get("runs_code")] == []


def test_python_would_run_what_is_said_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The attacks are real: a pickle that is loaded as Python does it leaves the mark that the tests look for."""
    import pickle

    monkeypatch.chdir(tmp_path)
    for name in ("reduce", "inst", "obj", "stack_global", "eval", "exec", "partial", "pickle_loads", "getattr_chain"):
        pickle.loads(pickles.proto2(pickles.RUNNING[name]))  # noqa: S301 - to see that it would
        assert (tmp_path / pickles.MARKER).exists(), name
        (tmp_path / pickles.MARKER).unlink()


# What is too large, or cannot be kept in a repository.


@pytest.mark.parametrize("name", large_attacks.DESCRIBED)
def test_what_is_large_ends_in_time_and_in_bounded_memory(watch: Watch, name: str, tmp_path: Path):
    path = tmp_path / "large.pt"
    path.write_bytes(large_attacks.DESCRIBED[name]())
    outcome = watch("describe", path, False)  # what puts up with damage goes farthest
    assert outcome.is_proper, outcome


@pytest.mark.parametrize("name", [*large_attacks.REFUSED, *large_attacks.READ])
def test_what_would_unfold_to_more_than_there_is_time_for(watch: Watch, name: str, tmp_path: Path):
    path = tmp_path / "attack.pt"
    path.write_bytes({**large_attacks.REFUSED, **large_attacks.READ}[name]())
    assert path.stat().st_size < 2 << 20
    outcome = watch("compare", path)
    assert outcome.is_proper, outcome
    assert outcome.kind == ("refused" if name in large_attacks.REFUSED else "fine"), outcome


def test_a_terabyte_is_described_without_reading_it(watch: Watch, tmp_path: Path):
    large_attacks.sparse_safetensors(tmp_path / "huge.safetensors")
    outcome = watch("describe", tmp_path / "huge.safetensors", True)
    assert outcome.is_proper
    assert outcome.found["nbytes"] > 1 << 40


# Folders.


def hf_folder(path: Path) -> Path:
    path.mkdir()
    (path / "model.safetensors").write_bytes(safe.whole(safe.SOUND))
    (path / "trainer_state.json").write_text('{"global_step": 2}')
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return hf_folder(tmp_path / "checkpoint-2")


def both(watch: Watch, path: Path) -> list[Outcome]:
    return [watch("explore", path, strict) for strict in (True, False)]


def test_a_link_loop_is_not_followed_for_ever(watch: Watch, folder: Path):
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "self.pt").symlink_to(folder / "self.pt")
    assert all(one.is_proper for one in both(watch, folder))


def test_a_checkpoint_that_is_a_link_to_itself_is_refused(watch: Watch, tmp_path: Path):
    (tmp_path / "self.pt").symlink_to(tmp_path / "self.pt")
    for one in both(watch, tmp_path / "self.pt"):
        assert one.is_proper
        assert one.kind == "refused"


def test_a_link_to_what_is_no_checkpoint_shows_nothing_of_it(watch: Watch, folder: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("do not show this")
    (folder / "optimizer.pt").symlink_to(secret)
    for one in both(watch, folder):
        assert one.is_proper
        assert "do not show" not in one.said + json.dumps(one.found)


@pytest.mark.parametrize("name", ["optimizer.pt", "model.safetensors", "trainer_state.json", "latest", ".metadata"])
def test_a_pipe_is_not_waited_for(watch: Watch, folder: Path, name: str):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert all(one.is_proper for one in both(watch, folder))
    assert all(one.kind == "refused" and one.is_proper for one in both(watch, folder / name))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(watch: Watch, folder: Path):
    (folder / "optimizer.pt").write_bytes(b"x")
    (folder / "optimizer.pt").chmod(0)
    strict = watch("explore", folder, True)
    assert strict.is_proper
    assert "optimizer.pt" in strict.said


def test_a_device_is_no_checkpoint(watch: Watch):
    for path in ("/dev/zero", "/dev/null", "/dev/tty"):
        if Path(path).exists():
            assert all(one.is_proper and one.kind == "refused" for one in both(watch, Path(path)))


def test_two_hundred_levels_of_folders_are_not_walked_into(watch: Watch, folder: Path):
    deep = folder
    for _ in range(200):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "optimizer.pt").write_bytes(b"")
    assert all(one.is_proper for one in both(watch, folder))


def test_a_name_that_is_no_text_or_breaks_the_line_stays_on_it(watch: Watch, folder: Path):
    for name in (b"optimizer\n.pt", b"\xff\xfe.pt", b"\x1b[31m.pt"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"PK\3\4 and nothing")
    for one in both(watch, folder):
        assert one.is_proper
        assert one.said.isprintable()


def test_an_empty_folder_and_an_absent_path_are_refused(watch: Watch, tmp_path: Path):
    for path in (tmp_path, tmp_path / "absent", tmp_path / "a\nb", tmp_path / ("x" * 5000)):
        for one in both(watch, path):
            assert one.is_proper
            assert one.kind == "refused"


# Files that change while they are read.


@pytest.fixture(params=["zip", "safetensors"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    """A checkpoint whose description was read, and its file."""
    whole = zips.build(zips.SOUND) if request.param == "zip" else safe.whole(safe.SOUND)
    path = tmp_path / "changing.pt"
    path.write_bytes(whole)
    return read_raw(path), path


def test_a_file_that_stays_is_unchanged(opened):
    raw, _ = opened
    raw.check_unchanged()
    assert [len(one.fetch()) for one in tensors_in(raw.root)] == [16, 16]
    raw.check_unchanged()


def rewrite(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    os.utime(path, ns=(1, 1))  # some time passes


def replaced(path: Path) -> None:
    beside = path.with_name("new")
    beside.write_bytes(path.read_bytes())
    beside.replace(path)


@pytest.mark.parametrize("change", [rewrite, replaced, Path.unlink, lambda path: os.truncate(path, 40)])
def test_a_file_that_changes_is_told(opened, change):
    raw, path = opened
    change(path)
    with pytest.raises(DamagedCheckpointError, match=r"changing.pt.*changed while it was read"):
        raw.check_unchanged()


def test_bytes_that_are_gone_are_told(opened):
    raw, path = opened
    os.truncate(path, 40)
    with pytest.raises(DamagedCheckpointError, match=r"changing\.pt"):
        [one.fetch() for one in tensors_in(raw.root)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        watching = Watch(Path(place))
        endings = {attack: ending(watching, attack) for attack in attacks()}
        watching.close()
    for attack, one in endings.items():
        if EXPECTED.get(attack) != one:
            print(f"{attack}\n  was {EXPECTED.get(attack)}\n  is  {one}", file=sys.stderr)
    EXPECTED_FILE.write_text(json.dumps(endings, indent=1, ensure_ascii=True) + "\n")
