"""The same generator's state gives the same entry, whoever saved it."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from ckptcheck.conventions.rng import generators, is_generators, kind_of
from ckptcheck.state.training_state import Entry
from tests.conventions.made import raw

TORCH = torch.get_rng_state()
CUDA = torch.arange(16, dtype=torch.uint8)
NUMPY = np.random.RandomState(3).get_state()
PYTHON = random.Random(3).getstate()

WRITERS: dict[str, dict[str, Any]] = {
    "store": {"torch": TORCH, "cuda:0": CUDA, "numpy": NUMPY, "python": PYTHON},
    "script": {"torch": TORCH, "cuda": [CUDA], "numpy": NUMPY, "python": PYTHON},
    "hf-trainer": {"python": PYTHON, "numpy": NUMPY, "cpu": TORCH, "cuda": CUDA},
    "accelerate": {
        "random_state": PYTHON,
        "numpy_random_seed": NUMPY,
        "torch_manual_seed": TORCH,
        "torch_cuda_manual_seed": [CUDA],
    },
    "megatron": {
        "random_rng_state": PYTHON,
        "np_rng_state": NUMPY,
        "torch_rng_state": TORCH,
        "cuda_rng_state": CUDA,
    },
    "lists": {"torch": TORCH, "cuda": [CUDA], "numpy": list(NUMPY), "python": [3, list(PYTHON[1]), None]},
    "generator": {
        "torch": TORCH,
        "cuda": [CUDA],
        "numpy": np.random.RandomState(3).get_state(legacy=False),
        "python": PYTHON,
    },
}


def said(states: dict[str, Entry]) -> dict[str, Any]:
    return {
        name: bytes(one.ref.fetch()) if one.ref is not None else (one.digest, one.value) for name, one in states.items()
    }


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_gives_the_same_entries(writer: str) -> None:
    found, rest = generators(raw(WRITERS[writer]))
    assert sorted(found) == ["cuda:0", "numpy", "python", "torch"]
    assert said(found) == said(generators(raw(WRITERS["store"]))[0])
    assert not rest


def test_another_state_gives_another_entry() -> None:
    other = {"numpy": np.random.RandomState(4).get_state(), "python": random.Random(4).getstate()}
    left, right = said(generators(raw(WRITERS["store"]))[0]), said(generators(raw(other))[0])
    assert left["numpy"] != right["numpy"]
    assert left["python"] != right["python"]


@pytest.mark.parametrize(("state", "kind"), [(TORCH, "torch"), (NUMPY, "numpy"), (PYTHON, "python"), (CUDA, None)])
def test_a_state_alone_is_told_by_its_form(state: Any, kind: str | None) -> None:
    assert kind_of("anything", raw(state)) == kind


def test_a_dict_of_numbers_is_no_dict_of_generators() -> None:
    assert not is_generators({"torch": 1, "numpy": "2.0"})
    assert not is_generators({"cpu": [3, 4]})
    assert is_generators(raw({"cpu": TORCH}))


def test_what_is_no_generator_is_handed_back() -> None:
    found, rest = generators(raw({"torch": TORCH, "seed": 17, "cuda": []}))
    assert list(found) == ["torch"]
    assert rest == {"seed": 17}


def test_further_processes_have_their_rank_in_the_name() -> None:
    found, _ = generators(raw({"cpu": TORCH, "cuda": [CUDA, CUDA]}), "rank 1")
    assert list(found) == ["torch (rank 1)", "cuda:0 (rank 1)", "cuda:1 (rank 1)"]
    found, _ = generators(raw({"torch": TORCH, "torch (rank 2)": TORCH}))
    assert list(found) == ["torch", "torch (rank 2)"]


def test_a_key_alone_makes_no_generator() -> None:
    pairs = (("np", np.float64(1.5)), ("random", 3), ("cuda", "yes"), ("cpu", torch.zeros(3)), ("torch", "2"))
    for key, value in pairs:
        assert kind_of(key, raw(value)) is None
