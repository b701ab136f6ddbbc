"""The end of memory is one line, and no crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptcheck.errors import CheckpointError
from ckptcheck.memory import memory_is_bounded

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
from ckptcheck.cli.main import main
main()
"""


def test_it_is_told_as_any_other_bound_and_nothing_else_is_touched():
    @memory_is_bounded()
    def grow():
        return bytearray(1 << 62)

    with pytest.raises(CheckpointError, match="needs more memory than there is"):
        grow()
    with pytest.raises(KeyError), memory_is_bounded():
        raise KeyError


@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process")
@pytest.mark.parametrize("command", ["inspect", "check", "diff"])
def test_a_pickle_that_does_not_fit_into_memory_is_refused_in_one_line(command, tmp_path):
    path = tmp_path / "large.pkl"
    path.write_bytes(b"\x80\x02]")
    os.truncate(path, 250 << 20)  # takes no room
    paths = [path] * (2 if command == "diff" else 1)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, command, *paths], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "needs more memory than there is" in done.stderr
