"""The switches of torch that change numbers. Needs torch."""

from collections.abc import Iterable

import torch

from ckptcheck.state.training_state import Scalar


def flags() -> dict[str, Scalar]:
    """Thread count, default dtype, determinism and kernel switches of this process."""
    return {
        "num_threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "flash_sdp": torch.backends.cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        "mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        "math_sdp": torch.backends.cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
    }


def compiled_modules(modules: Iterable[torch.nn.Module]) -> int:
    """How many of them torch.compile has wrapped, or `module.compile()` has compiled in place.

    A compiled function, a whole training step say, is not seen.
    """
    return sum(
        isinstance(vars(one).get("_modules", {}).get("_orig_mod"), torch.nn.Module)
        or vars(one).get("_compiled_call_impl") is not None
        for one in modules
    )
