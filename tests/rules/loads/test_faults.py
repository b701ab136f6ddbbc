"""What a load gets wrong: each fault by its code and its place."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.check_cases.training import Mlp, Tied, decay_groups
from tests.rules.loads.dry import errors, found
from tests.rules.loads.live import Made, adamw, cosine, file_of, named, own_load, run_of


@dataclass(frozen=True)
class Fault:
    make: Callable[[Path], Made]
    code: str
    said: str
    parameter: str | None = None
    severity: str = "error"
    alone: bool = True
    """Whether no other error may be told."""


def no_optimizer(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder, change=lambda state: state.pop("optimizer")), run_of(model, adamw(model))


def load_forgets_optimizer(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder), own_load(run_of(model, adamw(model)), parts=["model"])


def load_drops_one(folder: Path) -> Made:
    model = Mlp()
    run = run_of(model, adamw(model))
    return file_of(folder), own_load(run, after=lambda: run.optimizer.state.pop(model.head.weight))


def file_lacks_one_number(folder: Path) -> Made:
    """No order in the model's file: only the target can name the parameter."""
    model = Mlp()

    def change(state: dict[str, Any]) -> None:
        state["optimizer"]["state"].pop(7)
        state.pop("model")

    return file_of(folder, change=change), run_of(model, adamw(model))


def sgd_file_into_adam(folder: Path) -> Made:
    model = Mlp()
    path = file_of(folder, optimizer=lambda one: torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9))
    return path, run_of(model, adamw(model))


def adam_file_into_sgd(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder), run_of(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def load_drops_a_key(folder: Path) -> Made:
    model = Mlp()
    run = run_of(model, adamw(model))
    return file_of(folder), own_load(run, after=lambda: run.optimizer.state[model.head.bias].pop("exp_avg_sq"))


def no_scheduler(folder: Path) -> Made:
    model = Mlp()
    optimizer = adamw(model)
    return file_of(folder), run_of(model, optimizer, scheduler=cosine(optimizer))


def no_scaler(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder), run_of(model, adamw(model), scaler=torch.amp.GradScaler("cpu"))


def no_ema(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder), run_of(model, adamw(model), ema=torch.optim.swa_utils.AveragedModel(Mlp()))


def state_of_a_stranger(folder: Path) -> Made:
    model = Mlp()
    larger = Mlp()
    larger.old = nn.Linear(6, 6)
    larger.forward = lambda x: Mlp.forward(larger, larger.old(x))  # type: ignore[method-assign]
    run = own_load(run_of(model, named(model)), parts=[])
    held: dict[str, Any] = {}
    run.load = lambda path: held.update(torch.load(path)) or model.load_state_dict(held["model"], strict=False)  # type: ignore[assignment]
    return file_of(folder, larger, named), run


def swapped_in_the_list(folder: Path) -> Made:
    model = Mlp()
    listed = [*model.named_parameters()]
    listed[0], listed[2] = listed[2], listed[0]
    return file_of(folder, optimizer=named), run_of(model, torch.optim.AdamW(listed, lr=1e-3))


def named_decay_groups(model: nn.Module, swap: bool = False) -> torch.optim.Optimizer:
    """Matrices of layer 0 with decay, that of layer 1 without; with `swap` the other way round."""
    first, second = ("layers.1.weight", "layers.0.weight") if swap else ("layers.0.weight", "layers.1.weight")
    parameters = dict(model.named_parameters())
    rest = [(name, one) for name, one in parameters.items() if name not in (first, second)]
    return torch.optim.AdamW(
        [
            {"params": [(first, parameters[first])], "weight_decay": 0.1},
            {"params": [(second, parameters[second]), *rest], "weight_decay": 0.0},
        ]
    )


def swapped_between_groups(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder, optimizer=named_decay_groups), run_of(model, named_decay_groups(model, swap=True))


def other_number_of_groups(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder, optimizer=lambda one: torch.optim.AdamW(decay_groups(one))), run_of(model, adamw(model))


def other_length(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder, optimizer=named), run_of(model, torch.optim.AdamW([*model.named_parameters()][:-1]))


def other_order_of_shapes(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder), run_of(model, torch.optim.AdamW([*model.parameters()][::-1], lr=1e-3))


def head_in_no_group(folder: Path) -> Made:
    model = Mlp()
    old = [one for name, one in model.named_parameters() if not name.startswith("head")]

    def load_some(state: dict[str, Any]) -> None:
        pass

    run = own_load(run_of(model, torch.optim.AdamW(old)), parts=["model"])
    return file_of(folder, optimizer=named, change=load_some), run


def twice_in_one(folder: Path) -> Made:
    model = Mlp()
    run = run_of(model, adamw(model))
    run.optimizer.param_groups.append({**run.optimizer.param_groups[0], "params": [model.head.weight]})
    return file_of(folder), own_load(run, parts=["model"])


def stale_layer(folder: Path) -> Made:
    model = Mlp()
    run = run_of(model, adamw(model))
    model.head = nn.Linear(6, 3)
    return file_of(folder), run


def load_assigns(folder: Path) -> Made:
    model = Mlp()
    run = run_of(model, adamw(model))

    def load(path: Path) -> None:
        held = torch.load(path)
        model.load_state_dict(held["model"], assign=True)
        run.optimizer.load_state_dict(held["optimizer"])

    run.load, run.save = load, lambda path: None
    return file_of(folder), run


def renamed_head_not_strict(folder: Path) -> Made:
    model = Mlp()
    model.top = model.head
    del model.head
    run = run_of(model, adamw(model))

    def load(path: Path) -> None:
        held = torch.load(path)
        model.load_state_dict(held["model"], strict=False)
        run.optimizer.load_state_dict(held["optimizer"])

    run.load, run.save = load, lambda path: None
    return file_of(folder), run


def wider_head(folder: Path) -> Made:
    model = Mlp()
    model.head = nn.Linear(6, 5)
    return file_of(folder), run_of(model, adamw(model))


def prefixed_names(folder: Path) -> Made:
    model = Mlp()

    def change(state: dict[str, Any]) -> None:
        state["model"] = {f"model.{name}": one for name, one in state["model"].items()}

    return file_of(folder, change=change), run_of(model, adamw(model))


def untied_by_the_load(folder: Path) -> Made:
    model = Tied()

    def load(path: Path) -> None:
        model.load_state_dict(torch.load(path)["model"])
        model.head.weight = nn.Parameter(model.embedding.weight.detach().clone())

    run = run_of(model, adamw(model), load=load, save=lambda path: None)
    return file_of(folder, Tied()), run


def two_tensors_for_one(folder: Path) -> Made:
    model = Tied()

    def change(state: dict[str, Any]) -> None:
        state["model"]["head.weight"] = state["model"]["head.weight"] + 1

    return file_of(folder, Tied(), change=change), run_of(model, adamw(model))


def other_first_rate(folder: Path) -> Made:
    model = Mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    return file_of(folder, schedule=cosine), run_of(model, optimizer, scheduler=cosine(optimizer))


def other_decay(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder), run_of(model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.3))


def adam_file_into_adamw(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder, optimizer=lambda one: torch.optim.Adam(one.parameters(), lr=1e-3)), run_of(
        model, adamw(model)
    )


def capturable_file(folder: Path) -> Made:
    model = Mlp()

    def change(state: dict[str, Any]) -> None:
        state["optimizer"]["param_groups"][0]["capturable"] = True

    return file_of(folder, change=change), run_of(model, adamw(model))


def group_without_lr(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder, change=lambda state: state["optimizer"]["param_groups"][0].pop("lr")), run_of(
        model, adamw(model)
    )


def lr_put_back(folder: Path) -> Made:
    model = Mlp()
    optimizer = adamw(model)
    run = own_load(
        run_of(model, optimizer, scheduler=cosine(optimizer)),
        parts=["model", "optimizer", "scheduler"],
        after=lambda: optimizer.param_groups[0].update(lr=1e-3),
    )
    return file_of(folder, schedule=cosine), run


def step_schedule(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 7)


def other_schedule(folder: Path) -> Made:
    model = Mlp()
    optimizer = adamw(model)
    return file_of(folder, schedule=cosine), run_of(model, optimizer, scheduler=step_schedule(optimizer))


def schedule_at_its_end(folder: Path) -> Made:
    model = Mlp()
    optimizer = adamw(model)

    def one_cycle(steps: int) -> Callable[[Any], Any]:
        return lambda own: torch.optim.lr_scheduler.OneCycleLR(own, max_lr=0.1, total_steps=steps)

    return file_of(folder, schedule=one_cycle(3)), run_of(model, optimizer, scheduler=one_cycle(9)(optimizer))


def frozen_that_was_trained(folder: Path) -> Made:
    model = Mlp()
    model.layers.requires_grad_(False)
    return file_of(folder), run_of(model, adamw(model))


def frozen_state_dropped(folder: Path) -> Made:
    """Frozen in both, with state of before: the load leaves it out."""
    model = Mlp()
    model.layers.requires_grad_(False)
    run = run_of(model, adamw(model))

    def change(state: dict[str, Any]) -> None:
        for key in range(4):
            state["optimizer"]["state"][key]["step"] -= 2

    def drop() -> None:
        for parameter in model.layers.parameters():
            run.optimizer.state.pop(parameter)

    return file_of(folder, change=change), own_load(run, after=drop)


def bf16_target(folder: Path) -> Made:
    model = Mlp().to(torch.bfloat16)
    return file_of(folder), run_of(model, adamw(model))


def bf16_moments(folder: Path) -> Made:
    model = Mlp()

    def change(state: dict[str, Any]) -> None:
        for one in state["optimizer"]["state"].values():
            one["exp_avg"] = one["exp_avg"].to(torch.bfloat16)

    return file_of(folder, change=change), run_of(model, adamw(model))


def counter_reset(folder: Path) -> Made:
    model = Mlp()
    run = run_of(model, adamw(model))

    def reset() -> None:
        for one in run.optimizer.state.values():
            one["step"].zero_()

    return file_of(folder), own_load(run, after=reset)


def load_raises(folder: Path) -> Made:
    model = Mlp()
    return file_of(folder), own_load(run_of(model, adamw(model)), parts=["model", "scheduler"])


def load_adds_noise(folder: Path) -> Made:
    model = Mlp()

    def noise() -> None:
        with torch.no_grad():
            model.norm.weight.add_(1e-3)

    return file_of(folder), own_load(run_of(model, adamw(model)), after=noise)


FAULTS = {
    "a file without an optimizer": Fault(no_optimizer, "CK201", "has no counterpart in the file", "layers.0.weight"),
    "a load that forgets the optimizer": Fault(load_forgets_optimizer, "CK201", "no state after the load"),
    "a load that drops one parameter's state": Fault(
        load_drops_one, "CK202", "exp_avg, exp_avg_sq, step", "head.weight"
    ),
    "a numbered file that lacks one parameter's state": Fault(
        file_lacks_one_number, "CK202", "in the place of head.bias", "head.bias", alone=False
    ),
    "SGD's state into AdamW": Fault(
        sgd_file_into_adam, "CK203", "lacks exp_avg, exp_avg_sq, step", "layers.0.weight", alone=False
    ),
    "AdamW's state into SGD": Fault(adam_file_into_sgd, "CK203", "lacks momentum_buffer", "layers.0.weight"),
    "a load that drops a key": Fault(load_drops_a_key, "CK203", "lacks exp_avg_sq", "head.bias"),
    "no schedule in the file": Fault(no_scheduler, "CK204", "a scheduler", severity="warning"),
    "no scaler in the file": Fault(no_scaler, "CK206", "a gradient scaler", severity="warning"),
    "no average in the file": Fault(no_ema, "CK208", "an EMA", severity="warning"),
    "state of parameters that the target lacks": Fault(
        state_of_a_stranger, "CK209", "old.weight, old.bias", "old.weight", severity="warning", alone=False
    ),
    "parameters of one shape in another order": Fault(
        swapped_in_the_list, "CK302", "layers.1.weight gets that of layers.0.weight", "layers.1.weight"
    ),
    "parameters of one shape in each other's group": Fault(
        swapped_between_groups, "CK301", "layers.1.weight (group 1 in the file, 0 in the target)", "layers.1.weight",
        alone=False,
    ),
    "the same, and each has the other's state": Fault(
        swapped_between_groups, "CK302", "layers.1.weight gets that of layers.0.weight", "layers.1.weight", alone=False
    ),
    "another number of groups": Fault(other_number_of_groups, "CK301", "2 groups of 3, 5 parameters", alone=False),
    "a group of another length": Fault(other_length, "CK301", "only the file has head.bias", "head.bias", alone=False),
    "parameters of unlike shapes in another order": Fault(
        other_order_of_shapes, "CK304", "exp_avg of head.bias in optimizer 0 is [6, 6]", "head.bias", alone=False
    ),
    "a head that was optimized and is in no group": Fault(
        head_in_no_group, "CK303", "head.weight, head.bias", "head.weight", alone=False
    ),
    "a parameter twice in an optimizer": Fault(
        twice_in_one, "CK305", "head.weight in group 0", "head.weight", alone=False
    ),
    "a layer that was replaced after the optimizer was built": Fault(
        stale_layer, "CK307", "head.weight, head.bias", "head.weight"
    ),
    "a load that assigns": Fault(load_assigns, "CK307", "the load replaced them", "layers.0.weight"),
    "a renamed module and a load that is not strict": Fault(
        renamed_head_not_strict, "CK309", "2 of 8 parameters", "top.weight"
    ),
    "a head of another width": Fault(wider_head, "CK309", "2 of 8 parameters", "head.weight", alone=False),
    "names with a prefix": Fault(prefixed_names, "CK310", "'model.'", alone=False),
    "a tie that the load breaks": Fault(
        untied_by_the_load, "CK311", "two after the load", "embedding.weight", alone=False
    ),
    "two unlike tensors for a tied one": Fault(two_tensors_for_one, "CK311", "two unlike ones", "embedding.weight"),
    "another weight decay": Fault(other_decay, "CK306", "the file's value wins", severity="warning"),
    "another rate to begin with": Fault(other_first_rate, "CK306", "initial_lr of group 0: 0.001", severity="info"),
    "Adam's groups into AdamW": Fault(adam_file_into_adamw, "CK306", "decoupled_weight_decay", severity="warning"),
    "capturable from a file on a CPU": Fault(capturable_file, "CK306", "fails an assertion"),
    "a group without lr": Fault(group_without_lr, "CK306", "lacks lr"),
    "a rate that the load puts back": Fault(lr_put_back, "CK602", "the rate jumps"),
    "a schedule of another class": Fault(other_schedule, "CK602", "another class", severity="warning"),
    "a schedule at its end": Fault(schedule_at_its_end, "CK602", "step 3 of 3", severity="warning"),
    "frozen in the target and trained when saved": Fault(
        frozen_that_was_trained, "CK405", "no longer trained: layers.0.weight", "layers.0.weight"
    ),
    "state of frozen parameters that the load drops": Fault(
        frozen_state_dropped, "CK406", "4 frozen parameters", "layers.0.weight"
    ),
    "float32 state into a bf16 target": Fault(
        bf16_target, "CK504", "cast by the load", "layers.0.weight", severity="warning"
    ),
    "moments that are narrower than the target's": Fault(
        bf16_moments, "CK504", "narrower in the file", "layers.0.weight", severity="warning"
    ),
    "a counter that the load resets": Fault(counter_reset, "CK505", "is 3.0 in the file and 0.0", "layers.0.weight"),
    "a load that raises": Fault(load_raises, "CK601", "raised: AttributeError"),
    "a load that changes a weight": Fault(
        load_adds_noise, "CK601", "neither as built", "norm.weight", severity="warning"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_load_is_told_by_its_code_and_its_place(name, tmp_path):
    fault = FAULTS[name]
    findings = found(*fault.make(tmp_path))
    alike = [one for one in findings if one.code == fault.code and fault.said in one.message]
    assert alike, [(one.code, one.severity.value, one.message) for one in findings]
    one = alike[0]
    assert one.severity.value == fault.severity
    if fault.parameter is not None:
        assert one.where.parameter == fault.parameter
    if fault.alone:
        assert {code for code, _ in errors(findings)} <= {fault.code}, errors(findings)


def test_a_rate_that_jumps_is_told_with_the_three_rates(tmp_path):
    (jump,) = [one for one in found(*lr_put_back(tmp_path)) if "the rate jumps" in one.message]
    assert jump.evidence["optimizer"] == 1e-3
    assert jump.evidence["saved"] == jump.evidence["schedule"] != 1e-3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one.double(), 1),
        (lambda one: one[:-1].clone(), 1),
        (lambda one: one + 1, 1),
        (lambda one: one.clone(), 0),
    ],
)
def test_two_tensors_for_a_tied_one_are_told_where_they_are_unlike_in_any_way(tmp_path, change, told):
    model = Tied()

    def unlike(state: dict[str, Any]) -> None:
        state["model"]["head.weight"] = change(state["model"]["head.weight"])

    path = file_of(tmp_path, Tied(), change=unlike)
    two_in_the_file = [one.evidence.get("how") == "two in the file" for one in found(path, run_of(model, adamw(model)))]
    assert sum(two_in_the_file) == told


@pytest.mark.parametrize(("kept", "live", "told"), [
    (torch.float64, torch.float32, 1), (torch.float32, torch.float64, 1), (torch.float32, torch.float32, 0),
    (torch.int64, torch.int32, 0), (torch.int32, torch.int64, 0), (torch.int64, torch.float32, 0),
])  # fmt: skip
def test_only_floating_tensors_are_narrowed(tmp_path, kept, live, told):
    def made(dtype: torch.dtype) -> nn.Module:
        model = Mlp()
        model.register_parameter("seen", nn.Parameter(torch.arange(3).to(dtype), requires_grad=False))
        return model

    model = made(live)
    path = file_of(tmp_path, made(kept))
    narrowed = [one.where.parameter for one in found(path, run_of(model, adamw(model))) if one.code == "CK504"]
    assert narrowed == ["seen"] * told


def test_where_both_orders_agree_nothing_is_said_to_be_otherwise(tmp_path):
    model = Mlp()
    path = file_of(tmp_path, optimizer=lambda one: torch.optim.AdamW(one.parameters(), lr=0.1))
    (told,) = [one for one in found(path, run_of(model, adamw(model))) if one.code == "CK308"]
    assert told.evidence["otherwise"] == {}
    assert "in the order of the file's model" not in told.message


def test_a_file_with_a_schedule_and_no_optimizer_says_nothing_of_rates_that_jump(tmp_path):
    model = Mlp()
    optimizer = adamw(model)
    run = own_load(
        run_of(model, optimizer, scheduler=cosine(optimizer)),
        parts=["model", "scheduler"],
        after=lambda: optimizer.param_groups[0].update(lr=1e-3),
    )
    path = file_of(tmp_path, schedule=cosine, change=lambda state: state.pop("optimizer"))
    said = found(path, run)
    assert "CK201" in {one.code for one in said}
    assert not any("the rate jumps" in one.message for one in said)
