"""All there is of a parameter at one moment: its bits, and every entry that its optimizer keeps for it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from ckptcheck.finding import Json

PARAM: Final = "param"
SHOWN: Final = 6
"""How many values of a tensor a row shows."""
COUNTERS: Final = ("step", "n_iter")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`param` is a copy of the value, `state` one of every entry: tensors as they are, anything else as it is."""

    param: torch.Tensor
    state: Mapping[str, Any]

    @classmethod
    def of(cls, optimizer: Any, parameter: torch.Tensor) -> "Snapshot":
        """Copy what there is now."""
        kept = state_of(optimizer, parameter)
        return cls(_copied(parameter), {key: _copied(value) for key, value in kept.items()})

    def same_param(self, other: "Snapshot") -> bool:
        """Whether the value has the same bits."""
        return same(self.param, other.param)

    def changed_state(self, other: "Snapshot") -> tuple[str, ...]:
        """Keys that one of the two lacks, or whose entries differ, in the order of `other`."""
        keys = dict.fromkeys([*other.state, *self.state])
        unlike = (key for key in keys if key not in self.state or key not in other.state
                  or not same(self.state[key], other.state[key]))  # fmt: skip
        return tuple(unlike)

    def counter(self) -> float | None:
        """Its own step counter, None where it has none."""
        value = next((self.state[key] for key in COUNTERS if key in self.state), None)
        return None if value is None else float(value)

    def shown(self) -> dict[str, Json]:
        """The first values of everything."""
        return {PARAM: _shown(self.param), **{key: _shown(value) for key, value in self.state.items()}}


def state_of(optimizer: Any, parameter: torch.Tensor) -> Mapping[str, Any]:
    """What an optimizer keeps for a parameter, by key. Nothing where it keeps nothing yet, or has no `state`."""
    kept = getattr(optimizer, "state", None)
    if not isinstance(kept, Mapping):
        return {}
    # By identity: a tensor has the hash of its id, and to ask whether it equals a key that is that number is an error.
    entry = next((value for key, value in kept.items() if key is parameter or _is_id(key, parameter)), None)
    if entry is None:
        return {}
    return {str(key): value for key, value in entry.items()} if isinstance(entry, Mapping) else {"": entry}


def _is_id(key: object, parameter: torch.Tensor) -> bool:
    return isinstance(key, int) and key == id(parameter)


def same(left: Any, right: Any) -> bool:
    """Whether two entries are the same: type, shape, dtype and bits of tensors, value of anything else."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.shape == right.shape and left.dtype == right.dtype and torch.equal(_bits(left), _bits(right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return False
    if left is right:
        return True
    try:
        return type(left) is type(right) and bool(left == right or (left != left and right != right))  # noqa: PLR0124
    except Exception:  # noqa: BLE001  an object of the user's, or a reference to a tensor, that cannot be compared
        return False


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an entry, in lists and mappings too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, (list, tuple)) else value


def _bits(one: torch.Tensor) -> torch.Tensor:
    dense = one.to_dense() if one.is_sparse else one
    return dense.detach().contiguous().reshape(-1).view(torch.uint8)


def _shown(value: Any) -> Json:
    if isinstance(value, torch.Tensor):
        dense = value.to_dense() if value.is_sparse else value
        flat: list[Json] = dense.detach().reshape(-1)[:SHOWN].cpu().tolist()
        return flat
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_shown(one) for one in value[:SHOWN]]
    return type(value).__name__
