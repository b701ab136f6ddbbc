"""The one import that starts a recording: torch, however it comes into a process."""

import sysconfig
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.trace.injection.launching import environment, record
from tests.trace.injection.scripts import LOOP, STEPS

ODDLY = """
import importlib.util, os, subprocess, sys, threading
from importlib.machinery import SourceFileLoader

waiting = [one for one in sys.meta_path if type(one).__name__ == "_Waiting"]
assert len(waiting) == 1
looked = importlib.util.find_spec("torch")
assert type(looked.loader) is SourceFileLoader

# One that fails, and then the real one, in a thread.
sys.path.insert(0, "broken")
try:
    import torch
except ZeroDivisionError:
    pass
del sys.path[0]
sys.path_importer_cache.pop("broken", None)
thread = threading.Thread(target=__import__, args=("torch",))
thread.start()
thread.join()

import torch
assert type(torch.__spec__.loader) is type(torch.__loader__) is SourceFileLoader
assert vars(torch.__loader__) == {"name": "torch", "path": torch.__file__}, vars(torch.__loader__)
assert torch.__spec__ == importlib.util.find_spec("torch") and torch.__spec__.origin == looked.origin
assert waiting[0] not in sys.meta_path
assert not [name for name in sys.modules if name.partition(".")[0] == "ckptcheck"]
assert importlib.util.find_spec("click") is None and importlib.util.find_spec("ckptcheck") is None

import loop
loop.train()

# A child of another interpreter, that finds torch by what is added to our path.
more = os.pathsep.join([os.environ["PYTHONPATH"], os.path.dirname(os.path.dirname(torch.__file__))])
code = "import loop; loop.train(); print(len(loop.torch.__version__) > 0)"
done = subprocess.run([sys.argv[1], "-c", code], env=os.environ | {"PYTHONPATH": more})
sys.exit(done.returncode)
"""
AT_ONCE = "import sys; early = 'torch' in sys.modules; import loop; loop.train(); print(early)"


@pytest.fixture
def python(tmp_path) -> Path:
    """The Python of an environment with torch and what it needs, and nothing that is installed beside them."""
    venv.create(tmp_path / "environment")
    (site,) = (tmp_path / "environment").glob("lib/*/site-packages")
    for place in Path(sysconfig.get_path("purelib")).iterdir():
        if (
            not place.name.startswith(("click", "ckptcheck", "__editable__", "_", "distutils"))
            and place.suffix != ".pth"
        ):
            (site / place.name).symlink_to(place)
    return tmp_path / "environment" / "bin" / "python"


def test_torch_may_fail_first_come_in_a_thread_or_before_the_path_is_made(tmp_path, python):
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "oddly.py").write_text(ODDLY)
    (tmp_path / "broken" / "torch").mkdir(parents=True)
    (tmp_path / "broken" / "torch" / "__init__.py").write_text("1 / 0")
    early = tmp_path / "early"
    venv.create(early)
    (site,) = early.glob("lib/*/site-packages")
    (site / "torch.pth").write_text(f"{sysconfig.get_path('purelib')}\nimport torch\n")
    base = str(Path(sysconfig.get_config_var("BINDIR")) / "python3")
    commands = [[str(python), "oddly.py", base], [str(early / "bin" / "python"), "-c", AT_ONCE]]
    with ThreadPoolExecutor(2) as pool:
        (odd, twice), (at_once, one) = pool.map(
            lambda pair: record(pair[1], tmp_path, tmp_path / f"traces{pair[0]}", environment()), enumerate(commands)
        )
    assert (odd.code, odd.err, odd.out[0]) == (0, [], b"True")
    assert odd.out[1] == odd.out[2]
    assert [(left.rank, left.steps, left.clean) for left in twice] == [(0, STEPS, True)] * 2
    assert len({left.header["executable"] for left in twice}) == 2
    assert (at_once.code, at_once.err, at_once.out) == (0, [], [b"True", odd.out[1]])
    assert [(left.file, left.steps, left.clean) for left in one] == [("rank-0.trace", STEPS, True)]
