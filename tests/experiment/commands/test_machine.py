import os

import pytest

from ckptcheck.experiment.commands.machine import default_at_once, is_launched, threads

LAUNCHED = {
    ("torchrun", "--nproc-per-node", "2", "train.py"): True,
    ("/usr/local/bin/torchrun", "train.py"): True,
    ("python", "-m", "torch.distributed.run", "train.py"): True,
    ("accelerate", "launch", "train.py"): True,
    ("bash", "-c", "cd src && torchrun train.py"): True,
    ("python", "train.py"): False,
    ("python", "my_torchrun.py", "--launcher=none"): False,
}


@pytest.mark.parametrize("words", LAUNCHED)
def test_what_starts_several_processes_is_known_by_its_name(words):
    assert is_launched(words) is LAUNCHED[words]


def test_no_two_launchers_run_side_by_side():
    without_gpu = {"CUDA_VISIBLE_DEVICES": ""}
    assert default_at_once(("torchrun", "train.py"), without_gpu) == 1
    assert default_at_once(("python", "train.py"), without_gpu) == min(2, os.cpu_count() or 1)


def test_cores_are_shared_out_unless_somebody_else_does():
    script = ("python", "train.py")
    shared = str(max(1, (os.cpu_count() or 1) // 2))
    assert threads(script, 2, {}) == {"OMP_NUM_THREADS": shared}
    assert threads(script, 1, {}) == {}
    assert threads(script, 2, {"OMP_NUM_THREADS": "7"}) == {}
    assert threads(("torchrun", "train.py"), 2, {}) == {}
