"""The .pth file: where it stands, for how long, and what it does there."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from ckptcheck.errors import CkptcheckError, OutputError, UsageError
from ckptcheck.trace.injection.pth import placed, site_packages
from ckptcheck.trace.script.orders import VARIABLE
from tests.trace.injection.launching import environment

WAITS = "import sys; print([type(one).__module__ for one in sys.meta_path if type(one).__name__ == '_Waiting'])"
SILENT = b"[]\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pth") / "environment"
    venv.create(folder)
    return folder / "bin" / "python"


def said(python: Path, *flags: str, **variables: str) -> bytes:
    done = subprocess.run([python, *flags, "-c", WAITS], env=environment(**variables), capture_output=True, check=True)
    return done.stdout + done.stderr


def test_it_stands_for_as_long_as_the_block_lasts_and_takes_no_other_with_it(python):
    (site,) = python.parents[1].glob("lib/*/site-packages")
    before = sorted(site.iterdir())
    with placed(str(python)) as outer:
        with placed(str(python)) as inner:
            assert sorted(site.iterdir()) == sorted([*before, outer, inner])
            assert {one.suffix for one in (outer, inner)} == {".pth"}
        assert sorted(site.iterdir()) == sorted([*before, outer])
        assert site_packages(str(python)) == site
    assert sorted(site.iterdir()) == before


def test_it_goes_when_the_block_raises_and_if_someone_took_it_before(python):
    with pytest.raises(KeyError), placed(str(python)) as file:
        raise KeyError
    assert not file.exists()
    with placed(str(python)) as file:
        file.unlink()


@pytest.mark.parametrize("flags", [("-E",), ("-I",), ("-P",), ("-s", "-B")])
def test_it_waits_for_torch_once_and_only_where_there_are_orders(python, flags):
    with placed(str(python)), placed(str(python)):
        assert said(python, *flags) == SILENT
        assert said(python, *flags, **{VARIABLE: ""}) == SILENT
        assert said(python, *flags, **{VARIABLE: "/no/such"}) == b"['pth']\n"
    assert said(python, *flags, **{VARIABLE: "/no/such"}) == SILENT


def test_one_that_is_left_behind_is_silent_when_we_are_gone(python):
    with placed(str(python)) as file:
        file.write_text(file.read_text().replace("sitecustomize.py", "gone.py"))
        assert said(python, "-I", **{VARIABLE: "/no/such"}) == SILENT


def executable(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("answer", "kind", "words"), [
    ("exit 3", UsageError, ["exit status 3", ".venv/bin/python"]),
    ("echo hello", UsageError, ["does not answer as a Python does"]),
    ("echo '[1, 2]'", UsageError, ["does not answer"]),
    ("true", UsageError, ["does not answer"]),
    ("""echo '["/usr", [], ["/usr"]]'""", UsageError, ["no site-packages"]),
    ("""echo '["/no/such", ["/no/such"], ["/no/such"]]'""", UsageError, ["no site-packages"]),
    ("""echo '["/proc", ["/proc"], ["/proc"]]'""", OutputError, ["/proc", "cannot be written"]),
])  # fmt: skip
def test_what_is_no_interpreter_that_can_be_used_is_refused_in_one_line(tmp_path, answer, kind, words):
    refused(executable(tmp_path / "python", answer), kind, words)


@pytest.mark.parametrize("name", ["/no/such/python", "no-such-python", "", "/", "a\0b"])
def test_what_cannot_be_started_is_refused_in_one_line(name):
    refused(name, UsageError, ["does not answer"])


def refused(python: str, kind: type[CkptcheckError], words: list[str]) -> None:
    with pytest.raises(kind) as caught, placed(python):
        pass
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


def test_the_interpreter_that_runs_this_is_known_by_name_too(monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert site_packages(Path(sys.executable).name) == site_packages(sys.executable)
