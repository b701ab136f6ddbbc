"""Schedules of one checkpoint: classes of torch stand as our formulas say, and what does not is told with numbers."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Severity
from ckptcheck.optimizers.schedules import COMMON, SCHEDULES
from ckptcheck.readers.reading import read_raw
from ckptcheck.rules.rule import Evidence, Unjudged
from ckptcheck.rules.stored.loops import saved_within_a_window, steps_are_counted
from ckptcheck.rules.stored.schedule import rates_are_the_schedules, schedule_fits
from ckptcheck.rules.stored.schedulers import expected_rates, schedulers_of
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.state.checkpoint import Checkpoint
from tests.check_cases.schedule import CLASSES, Training, lightning, schedule_of
from tests.samples import CHECKPOINTS

FORMULAS = [row.name for row in SCHEDULES if row.rate is not None]


def read(found: dict[str, Any], folder: Path) -> Checkpoint:
    torch.save(found, folder / "model.pt")
    return explain(read_raw(folder / "model.pt"))


def said(rule: Any, checkpoint: Checkpoint, purpose: Purpose = Purpose.RESUME) -> list[Evidence | Unjudged]:
    return list(rule.check(Stored(checkpoint, purpose)))


def optimizer_of(rates: list[float]) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [torch.nn.Parameter(torch.ones(2))], "lr": one} for one in rates], momentum=0.9)


@pytest.mark.parametrize("name", FORMULAS)
def test_the_rate_of_a_formula_is_torchs_at_every_position(name: str, tmp_path: Path) -> None:
    rates = [0.1, 3e-4]
    optimizer = optimizer_of(rates)
    scheduler = schedule_of(name, optimizer)
    for _ in range(30):
        checkpoint = read({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, tmp_path)
        told = list(expected_rates(schedulers_of(checkpoint.state)[0]))
        assert [recorded for _, recorded in told] == scheduler.get_last_lr()
        for (expected, recorded), base in zip(told, rates, strict=True):
            assert math.isclose(expected, recorded, rel_tol=1e-9, abs_tol=1e-12 * base)
        assert said(schedule_fits, checkpoint) == said(rates_are_the_schedules, checkpoint) == []
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("name", [one for one in CLASSES if one not in ("SequentialLR", "ChainedScheduler", "SWALR")])
def test_a_class_is_told_by_the_fields_that_torch_keeps_today(name: str, tmp_path: Path) -> None:
    optimizer = optimizer_of([0.1])
    state = schedule_of(name, optimizer).state_dict()
    told = schedulers_of(read({"optimizer": optimizer.state_dict(), "scheduler": state}, tmp_path).state)[0]
    kept = {key for key, value in state.items() if value is not None}
    row = next(one for one in SCHEDULES if one.name == name.replace("MultiplicativeLR", "LambdaLR"))
    assert row.keys <= told.fields
    assert told.fields - COMMON >= kept - COMMON
    assert [one.name for one in SCHEDULES if one.marks and one.marks <= told.fields] in ([row.name], [])


@pytest.mark.parametrize("factor", [0.5, 0.999, 1.001, 2.0])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_rate_that_is_a_thousandth_off_its_formula_is_told_with_both(
    name: str, factor: float, tmp_path: Path
) -> None:
    optimizer = optimizer_of([0.1])
    scheduler = schedule_of(name, optimizer)
    for _ in range(2):
        optimizer.step()
        scheduler.step()
    state = scheduler.state_dict()
    right = state["_last_lr"][0]
    state["_last_lr"] = [right * factor]
    found = said(schedule_fits, read({"optimizer": optimizer.state_dict(), "scheduler": state}, tmp_path))
    assert len(found) == 1
    assert found[0].numbers["class"] == name
    assert math.isclose(found[0].numbers["expected"], right, rel_tol=1e-9)
    assert found[0].numbers["recorded"] == right * factor


def test_each_group_is_held_against_its_own_rate(tmp_path: Path) -> None:
    optimizer = optimizer_of([0.1, 0.2])
    scheduler = lr_scheduler.StepLR(optimizer, 2)
    optimizer.step()
    scheduler.step()
    found = {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    assert said(rates_are_the_schedules, read(found, tmp_path)) == []
    found["optimizer"]["param_groups"][1]["lr"] = 0.3
    (told,) = said(rates_are_the_schedules, read(found, tmp_path))
    assert (told.where.group, told.numbers["group_lr"], told.numbers["schedule_lr"]) == (1, 0.3, 0.2)


def test_a_rate_is_not_judged_where_several_schedules_may_set_it(tmp_path: Path) -> None:
    optimizer = optimizer_of([0.1])
    both = [lr_scheduler.StepLR(optimizer, 2), lr_scheduler.ExponentialLR(optimizer, 0.5)]
    for one in both:
        optimizer.step()
        one.step()
    found = {"optimizer": optimizer.state_dict(), "schedulers": [one.state_dict() for one in both]}
    assert [type(one) for one in said(rates_are_the_schedules, read(found, tmp_path))] == [Unjudged]
    assert [type(one) for one in said(schedule_fits, read(found, tmp_path))] == [Unjudged]


def test_two_optimizers_with_a_schedule_each_are_silent(tmp_path: Path) -> None:
    optimizers = [optimizer_of([0.1]), optimizer_of([0.7])]
    schedules = [lr_scheduler.ExponentialLR(one, 0.5) for one in optimizers]
    for one, other in zip(optimizers, schedules, strict=True):
        one.step()
        other.step()
    found = {
        "optimizer_g": optimizers[0].state_dict(),
        "optimizer_d": optimizers[1].state_dict(),
        "scheduler": {"d": schedules[1].state_dict(), "g": schedules[0].state_dict()},
    }
    assert said(rates_are_the_schedules, read(found, tmp_path)) == []


@pytest.mark.parametrize("rule", [rates_are_the_schedules, schedule_fits, saved_within_a_window, steps_are_counted])
def test_a_release_is_not_asked_where_its_training_stood(rule: Any, tmp_path: Path) -> None:
    found = Training("StepLR").go().saved() | {"micro_step": 3, "gradient_accumulation_steps": 4, "global_step": 0}
    found["optimizer"]["param_groups"][0]["lr"] = 7.0
    del found["scheduler"]["gamma"], found["step"]
    checkpoint = read(found, tmp_path)
    assert len(said(rule, checkpoint)) == 1
    assert said(rule, checkpoint, Purpose.RELEASE) == []


MANGLED = ["x", None, [], {}, float("nan"), float("inf"), -1, 10**30, True, torch.ones(3), torch.tensor([])]


@pytest.mark.parametrize("name", CLASSES)
def test_no_field_of_a_schedule_makes_a_rule_raise(name: str, tmp_path: Path) -> None:
    draw = random.Random(name)
    for _ in range(6):
        found = Training(name).go(1).saved()
        state = found["scheduler"]
        held = draw.choice([state, *(state.get("_schedulers") or [])])
        held[draw.choice(list(held))] = draw.choice(MANGLED)
        checkpoint = read(found, tmp_path)
        for rule in (rates_are_the_schedules, schedule_fits):
            assert all(isinstance(one, Evidence | Unjudged) for one in said(rule, checkpoint))


@pytest.mark.parametrize("micro_step", range(9))
def test_a_window_is_open_between_its_ends_alone(micro_step: int, tmp_path: Path) -> None:
    found = Training().go().saved() | {"micro_step": micro_step, "args": {"gradient_accumulation_steps": 4}}
    told = said(saved_within_a_window, read(found, tmp_path))
    assert [one.numbers["lost"] for one in told] == ([micro_step % 4] if micro_step % 4 else [])


LIGHTNING = [
    (batches, updates, [size for size in range(1, batches + 1) if batches // size == updates])
    for batches in range(1, 8)
    for updates in range(1, batches + 1)
]


@pytest.mark.parametrize(("batches", "updates", "sizes"), LIGHTNING)
def test_lightning_is_within_a_window_where_every_size_says_so(
    batches: int, updates: int, sizes: list[int], tmp_path: Path
) -> None:
    checkpoint = explain(read_raw(lightning(batches, updates)(tmp_path)))
    surely = bool(sizes) and all(batches % size for size in sizes)
    assert len(said(saved_within_a_window, checkpoint)) == int(surely)


@pytest.mark.parametrize(("step", "told"), [(0, Severity.WARNING), (2, Severity.INFO), (3, None), (4, None), (9, None)])
def test_more_updates_than_steps_are_told_past_an_off_by_one(step: int, told: Severity | None, tmp_path: Path) -> None:
    found = Training().go(4).saved() | {"global_step": step}
    del found["step"]
    evidence = said(steps_are_counted, read(found, tmp_path))
    severity = [one.severity or steps_are_counted.severity for one in evidence]
    assert severity == ([told] if told else [])
    assert all(one.numbers["updates"] == 4 for one in evidence)


def test_a_step_that_may_count_within_an_epoch_is_no_evidence(tmp_path: Path) -> None:
    found = Training().go(4).saved() | {"step": 1, "epoch": 2}
    assert said(steps_are_counted, read(found, tmp_path)) == []


@pytest.mark.parametrize("sample", ["04_hf_trainer/checkpoint-2", "05_hf_trainer_peft", "06_accelerate_bin",
                                    "07_lightning/pl.ckpt", "10_deepspeed/z0_fp32", "08_dcp/dcp_fsdp2"])  # fmt: skip
def test_real_checkpoints_stand_where_they_should(sample: str) -> None:
    checkpoint = explain(read_raw(CHECKPOINTS / sample))
    for rule in (rates_are_the_schedules, schedule_fits, saved_within_a_window, steps_are_counted):
        assert said(rule, checkpoint) == []
