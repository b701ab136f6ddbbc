"""The catalogue stands for the public reports: each mechanism that a resume on a CPU shows has a fault of its own."""

from collections import Counter

from tests.catalogue.cells import fault_cells
from tests.catalogue.combinations import COMBINATIONS, combined_cells
from tests.catalogue.fault import CLEAN
from tests.catalogue.table import FAMILIES, FAULTS

# From a collection of 181 public bug reports on checkpoints of PyTorch trainings (GitHub issues, pull requests and
# forum threads, one entry a report): those that a resume shows and that can be reproduced on a CPU, counted by kind
# and by mechanism.
REPORTS = {
    ("aliasing-and-async", "alias"): 3,
    ("data-position", "data_epoch"): 4,
    ("data-position", "data_mid"): 1,
    ("data-position", "data_pos"): 3,
    ("ema-swa", "ema_counter"): 1,
    ("ema-swa", "ema_missing"): 4,
    ("freeze-unfreeze-resume", "freeze_drop"): 1,
    ("freeze-unfreeze-resume", "refreeze"): 1,
    ("frozen-param-drift", "bn_drift"): 2,
    ("frozen-param-drift", "zero_grad_drift"): 4,
    ("grad-scaler", "scaler"): 6,
    ("gradient-accumulation", "accum"): 3,
    ("gradient-accumulation", "sched_unit"): 1,
    ("hyperparameter-override", "flag_ignored"): 1,
    ("hyperparameter-override", "hyper_stale"): 1,
    ("loop-and-callback-state", "loop"): 5,
    ("lr-scheduler-position", "sched_ctor"): 1,
    ("lr-scheduler-position", "sched_inner"): 4,
    ("lr-scheduler-position", "sched_last_epoch"): 2,
    ("lr-scheduler-position", "sched_missing"): 5,
    ("lr-scheduler-position", "sched_off"): 2,
    ("lr-scheduler-position", "sched_unit"): 1,
    ("master-weights", "master"): 4,
    ("noise-or-by-design", "noise"): 2,
    ("noise-or-by-design", "unknown"): 1,
    ("optimizer-state-absent", "opt_absent"): 6,
    ("optimizer-state-absent", "opt_wiped"): 3,
    ("param-order", "order"): 4,
    ("param-order", "set_order"): 1,
    ("rng", "rng"): 4,
    ("rng", "rng_order"): 3,
    ("scheduler-load-order", "sched_ctor"): 3,
    ("stale-parameter-reference", "stale_ref"): 6,
    ("state-dtype", "dtype_down"): 4,
    ("state-dtype", "v_underflow"): 1,
    ("step-counter", "step_desync"): 1,
    ("weights-not-loaded", "not_loaded"): 5,
    ("weights-not-loaded", "overwritten"): 2,
    ("wrapper-optimizer", "mode"): 1,
    ("wrapper-optimizer", "wrap"): 2,
}

MECHANISMS_ASKED_FOR = 60


def test_every_mechanism_of_the_reports_has_a_fault_and_every_fault_names_known_mechanisms():
    told = {mechanism for fault in FAULTS.values() for mechanism in fault.reports}
    asked = {mechanism for _, mechanism in REPORTS}
    assert (len(REPORTS), sum(REPORTS.values())) == (40, 109)
    assert asked - told == set()
    assert told - asked == set()


def test_there_are_enough_mechanisms_and_no_two_faults_share_a_name():
    names = Counter(fault.name for family in FAMILIES for fault in family.FAULTS)
    assert [name for name, number in names.items() if number > 1] == []
    assert sum(fault.family != CLEAN for fault in FAULTS.values()) >= MECHANISMS_ASKED_FOR


def test_every_fault_has_a_training_that_it_makes_a_difference_to():
    planted = {name for cell in fault_cells() for name in cell.faults}
    assert planted == set(FAULTS)


def test_faults_that_are_combined_are_of_different_families_and_make_a_difference_together():
    assert all(len({FAULTS[name].family for name in names}) == len(names) for names in COMBINATIONS)
    for cell in combined_cells():
        assert all(FAULTS[name].applies(cell.spec) for name in cell.faults)
