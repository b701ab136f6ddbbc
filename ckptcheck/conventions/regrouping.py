"""Param groups made from hyperparameters that a writer keeps for each parameter."""

from collections.abc import Mapping
from typing import Any

from ckptcheck.conventions.groups import MEMBERSHIP
from ckptcheck.state.raw import Raw
from ckptcheck.state.tree import canonical, is_plain


def param_groups_of(hyperparameters: Mapping[str, Mapping[Any, Raw]]) -> list[dict[Any, Raw]]:
    """One group for all parameters with equal plain hyperparameters; a parameter with others has its own."""
    groups: dict[str, dict[Any, Raw]] = {}
    for name, values in hyperparameters.items():
        own = {key: one for key, one in values.items() if key not in MEMBERSHIP}
        told = canonical(own) if is_plain(own) else f"<{name}>"
        groups.setdefault(told, {**own, "params": []})["params"].append(name)
    return list(groups.values())
