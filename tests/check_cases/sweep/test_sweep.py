"""Trainings drawn at random: no healthy one gives an error, and what is put in is told."""

import warnings
from collections import Counter

import pytest

from tests.check_cases.sweep.judging import Caught, alarms, caught

HEALTHY = range(40)
BROKEN = range(500, 508)
UNSEEN = (
    ("drop a key (", "optimizer=LBFGS"),
    ("move to a group", "freezing=thawed"),
    ("counter is zero", "initial=0.1"),
)
"""Faults and recipes: LBFGS makes some keys anew, what was thawed is in no earlier group, Adagrad's sum began there."""


@pytest.mark.parametrize("first", range(HEALTHY.start, HEALTHY.stop, 8))
def test_a_healthy_training_of_any_kind_gives_no_error(first):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = [one for seed in range(first, first + 8) for one in alarms(seed)]
    assert told, "whatever the kind, something is said, if only for information"
    assert [str(one) for one in told if one.is_error] == []


def test_faults_that_are_put_in_are_told_with_the_names_of_their_parameters():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [one for seed in BROKEN for one in caught(seed)]
    missed = [one for one in found if not one.named and not _cannot_be_seen(one)]
    kinds = Counter(one.done.what.partition(" (")[0].partition(" in ")[0] for one in found)
    assert [(one.done, one.recipe) for one in missed] == []
    assert {"drop an entry", "drop a key", "swap two", "NaN", "counter is zero", "move to a group"} <= kinds.keys()
    assert sum(one.named for one in found) >= 0.95 * len(found)


def _cannot_be_seen(one: Caught) -> bool:
    return any(one.done.what.startswith(fault) and kind in one.recipe for fault, kind in UNSEEN)
