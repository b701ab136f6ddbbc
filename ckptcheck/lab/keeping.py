"""Whether an optimizer gives all that its next steps need into `state_dict()`: a reload, and the steps that follow."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import torch

from ckptcheck.lab.bench import HISTORY, Bench, Twin, said_of
from ckptcheck.lab.contract import Keeping
from ckptcheck.lab.snapshot import PARAM, Snapshot, same

STEPS: Final = 2
"""Steps after the reload: what a step itself computes anew shows in the second one only."""
_OF_TORCH: Final = frozenset({"state", "param_groups", "defaults"})


def keeping(bench: Bench) -> Keeping:
    """Reload a twin into a new instance over equal parameters, and let both go on with the same gradients."""
    name, variant = bench.subject.name, bench.variant.name
    try:
        going = bench.twin()
        outside = tuple(_changed_attributes(bench, going))
        resumed = _reloaded(bench, going)
        for one in (going, resumed):
            one.train(STEPS)
    except Exception as error:  # noqa: BLE001  the optimizer may be the user's own
        return Keeping(name, variant, None, reason=said_of(error))
    unlike = list(_unlike(going, resumed))
    return Keeping(name, variant, not unlike, outside, _in_words(unlike))


def _reloaded(bench: Bench, going: Twin) -> Twin:
    """A new instance that was given the values and the `state_dict()` of another one, as a resume does."""
    state = deepcopy(going.optimizer.state_dict())
    resumed = bench.twin(history=0)
    with torch.no_grad():
        for name, one in resumed.parameters.items():
            one.copy_(going.parameters[name])
    resumed.optimizer.load_state_dict(state)
    resumed.catch_up(HISTORY)
    return resumed


def _unlike(left: Twin, right: Twin) -> Iterator[str]:
    """What differs of two twins: "param" and keys of state, of any of their parameters."""
    for name, one in left.parameters.items():
        own, other = Snapshot.of(left.optimizer, one), Snapshot.of(right.optimizer, right.parameters[name])
        if not own.same_param(other):
            yield PARAM
        yield from own.changed_state(other)


def _in_words(unlike: list[str]) -> str:
    keys = [*dict.fromkeys(unlike)]
    if not keys:
        return ""
    named = ["the parameter" if one == PARAM else one for one in keys]
    return (
        f"{STEPS} steps after a reload of state_dict(), {', '.join(named)} {'differs' if len(named) == 1 else 'differ'}"
    )


def _changed_attributes(bench: Bench, trained: Twin) -> Iterator[str]:
    """Attributes that a trained instance has otherwise than a new one, and that are not in what it gives."""
    fresh = vars(bench.twin(history=0).optimizer)
    for name, value in vars(trained.optimizer).items():
        if name in _OF_TORCH or name.startswith(("_optimizer_", "_load_state_", "__")) or callable(value):
            continue
        if name not in fresh or not _alike(fresh[name], value):
            yield name


def _alike(left: Any, right: Any) -> bool:
    """Whether two values say the same; of objects that say nothing of themselves, whether they are of one class."""
    plain = (torch.Tensor, Mapping, list, tuple, set, bool, int, float, str, type(None))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        pairs = zip(left.values(), right.values(), strict=False)
        return len(left) == len(right) and all(_alike(*pair) for pair in pairs)
    return same(left, right) if isinstance(left, plain) or isinstance(right, plain) else type(left) is type(right)
