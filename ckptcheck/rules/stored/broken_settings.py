"""CK5: hyperparameters of a param group that are no numbers any more."""

import math
from collections.abc import Iterator

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.finding import Place
from ckptcheck.rules.rule import Evidence
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.rules.words import kept, names
from ckptcheck.state.scalars import value_of
from ckptcheck.state.training_state import Entry


def nan_hyperparameters(stored: Stored) -> Iterator[Evidence]:
    """One finding a group; an infinite value can be meant, NaN cannot."""
    for place, optimizer in enumerate(stored.checkpoint.state.optimizers):
        for group, one in enumerate(optimizer.groups):
            broken = [key for key, entry in one.hyperparameters.items() if _is_nan(entry)]
            if broken:
                yield Evidence(
                    f"{names(broken)} of group {group} in optimizer {place} {'is' if len(broken) == 1 else 'are'} NaN: "
                    "the first update makes every parameter of the group NaN",
                    Place(optimizer=place, group=group, key=broken[0]),
                    {"hyperparameters": kept(broken)},
                    "set the value anew after load_state_dict, and let the save refuse what is not finite",
                )


def _is_nan(entry: Entry) -> bool:
    try:
        value = value_of(entry)
    except DamagedCheckpointError:  # CK1 tells of it
        return False
    # A NaN among plain values is known by its text, which tells one NaN from another.
    return value.startswith("nan:") if isinstance(value, str) else isinstance(value, float) and math.isnan(value)
