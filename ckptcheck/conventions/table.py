"""Every convention. A checkpoint belongs to the first that claims it; the last claims everything."""

from typing import Final

from ckptcheck.conventions.accelerate import Accelerate
from ckptcheck.conventions.convention import Convention
from ckptcheck.conventions.dcp import Dcp
from ckptcheck.conventions.deepspeed import DeepSpeed
from ckptcheck.conventions.flat import Flat
from ckptcheck.conventions.hf_trainer import HfTrainer
from ckptcheck.conventions.lightning import Lightning
from ckptcheck.conventions.own_store import OwnStore
from ckptcheck.conventions.peft import Peft
from ckptcheck.conventions.plain import Plain
from ckptcheck.conventions.sb3 import StableBaselines

CONVENTIONS: Final[tuple[Convention, ...]] = (
    OwnStore(),
    DeepSpeed(),  # in a trainer's folder, too: it asks the trainer for the rest
    HfTrainer(),
    Dcp(),
    Peft(),
    Accelerate(),
    Lightning(),
    StableBaselines(),
    Flat(),
    Plain(),
)
