"""The rules over what a probe found out."""

from collections.abc import Mapping
from typing import Final

from ckptcheck.lab.contract import Contracts
from ckptcheck.rules.contracts import gradients
from ckptcheck.rules.rule import Rule

CONTRACT_RULES: Final[tuple[Rule[Contracts], ...]] = (*gradients.RULES,)

WHY_NOT: Final[Mapping[str, str]] = {"baseline": "no baseline was given"}
