"""Probes of these tests run in forks of a process that has torch imported."""

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.experiment import process
from tests.experiment.forks import serve, start_forked


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Threads that wait for each other cost more than these tensors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def probe(monkeypatch):
    """`verbs.probe`, whose processes are forks."""
    serve()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(process, "start_fresh", start_forked)
    return verbs.probe
