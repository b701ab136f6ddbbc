"""The switches of torch that change numbers. Needs torch."""

import torch

from ckptcheck.state.training_state import Scalar


def flags() -> dict[str, Scalar]:
    """Thread count, default dtype and determinism switches of this process."""
    return {
        "num_threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }
