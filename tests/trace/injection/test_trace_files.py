"""Each process that trains has a trace file of its own, and no other has one."""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import torch

from ckptcheck.errors import OutputError
from ckptcheck.trace.items import STEP, Item
from ckptcheck.trace.reading import open_traces
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.tracing import Tracing

TOGETHER = 12


def write(tracing: Tracing, value: float) -> None:
    samples = {}
    background = tracing.background()
    background.measure(samples, [(Item("param", "w"), torch.tensor([value])), (Item("scaler", "scale"), value)])
    background.wait_all()
    background.write(1, STEP, samples)


def values(folder) -> dict[str, float]:
    """The value that each file holds, by the file's name."""
    found = {}
    for trace in open_traces(folder):
        found[trace.path.name] = trace.samples(1, STEP)[Item("scaler", "scale")].value
        trace.close()
    return found


def test_many_of_one_rank_that_begin_at_once_have_files_of_their_own(tmp_path):
    tracings = [Tracing(Orders(traces=tmp_path / "traces")) for _ in range(TOGETHER)]
    with ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(write, tracings, map(float, range(TOGETHER))))
    for one in tracings:
        one.close({}, clean=True)
    found = values(tmp_path / "traces")
    assert sorted(found.values()) == [float(value) for value in range(TOGETHER)]
    own = f"rank-0.pid-{os.getpid()}"
    assert set(found) == {"rank-0.trace", f"{own}.trace", *(f"{own}-{n}.trace" for n in range(2, TOGETHER))}


def test_the_header_says_when_the_first_moment_was_written(tmp_path):
    before = datetime.now(UTC)
    tracing = Tracing(Orders(traces=tmp_path))
    write(tracing, 1.0)
    tracing.close({"more": 3}, clean=True)
    (trace,) = open_traces(tmp_path)
    started = datetime.fromisoformat(trace.header["started"])
    assert timedelta(0) <= started - before < timedelta(minutes=5)
    assert (trace.header["more"], trace.header["pid"], trace.ended) == (3, os.getpid(), True)
    trace.close()


def test_what_is_measured_and_never_written_leaves_no_file(tmp_path):
    tracing = Tracing(Orders(traces=tmp_path / "traces"))
    tracing.background().measure({}, [(Item("param", "w"), torch.ones(2))])
    tracing.close({"more": 3}, clean=True)
    assert not (tmp_path / "traces").exists()


def test_a_folder_that_cannot_be_made_is_an_error_of_our_tree(tmp_path):
    (tmp_path / "traces").write_text("a file")
    tracing = Tracing(Orders(traces=tmp_path / "traces"))
    with pytest.raises(OutputError, match="cannot be written"):
        write(tracing, 1.0)


def test_a_child_that_was_forked_leaves_its_parents_file_alone(tmp_path):
    tracing = Tracing(Orders(traces=tmp_path))
    write(tracing, 1.0)
    child = os.fork()
    if not child:
        write(tracing, 2.0)
        tracing.close({}, clean=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    tracing.close({}, clean=True)
    assert values(tmp_path) == {"rank-0.trace": 1.0, f"rank-0.pid-{child}.trace": 2.0}
