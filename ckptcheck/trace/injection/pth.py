"""Recording where PYTHONPATH does not reach (`python -E`, `python -I`, a script that replaces it): a .pth file.

It stands in the site-packages of the interpreter for as long as a recording lasts, and does nothing in a process that
has no orders in its environment; so one that a killed recording has left behind is idle.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ckptcheck.errors import OutputError, UsageError
from ckptcheck.trace.injection.environment import SITE
from ckptcheck.trace.script.orders import VARIABLE

PREFIX: Final = "ckptcheck-record-"
_TIMEOUT_S: Final = 60
_QUESTION: Final = (
    "import json, site, sys, sysconfig; "
    "print(json.dumps([sysconfig.get_path('purelib'), site.getsitepackages(), sys.path]))"
)


@contextmanager
def placed(python: str) -> Iterator[Path]:
    """The .pth file in the site-packages of an interpreter (a path, or a name on PATH), until the end of the block.

    UsageError where that is no Python or has no site-packages; OutputError where these cannot be written. Each
    recording has a file of its own, so that one that ends takes nothing from another.
    """
    file = _place(python, site_packages(python))
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def site_packages(python: str) -> Path:
    """The folder whose .pth files that interpreter runs, also with -I. UsageError where there is none."""
    # Some of them have a folder of their own for what is installed (Debian's), which sysconfig may not name.
    purelib, listed, path = _asked(python)
    for folder in (purelib, *listed):
        if folder in listed and folder in path and Path(folder).is_dir():
            return Path(folder)
    raise UsageError(f"{python} has no site-packages folder on its path; name the Python of the script's environment")


def _asked(python: str) -> tuple[str, list[str], list[str]]:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    try:
        done = subprocess.run(
            [python, "-I", "-c", _QUESTION],
            env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        answer: Any = json.loads(done.stdout.splitlines()[-1])
        purelib, listed, path = answer
        return str(purelib), [str(one) for one in listed], [str(one) for one in path]
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, IndexError) as error:
        reason = (str(error).splitlines() or [""])[0]
        said = f"{python!r} does not answer as a Python does ({reason})"
        raise UsageError(f"{said}; name the one that runs the script, such as .venv/bin/python") from error


def _place(python: str, folder: Path) -> Path:
    """Write the file whole before it has its name: other processes of that interpreter may be starting."""
    try:
        number, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
        with open(number, "w", encoding="utf-8") as file:
            file.write(_line())
        Path(name).chmod(0o644)
        return Path(name).rename(f"{name}.pth")
    except OSError as error:
        said = f"{folder}, the site-packages of {python}, cannot be written ({error.strerror})"
        raise OutputError(f"{said}; record without a .pth, or from an environment of your own") from error


def _line() -> str:
    """The line that the interpreter runs: it waits for torch as our sitecustomize does, and runs no other one."""
    file = repr(str(SITE / "sitecustomize.py"))
    run = f"exec(compile(open({file}, 'rb').read(), {file}, 'exec'), {{'__name__': 'pth', '__file__': {file}}})"
    return f"import os; os.environ.get({VARIABLE!r}) and os.path.isfile({file}) and {run}\n"
