"""Whether an optimizer gives all that its next steps need into `state_dict()`: a reload, and the steps that follow."""

import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from ckptcheck.lab.bench import Bench, Twin, said_of
from ckptcheck.lab.contract import Keeping
from ckptcheck.lab.snapshot import PARAM, Snapshot, same

BEFORE: Final = 7
"""Steps before the reload: a prime, so that no usual period of an optimizer begins anew with the reload."""
STEPS: Final = 13
"""Steps after the reload: what acts every tenth step, or computes anew what it lacks, shows only after a while."""
_OF_TORCH: Final = frozenset({"state", "param_groups", "defaults", "_opt_called"})


def keeping(bench: Bench) -> Keeping:
    """Reload a twin into a new instance over equal parameters, and let both go on with the same gradients.

    A third one that is not reloaded shows whether steps repeat at all: where they do not, a reload cannot be judged.
    """
    name, variant = bench.subject.name, bench.variant.name
    try:
        going, control = bench.twin(BEFORE), bench.twin(BEFORE)
        for one in (going, control):
            _slow_down(one)
        outside = tuple(_changed_attributes(bench, going))
        saved = _saved(going)
        for one in (going, control):
            one.train(STEPS)
        if any(_unlike(going, control)):
            return Keeping(name, variant, None, outside, reason=_NOT_REPEATING)
        resumed = _reloaded(bench, saved)
        resumed.train(STEPS)
    except Exception as error:  # noqa: BLE001  the optimizer may be the user's own
        return Keeping(name, variant, None, reason=said_of(error))
    unlike = list(_unlike(going, resumed))
    return Keeping(name, variant, not unlike, outside, _in_words(unlike))


def _slow_down(one: Twin) -> None:
    """Halve the learning rate, as a schedule does: a load that puts the first one back is then seen."""
    for group in one.optimizer.param_groups:
        if isinstance(group.get("lr"), float | torch.Tensor):
            group["lr"] = group["lr"] * 0.5


_NOT_REPEATING: Final = "two that were made alike and given the same gradients differ by themselves: it does not repeat"


def _saved(going: Twin) -> bytes:
    """What a checkpoint of it holds: parameters, and its `state_dict()`."""
    file = io.BytesIO()
    torch.save({"parameters": going.parameters, "optimizer": going.optimizer.state_dict()}, file)
    return file.getvalue()


def _reloaded(bench: Bench, saved: bytes) -> Twin:
    """A new instance that was given what was saved, as a resume does."""
    # Our own bytes, of a moment ago: an optimizer's state may hold objects of its own.
    loaded = torch.load(io.BytesIO(saved), weights_only=False)
    resumed = bench.twin(history=0)
    with torch.no_grad():
        for name, one in resumed.parameters.items():
            one.copy_(loaded["parameters"][name])
    resumed.optimizer.load_state_dict(loaded["optimizer"])
    resumed.catch_up(BEFORE)
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
    plain = (torch.Tensor, Mapping, set, bool, int, float, str, type(None))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        pairs = zip(left.values(), right.values(), strict=False)
        return len(left) == len(right) and all(_alike(*pair) for pair in pairs)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(_alike(*pair) for pair in zip(left, right, strict=True))
    return same(left, right) if isinstance(left, plain) or isinstance(right, plain) else type(left) is type(right)
