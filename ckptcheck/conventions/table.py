"""Every convention. A checkpoint belongs to the first that claims it; the last claims everything."""

from typing import Final

from ckptcheck.conventions.accelerate import Accelerate
from ckptcheck.conventions.composer import Composer
from ckptcheck.conventions.convention import Convention
from ckptcheck.conventions.dcp import Dcp
from ckptcheck.conventions.deepspeed import DeepSpeed
from ckptcheck.conventions.detectron2 import DETECTRON2
from ckptcheck.conventions.fabric import Fabric
from ckptcheck.conventions.fairseq import FAIRSEQ
from ckptcheck.conventions.flat import Flat
from ckptcheck.conventions.fsdp import Fsdp
from ckptcheck.conventions.hf_trainer import HfTrainer
from ckptcheck.conventions.lightning import Lightning
from ckptcheck.conventions.megatron import Megatron
from ckptcheck.conventions.mmengine import MMENGINE
from ckptcheck.conventions.nanogpt import NANOGPT
from ckptcheck.conventions.open_clip import OPEN_CLIP
from ckptcheck.conventions.own_store import OwnStore
from ckptcheck.conventions.peft import Peft
from ckptcheck.conventions.plain import Plain
from ckptcheck.conventions.sb3 import StableBaselines
from ckptcheck.conventions.timm import TIMM
from ckptcheck.conventions.torchtitan import TorchTitan
from ckptcheck.conventions.torchtune import TorchTune
from ckptcheck.conventions.ultralytics import ULTRALYTICS

CONVENTIONS: Final[tuple[Convention, ...]] = (
    OwnStore(),
    DeepSpeed(),  # in a trainer's folder, too: it asks the trainer for the rest
    HfTrainer(),
    Megatron(),
    TorchTitan(),
    TorchTune(),
    Composer(),
    Fabric(),
    Dcp(),
    Peft(),
    Accelerate(),
    Lightning(),
    StableBaselines(),
    NANOGPT,
    TIMM,
    FAIRSEQ,
    OPEN_CLIP,
    ULTRALYTICS,
    MMENGINE,
    DETECTRON2,
    Fsdp(),
    Flat(),
    Plain(),
)
