"""A copy of a live optimizer with parameters of its own: what is tried on it does not reach the training."""

from collections import OrderedDict
from copy import deepcopy
from typing import Any

import torch

_HOOKS = ("_optimizer_", "_load_state_dict_")


def copied(optimizer: Any) -> tuple[Any, dict[int, torch.Tensor]]:
    """The copy, and its parameters by the id of those that they were copied from.

    Everything that the optimizer holds is copied, parameters and state once; gradients are not. Left out are hooks,
    which may reach into the training, and what was set on the instance in place of a method: a schedule wraps `step`
    so that it steps the optimizer it was made for. Raises whatever an attribute raises that cannot be copied.
    """
    # By hand, since torch's own way of copying an optimizer loses the attributes that a subclass adds.
    kind: Any = type(optimizer)
    copy = object.__new__(kind)
    memo: dict[int, Any] = {id(optimizer): copy}
    for name, value in vars(optimizer).items():
        if name.startswith(_HOOKS) and name.endswith("_hooks"):
            vars(copy)[name] = OrderedDict()
        elif not callable(getattr(kind, name, None)):
            vars(copy)[name] = deepcopy(value, memo)
    own = [one for group in optimizer.param_groups for one in group["params"]]
    return copy, {id(one): memo[id(one)] for one in own}
