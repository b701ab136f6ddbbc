"""Where the real checkpoints lie that are kept as fixtures."""

from pathlib import Path
from typing import Final

CHECKPOINTS: Final = Path(__file__).parents[1] / "fixtures" / "checkpoints"
