"""The environment of a command that is to be recorded."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ckptcheck.trace.script.orders import VARIABLE, Orders

SITE: Final = Path(__file__).resolve().parent / "site"
"""The folder that holds our sitecustomize and nothing else."""


def recorded(orders: Orders, file: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment with recording switched on; the orders are written into `file`, which must outlive the command."""
    file.write_text(orders.to_json())
    paths = [str(SITE), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, VARIABLE: str(file), "PYTHONPATH": os.pathsep.join(paths)}
