import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptcheck.trace.file import Trace, open_traces
from ckptcheck.trace.injection.environment import recorded
from ckptcheck.trace.script.orders import Orders

SCRIPT = Path(__file__).parent / "trained.py"


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Iterator[dict[str, Trace]]:
    """The traces of every training of the script, by its name."""
    folder = tmp_path_factory.mktemp("trained")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    orders = Orders(traces=folder / "traces", digest="xxh3_128")
    orders.traces.mkdir()
    subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        env=recorded(orders, folder / "orders.json", environment),
        check=True,
    )
    found = {trace.header["arguments"][0]: trace for trace in open_traces(orders.traces)}
    yield found
    for trace in found.values():
        trace.close()
