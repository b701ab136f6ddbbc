"""What a probe's process is told to do."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class ProbeJob:
    """One probe in one fresh process.

    `subjects` are optimizers or one target, as they were given, or "all" for every class of torch.optim that is the
    `share[0]`-th of every `share[1]`. `arguments` go to the constructor. `output` is the file for what it found out.
    """

    module: ClassVar[str] = "ckptcheck.lab.worker"
    deterministic: ClassVar[bool] = False
    capture: ClassVar[None] = None

    name: str
    subjects: tuple[str, ...]
    output: Path
    workdir: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    seed: int = 0
    exact: bool = False
    freeze: Mapping[str, str] = field(default_factory=dict)
    last: int = 20
    share: tuple[int, int] = (0, 1)

    def to_json(self) -> str:
        """The job as JSON."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "ProbeJob":
        """The job that `to_json` wrote."""
        values = json.loads(text)
        for name in ("output", "workdir"):
            values[name] = Path(values[name])
        for name in ("subjects", "share"):
            values[name] = tuple(values[name])
        return cls(**values)
