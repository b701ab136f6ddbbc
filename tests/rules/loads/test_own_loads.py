"""What a load of the target's own does beside loading: values it sets, moves, rounds or leaves as they were built."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.experiment.run import Run
from ckptcheck.finding import Finding
from tests.check_cases.training import Mlp
from tests.rules.loads.dry import dry_run, errors, found, judge, of_code
from tests.rules.loads.live import Made, adamw, cosine, file_of, named, own_load, run_of

ALL = ["model", "optimizer", "scheduler"]


def telling(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(one.code, one.severity.value) for one in findings if one.severity.value != "info"]


def loading(folder: Path, after: Callable[[Run], object], **made: Any) -> list[Finding]:
    """A load of one's own that restores all and then does something."""
    optimizer = made.get("optimizer", adamw)
    model = Mlp()
    run = run_of(model, optimizer(model))
    path = file_of(folder, **made)

    def last() -> None:
        torch.set_rng_state(torch.load(path)["rng"]["torch"])
        after(run)

    return found(path, own_load(run, after=last))


def rate_times_ten(run: Run) -> None:
    run.optimizer.param_groups[0]["lr"] *= 10


def decay_of_its_own(run: Run) -> None:
    run.optimizer.param_groups[0]["weight_decay"] = 0.5


def exchange(run: Run) -> None:
    first, second = run.model.layers[0].weight, run.model.layers[1].weight
    state = run.optimizer.state
    state[first], state[second] = state[second], state[first]


def moments_through_bf16(run: Run) -> None:
    for one in run.optimizer.state.values():
        one["exp_avg_sq"] = one["exp_avg_sq"].bfloat16().float()


def weights_through_fp16(run: Run) -> None:
    run.model.half().float()


def another_draw(run: Run) -> None:
    torch.rand(3)


@pytest.mark.parametrize(
    ("after", "code", "severity", "said"),
    [
        (rate_times_ten, "CK306", "warning", "lr of group 0: 0.001 in the file, 0.01 after the load"),
        (decay_of_its_own, "CK306", "warning", "weight_decay of group 0: 0.01 in the file, 0.5 after the load"),
        (exchange, "CK302", "error", "layers.0.weight (index 0) gets that of layers.1.weight (index 2)"),
        (moments_through_bf16, "CK504", "warning", "8 tensors are after the load what the file holds, rounded to bf"),
        (weights_through_fp16, "CK504", "warning", "rounded to float16: layers.0.weight"),
    ],
)  # fmt: skip
def test_what_a_load_does_after_it_restored_all_is_told_and_nothing_else(after, code, severity, said, tmp_path):
    findings = loading(tmp_path, after)
    assert telling(findings) == [(code, severity)], [(one.code, one.message) for one in findings]
    assert said in next(one for one in findings if one.code == code).message


@pytest.mark.parametrize("after", [lambda run: None, another_draw, lambda run: run.model.double().float()])
def test_a_load_that_restores_all_is_silent_whatever_it_draws_and_casts_to_and_fro(after, tmp_path):
    assert telling(loading(tmp_path, after)) == []


def test_state_that_is_exchanged_in_a_file_with_names_is_told_once(tmp_path):
    findings = loading(tmp_path, exchange, optimizer=named)
    assert telling(findings) == [("CK302", "error")]
    assert of_code(findings, "CK302").evidence["permutation"] == {
        "layers.0.weight": "layers.1.weight",
        "layers.1.weight": "layers.0.weight",
    }


def turned(parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    """The two layers' weights in each other's place."""
    return [parameters[2], parameters[1], parameters[0], *parameters[3:]]


def test_a_load_that_sorts_state_by_the_order_of_the_files_model_is_silent(tmp_path):
    model = Mlp()
    run = run_of(model, torch.optim.AdamW(turned([*model.parameters()]), lr=1e-3))
    path = file_of(tmp_path)

    def sort() -> None:
        exchange(run)
        torch.set_rng_state(torch.load(path)["rng"]["torch"])

    assert telling(found(path, own_load(run, after=sort))) == []


def test_an_order_that_nothing_can_prove_is_not_judged_and_what_speaks_against_it_is_told(tmp_path):
    model = Mlp()
    run = run_of(model, torch.optim.AdamW(turned([*model.parameters()]), lr=1e-3))
    findings, not_judged = judge(dry_run(file_of(tmp_path), run))
    told = of_code(findings, "CK308")
    assert told.severity.value == "info"
    assert "the target has layers.1.weight for what would be layers.0.weight" in told.message
    assert {one.code for one in not_judged} == {"CK301", "CK302"}


def test_weights_that_are_assigned_to_a_named_optimizer_are_no_exchange(tmp_path):
    model = Mlp()
    run = run_of(model, named(model))

    def load(path: Path) -> None:
        held = torch.load(path)
        model.load_state_dict(held["model"], assign=True)
        run.optimizer.load_state_dict(held["optimizer"])

    run.load, run.save = load, lambda path: None
    assert {code for code, _ in errors(found(file_of(tmp_path, optimizer=named), run))} == {"CK307"}


def test_weights_that_stay_as_built_are_not_said_to_be_rounded(tmp_path):
    """Ones and zeros that a trained norm is near to, in a low precision."""

    def change(state: dict[str, Any]) -> None:
        state["model"]["norm.weight"] = torch.tensor([1.0, 1.0, 0.5, 1.0, 1.0, 1.0]) + 1e-4

    model = Mlp()
    with torch.no_grad():
        model.norm.weight[2] = 0.5
    findings = found(file_of(tmp_path, change=change), own_load(run_of(model, adamw(model)), parts=["optimizer"]))
    assert not [one for one in findings if one.code == "CK504"]
    assert of_code(findings, "CK309").severity.value == "error"


def test_a_generator_that_the_load_left_is_told_where_the_file_holds_it(tmp_path):
    model = Mlp()
    path = file_of(tmp_path)
    torch.manual_seed(11)
    findings = found(path, own_load(run_of(model, adamw(model))))
    assert telling(findings) == [("CK205", "warning")]
    assert of_code(findings, "CK205").where.key == "torch"


@pytest.mark.parametrize("key", ["generator", "sampler", "loader"])
def test_a_generator_of_the_data_is_not_torchs_own(key, tmp_path):
    model = Mlp()
    own = torch.Generator().manual_seed(8).get_state()

    def change(state: dict[str, Any]) -> None:
        state.pop("rng")
        state[key] = {"state": own, "rng": own}

    path = file_of(tmp_path, change=change)
    assert telling(found(path, own_load(run_of(model, adamw(model))))) == []


def test_of_several_processes_generators_none_is_this_ones(tmp_path):
    states = {f"rank{rank}": {"torch": torch.Generator().manual_seed(rank).get_state()} for rank in (1, 2)}
    path = file_of(tmp_path, change=lambda state: state.update(rng=states))
    model = Mlp()
    assert telling(found(path, own_load(run_of(model, adamw(model))))) == []


def scheduled(folder: Path, schedule: Any, live: Any, parts: list[str], rate: float = 1e-3) -> Made:
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    path = file_of(folder, schedule=schedule)
    run = run_of(model, optimizer, scheduler=live(optimizer))

    def restore() -> None:
        torch.set_rng_state(torch.load(path)["rng"]["torch"])

    return path, own_load(run, parts=parts, after=restore)


def half_of(steps: int) -> Any:
    return lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, steps)


def cosine_of(steps: int) -> Any:
    return lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


@pytest.mark.parametrize(
    ("schedules", "parts", "severity", "said"),
    [
        ((cosine, cosine_of(40)), ALL, "info", "the file's win: T_max: 20 in the file, 40 in the target"),
        ((cosine, cosine_of(10)), ALL, "warning", "the file's win: T_max: 20 in the file, 10 in the target"),
        ((cosine_of(3), cosine_of(40)), ALL, "warning", "it stands at step 3 of 3, and its rate goes up again"),
        ((half_of(9), half_of(7)), ALL, "warning", "the file's win: step_size: 9 in the file, 7 in the target"),
        ((half_of(9), half_of(9)), ALL[:2], "error", "left the schedule at step 0, where the target had built it"),
        ((cosine, cosine), ALL[:2], "error", "the rate jumps"),
    ],
)
def test_a_schedule_that_the_load_does_not_take_over_is_told(schedules, parts, severity, said, tmp_path):
    findings = found(*scheduled(tmp_path, *schedules, parts))
    told = of_code(findings, "CK602")
    assert said in told.message
    assert told.severity.value == severity
    assert {code for code, _ in telling(findings)} <= {"CK602"}


def test_a_setting_that_the_load_puts_back_is_told_as_the_targets(tmp_path):
    path, run = scheduled(tmp_path, half_of(9), half_of(7), ALL)
    load = run.load

    def and_back(place: Path) -> None:
        load(place)
        run.scheduler.step_size = 7

    run.load = and_back
    told = of_code(found(path, run), "CK602")
    assert "the target's win: step_size" in told.message
    assert told.severity.value == "warning"


@pytest.mark.parametrize("schedule", [cosine, half_of(2)])
def test_a_rate_that_a_schedule_has_moved_is_no_value_of_the_loads_own(schedule, tmp_path):
    assert telling(found(*scheduled(tmp_path, schedule, schedule, ALL))) == []


def test_a_rate_that_a_load_sets_under_a_schedule_is_told_by_the_schedules_code_alone(tmp_path):
    path, run = scheduled(tmp_path, half_of(9), half_of(9), ALL)
    load = run.load

    def and_more(place: Path) -> None:
        load(place)
        rate_times_ten(run)

    run.load = and_more
    assert telling(found(path, run)) == [("CK602", "error")]


def test_restarts_that_have_grown_are_no_setting_of_another_kind(tmp_path):
    def restarts(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2, T_mult=2)

    assert telling(found(*scheduled(tmp_path, restarts, restarts, ALL))) == []


def tensor_rate(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3))


@pytest.mark.parametrize(("saved", "live"), [(tensor_rate, adamw), (adamw, tensor_rate), (tensor_rate, tensor_rate)])
def test_a_rate_in_a_tensor_is_the_number_that_it_holds(saved, live, tmp_path):
    model = Mlp()
    findings = found(file_of(tmp_path, optimizer=saved), run_of(model, live(model)))
    assert [one.message for one in findings if one.code == "CK306" and "lr of" in one.message] == []


def test_a_rate_in_a_tensor_that_differs_is_told_by_its_number(tmp_path):
    model = Mlp()
    run = run_of(model, torch.optim.AdamW(model.parameters(), lr=0.5))
    told = of_code(found(file_of(tmp_path, optimizer=tensor_rate), run), "CK306")
    assert "lr of group 0: 0.0010000000474974513 in the file, 0.5 in the target" in told.message


def test_an_integer_for_the_same_decay_is_no_other_decay(tmp_path):
    model = Mlp()
    path = file_of(tmp_path, optimizer=lambda one: torch.optim.AdamW(one.parameters(), lr=1e-3, weight_decay=0))
    run = run_of(model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0))
    assert telling(found(path, run)) == []


class Counting(torch.optim.AdamW):
    """Counts in its groups, as schedule-free optimizers do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=1e-3)
        self.param_groups[0].update(k=0, weight_sum=0.0)

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["k"] += 1
        self.param_groups[0]["weight_sum"] += 0.25
        return super().step(closure)


def test_what_an_optimizer_counts_in_its_groups_is_taken_over_without_a_word(tmp_path):
    model = Mlp()
    path = file_of(tmp_path, optimizer=lambda one: Counting(one.parameters()))
    assert telling(found(path, run_of(model, Counting(model.parameters())))) == []


def test_a_count_that_the_load_sets_back_is_told(tmp_path):
    model = Mlp()
    run = run_of(model, Counting(model.parameters()))
    path = file_of(tmp_path, optimizer=lambda one: Counting(one.parameters()))

    def again() -> None:
        run.optimizer.param_groups[0].update(k=0)
        torch.set_rng_state(torch.load(path)["rng"]["torch"])

    told = of_code(found(path, own_load(run, after=again)), "CK306")
    assert "the target's value wins: k of group 0: 3 in the file, 0 in the target" in told.message


def frozen(part: str) -> nn.Module:
    model = Mlp()
    getattr(model, part).requires_grad_(False)
    return model


@pytest.mark.parametrize(("part", "severity"), [("layers", "warning"), ("head", "info")])
def test_what_was_frozen_when_saved_and_is_trained_now_is_told_by_its_lack_of_state(part, severity, tmp_path):
    model = Mlp()
    told = of_code(found(file_of(tmp_path, frozen(part)), run_of(model, adamw(model))), "CK405")
    assert told.severity.value == severity
    assert told.evidence["thawed"] == [name for name, _ in model.named_parameters() if name.startswith(part)]


def test_a_lone_parameter_that_no_gradient_reached_is_not_said_to_be_frozen(tmp_path):
    def with_token() -> nn.Module:
        model = Mlp()
        model.token = nn.Parameter(torch.zeros(3))
        return model

    model = with_token()
    findings = found(file_of(tmp_path, with_token()), run_of(model, adamw(model)))
    assert not [one for one in findings if one.code == "CK405"]


@pytest.mark.parametrize(
    "optimizer", [adamw, lambda model: torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])]
)
def test_what_is_frozen_in_both_is_no_change_of_who_is_trained(optimizer, tmp_path):
    model = frozen("layers")
    findings = found(file_of(tmp_path, frozen("layers"), optimizer), run_of(model, optimizer(model)))
    assert not [one for one in findings if one.code == "CK405"]


def test_a_group_that_keeps_no_state_says_nothing_of_who_was_frozen(tmp_path):
    def half(model: nn.Module) -> torch.optim.Optimizer:
        rest = [one for name, one in model.named_parameters() if not name.startswith("layers")]
        groups = [{"params": model.layers.parameters()}, {"params": rest, "momentum": 0.9}]
        return torch.optim.SGD(groups, lr=0.1)

    model = Mlp()
    findings = found(file_of(tmp_path, Mlp(), half), run_of(model, half(model)))
    assert not [one for one in findings if one.code == "CK405"]


@pytest.mark.parametrize(("for_release", "severity"), [(True, "warning"), (False, "error")])
def test_an_optimizer_that_starts_anew_weighs_by_what_the_file_is_for(for_release, severity, tmp_path):
    model = Mlp()
    dry = dry_run(file_of(tmp_path, change=lambda state: state.pop("optimizer")), run_of(model, adamw(model)))
    findings, _ = judge(replace(dry, for_release=for_release))
    assert of_code(findings, "CK201").severity.value == severity
