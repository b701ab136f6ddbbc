"""Whatever tree a file holds, the rules over one checkpoint say something or nothing, and never raise."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from ckptcheck.conventions.explaining import explain
from ckptcheck.errors import CkptcheckError
from ckptcheck.optimizers.guessing import guess
from ckptcheck.rules.rule import judged
from ckptcheck.rules.stored.stored import WHY_NOT, Purpose, Stored
from ckptcheck.rules.stored.table import STORED_RULES
from ckptcheck.verdict.reading_through import read_through
from ckptcheck.verdict.resume_memory import memory_part
from tests.conventions.test_any_tree import KEYS, roots, tree, values

OF_STATE = ("step", "exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg", "sum", "exp_inf", "n_iter")
OF_GROUPS = ("lr", "betas", "eps", "weight_decay", "amsgrad", "momentum", "initial_lr", "lookahead_k", "train_mode")
OF_SCHEDULES = (
    "last_epoch", "base_lrs", "_last_lr", "_step_count", "milestones", "_milestones", "gamma", "_schedulers", "T_max",
    "eta_min", "total_steps", "best", "num_bad_epochs", "total_iters", "step_size",
)  # fmt: skip
OF_MODELS = ("w", "a.weight", "a.bias", "l.0.weight", "l.1.weight", "l.0.running_var", "module.w", "lm_head.weight")


def some_of(keys: tuple[str, ...], size: int) -> some.SearchStrategy[dict[str, Any]]:
    return some.dictionaries(some.sampled_from(keys), values, max_size=size)


groups = some.builds(
    lambda rest, params, names: {**rest, "params": params, **({"param_names": names} if names is not None else {})},
    some_of(OF_GROUPS, 5),
    some.one_of(some.none(), some.lists(some.integers(-1, 5), max_size=4), values),
    some.one_of(some.none(), some.lists(some.sampled_from(KEYS), max_size=4), values),
)
states = some.dictionaries(some.integers(-1, 5), some.one_of(some_of(OF_STATE, 4), values), max_size=5)
optimizers = some.fixed_dictionaries({"state": states, "param_groups": some.lists(groups, max_size=3)})
models, schedules = some_of(OF_MODELS, 6), some_of(OF_SCHEDULES, 8)
checkpoints = some.fixed_dictionaries(
    {},
    optional={
        "model": models, "optimizer": some.one_of(optimizers, some.lists(optimizers, max_size=2)),
        "optimizer_states": some.lists(optimizers, max_size=2), "lr_schedulers": some.lists(schedules, max_size=2),
        "state_dict": models, "pytorch-lightning_version": some.just("2.0"), "loops": values, "scheduler": schedules,
        "scaler": values, "ema": some.one_of(models, values), "epoch": values, "global_step": values, "args": values,
        "micro_step": values, "gradient_accumulation_steps": values, "rng": values,
    },
)  # fmt: skip


@pytest.mark.parametrize("container", ["torch-zip", "folder"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(root=some.one_of(checkpoints, checkpoints, roots))
def test_rules_over_any_tree_end_in_findings_with_a_message_and_a_fix(container: str, root: Any) -> None:
    try:
        found = explain(tree(container, root))
    except CkptcheckError:
        return
    _, survey = read_through(found.raw, found)
    classes = tuple(guess(one) for one in found.state.optimizers)
    for purpose in Purpose:
        findings, _ = judged(STORED_RULES, Stored(found, purpose, classes=classes, survey=survey), WHY_NOT)
        assert all(one.message and one.fix for one in findings)
    assert memory_part(found)
