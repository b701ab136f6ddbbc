"""Which classes normal checkpoints of the common trainers name: they are no news where a pickle is judged."""

import re
from typing import Final

_DATA_CLASSES: Final = (
    "accelerate", "apex", "composer", "deepspeed", "detectron2", "diffusers", "fairscale", "fairseq", "fvcore",
    "gymnasium", "hydra", "lightning", "lightning_fabric", "megatron.core", "mmengine", "nemo", "numpy.dtypes",
    "numpy.random", "omegaconf", "peft", "pytorch_lightning", "sentence_transformers", "stable_baselines3", "timm",
    "torch.distributed", "torch.nested", "torch.nn", "torch.optim", "torchao", "torchmetrics", "torchtitan",
    "torchtune", "transformers", "trl", "ultralytics", "yacs",
)  # fmt: skip
"""Packages of which a checkpoint holds instances: arguments, enums, modules, wrappers, schedules."""

_NAMES: Final = frozenset(
    {
        "argparse.Namespace",
        "deepspeed.utils.tensor_fragment.fragment_address",
        "enum.Enum",
        "functools.partial",
        "logging.Logger",
        "signal.Signals",
        "torch.Generator",
        "torch._C.Generator",
        "torch.Tensor",
        "torch.distributed.remote_device._remote_device",
        "torch.nested._internal.nested_tensor._rebuild_njt",
        "types.SimpleNamespace",
        "uuid.UUID",
    }
)

_CLASS: Final = re.compile(r"_{0,2}[A-Z]\w*")


def is_known(name: str) -> bool:
    """Whether a global "module.Name" is what a common trainer puts into its checkpoints.

    Classes only, told by their capital letter: a function of the same packages is a call that no trainer saves.
    """
    module, _, last = name.rpartition(".")
    inside = any(module == package or module.startswith(f"{package}.") for package in _DATA_CLASSES)
    return name in _NAMES or (inside and _CLASS.fullmatch(last) is not None)
