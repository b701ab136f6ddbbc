"""The environment of a command that is to be recorded."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ckptcheck.errors import OutputError
from ckptcheck.trace.script.orders import VARIABLE, Orders

SITE: Final = Path(__file__).resolve().parent / "site"
"""The folder that holds our sitecustomize and nothing else."""


def recorded(orders: Orders, file: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment with recording switched on; the orders are written into `file`, which must outlive the command.

    A command that replaces PYTHONPATH, rather than adding to it, is recorded only with `pth.placed`. OutputError where
    the file cannot be written.
    """
    try:
        file.write_text(orders.to_json(), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{file} cannot be written ({error.strerror}); name a folder with room") from error
    # A script's shell may say `PYTHONPATH=$PYTHONPATH:src`. Where that was unset, it means the working folder and src:
    # the separator at the end tells our sitecustomize.
    given = environment.get("PYTHONPATH")
    paths = f"{SITE}{os.pathsep}{given}" if given else f"{SITE}{os.sep}"
    if given and SITE in map(Path, given.split(os.pathsep)):
        paths = given  # a recording inside a recording
    return {**environment, VARIABLE: str(file.resolve()), "PYTHONPATH": paths}
