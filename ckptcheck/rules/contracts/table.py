"""The rules over what a probe found out."""

from collections.abc import Mapping
from typing import Final

from ckptcheck.lab.contract import Contracts
from ckptcheck.rules.contracts import changed, frozen, gradients, implementations, keeping, raising
from ckptcheck.rules.rule import Rule

CONTRACT_RULES: Final[tuple[Rule[Contracts], ...]] = (
    *gradients.RULES, *frozen.RULES, *keeping.RULES, *implementations.RULES, *changed.RULES, *raising.RULES,
)  # fmt: skip

WHY_NOT: Final[Mapping[str, str]] = {"baseline": "no baseline was given"}
