"""What is around a training run: random generators, which are restored, and flags and versions, which are not."""

import platform
import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

from ckptcheck import __version__


def generators() -> dict[str, Any]:
    """The state of torch's CPU generator, of each CUDA device's in use, of numpy's and of python's, by name."""
    states: dict[str, Any] = {"torch": torch.get_rng_state()}
    # A process that has not touched CUDA yet has no generators there, and asking would start it.
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for device in range(torch.cuda.device_count()):
            states[f"cuda:{device}"] = torch.cuda.get_rng_state(device)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = numpy.random.get_state()
    states["python"] = random.getstate()
    return states


def restore_generators(states: Mapping[str, Any]) -> None:
    """Put generators into their states. Those of devices that this process does not have are left out."""
    for name, state in states.items():
        if name == "torch":
            torch.set_rng_state(state)
        elif name == "numpy":
            _restore_numpy(state)
        elif name == "python":
            random.setstate(state)
        elif not name.startswith("cuda:"):
            raise ValueError(f"unknown random generator {name!r}")
        elif torch.cuda.is_available() and int(name.removeprefix("cuda:")) < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, name)


def _restore_numpy(state: Any) -> None:
    try:
        import numpy as np
    except ImportError:  # without numpy nothing draws from its generator
        return
    np.random.set_state(state)


def versions() -> dict[str, str]:
    """The versions of what may change numbers."""
    found = {"ckptcheck": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found["numpy"] = str(numpy.__version__)
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found
