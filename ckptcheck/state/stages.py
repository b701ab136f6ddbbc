"""The stages of a step in causal order, and which kind of record belongs to which stage."""

from typing import Final

LOAD: Final = "load"

STAGES: Final = (
    LOAD, "rng", "hyperparameters", "inputs", "buffers", "loss", "grad",
    "scaler", "state", "param", "schedule", "ema", "data", "extra",
)  # fmt: skip
"""Causal order: the first stage that differs names the cause."""

STAGE_ORDER: Final = {stage: place for place, stage in enumerate(STAGES)}
