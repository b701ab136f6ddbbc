"""The three commands about checkpoints where torch cannot be imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "fixtures" / "checkpoints"
PRELUDE = "import sys; sys.modules['torch'] = None; from ckptcheck.cli.main import main; main()"


def run(*arguments: str, prelude: str = PRELUDE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", prelude, *arguments],
        cwd=SAMPLES,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["inspect", "04_hf_trainer/checkpoint-2"], 0, "hf-trainer"),
    (["inspect", "--textconv", "01_torch_save/zip_full.pt"], 0, "xxh3_128:"),
    (["inspect", "07_lightning/pl.ckpt", "-v"], 0, "lightning"),
    (["check", "01_torch_save/zip_full.pt"], 0, "nothing is missing for a resume; the files are whole"),
    (["check", "02_torch_edge/bitflip.pt"], 1, "CK102"),
    (["check", "02_torch_edge/trunc.pt"], 1, "CK101"),
    (["diff", "04_hf_trainer/checkpoint-2", "04_hf_trainer/checkpoint-2"], 0, "identical content"),
    (["diff", "04_hf_trainer/checkpoint-2", "04_hf_trainer/checkpoint-4"], 1, "exp_avg"),
    (["explain", "CK402"], 0, "frozen-state-drift"),
])  # fmt: skip
def test_a_command_about_checkpoints_needs_no_torch(arguments, code, said):
    done = run(*arguments)
    assert done.stderr == ""
    assert done.returncode == code
    assert said in done.stdout


@pytest.mark.parametrize("arguments", [
    ["diff", os.devnull, "01_torch_save/zip_full.pt"], ["diff", "README.md", "01_torch_save/zip_full.pt"],
    ["inspect", "absent.pt"], ["inspect", "02_torch_edge/trunc.pt"], ["check", "README.md"],
    ["inspect", "03_reject/torchscript.pt"],
])  # fmt: skip
def test_what_cannot_be_read_is_one_line_and_exit_2(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("ckptcheck: error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["inspect", "diff", "check"])
def test_the_help_needs_neither_torch_nor_numpy(command):
    heavy = "import sys; sys.modules['torch'] = sys.modules['numpy'] = sys.modules['rich'] = None; "
    done = run(command, "--help", prelude=heavy + "from ckptcheck.cli.main import main; main()")
    assert (done.returncode, done.stderr) == (0, "")
