"""A folder of the checkpoints of one run: each is told, and held against the one before it."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.comparison.series import Described, Stale, describe, stale_moments
from ckptcheck.conventions.explaining import explain
from ckptcheck.errors import CheckpointError
from ckptcheck.finding import Finding, Result, Severity, Verdict
from ckptcheck.readers.reading import read_raw
from ckptcheck.reports import text
from ckptcheck.reports.page import Page
from ckptcheck.rules.rule import Evidence, Unjudged
from ckptcheck.rules.series.content import model_keeps_its_keys, optimizer_stays
from ckptcheck.rules.series.counters import counters_rise, schedule_rises
from ckptcheck.rules.series.newest import newest_is_taken
from ckptcheck.rules.series.series import Member, Series
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.verdict.series import MAX_READ
from tests.check_cases.series import Run, whole, write
from tests.samples import CHECKPOINTS


def codes(result: Result, *wanted: str) -> list[tuple[str, Severity, str | None]]:
    return [(one.code, one.severity, one.where.path) for one in result.findings if one.code in wanted]


def reasons(result: Result, code: str) -> list[str]:
    return [one.reason for one in result.not_judged if one.code == code]


def test_every_checkpoint_of_a_real_run_is_told(tmp_path: Path) -> None:
    run = CHECKPOINTS / "04_hf_trainer"
    result = verbs.check(run)
    assert result.verdict is Verdict.PASS
    assert result.parts["series"] == [
        {
            "path": str(run / f"checkpoint-{step}"),
            "step": step,
            "counters": {"updates": float(step), "schedule": step},
            "parameters": 16,
            "bytes": sum(file.stat().st_size for file in (run / f"checkpoint-{step}").iterdir()),
            "checked": step == 4,
            "damage": [],
            "not_read": None,
        }
        for step in (2, 4)
    ]


def test_one_checkpoint_that_is_named_is_no_series() -> None:
    assert "series" not in verbs.check(CHECKPOINTS / "04_hf_trainer/checkpoint-2").parts
    assert "series" not in verbs.check(CHECKPOINTS / "05_hf_trainer_peft").parts


def test_files_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    run = Run()
    write(tmp_path, [(number, run.go(1)) for number in (8, 9, 10)], "epoch_{}.pt")
    result = verbs.check(tmp_path)
    rows: Any = result.parts["series"]
    assert [(Path(one["path"]).name, one["step"]) for one in rows] == [
        ("epoch_8.pt", 1), ("epoch_9.pt", 2), ("epoch_10.pt", 3),
    ]  # fmt: skip
    assert result.parts["path"] == str(tmp_path / "epoch_10.pt")


LOOSE = [
    (("epoch=1-step=9.ckpt", "epoch=1-step=10.ckpt"), "epoch=1-step=10.ckpt"),
    (("model_0000999.pth", "model_0001999.pth"), "model_0001999.pth"),
    (("ckpt_9.pt", "ckpt_10.pt"), "ckpt_10.pt"),
    (("val_loss=0.9-epoch=2.ckpt", "val_loss=0.1-epoch=3.ckpt"), "val_loss=0.1-epoch=3.ckpt"),
]
AMBIGUOUS = [
    ("epoch_1.pt", "best.pt"),
    ("model_1.pt", "model_2.pt"),
    ("gen1.pt", "gen2.pt"),
    ("epoch=1-v1.ckpt", "epoch=1-v2.ckpt"),
]


@pytest.mark.parametrize(("files", "newest"), LOOSE, ids=str)
def test_of_numbered_files_the_highest_is_taken(files: tuple[str, ...], newest: str, tmp_path: Path) -> None:
    write(tmp_path, [(0, {"w": torch.ones(2)})], files[0])
    write(tmp_path, [(0, {"w": torch.ones(2)})], files[1])
    assert read_raw(tmp_path).path.name == newest


@pytest.mark.parametrize("files", AMBIGUOUS, ids="+".join)
def test_files_that_are_not_told_apart_by_a_step_are_not_guessed(files: tuple[str, ...], tmp_path: Path) -> None:
    for name in files:
        write(tmp_path, [(0, {"w": torch.ones(2)})], name)
    with pytest.raises(CheckpointError, match="name one of them"):
        read_raw(tmp_path)


def test_a_long_run_is_read_from_its_end_and_the_rest_is_said(tmp_path: Path) -> None:
    run = Run()
    first = run.go(1)
    write(tmp_path, [(number, first | {"step": number}) for number in range(1, MAX_READ + 4)], "step-{}/model.pt")
    result = verbs.check(tmp_path, select=["CK101", "CK106", "CK505"])
    rows: Any = result.parts["series"]
    assert [one["step"] for one in rows] == [*range(4, MAX_READ + 4)]
    assert result.parts["older_not_read"] == 3
    assert reasons(result, "CK101") == ["3 older checkpoints of this run were not read"]
    assert reasons(result, "CK106") == ["no moments of two successive checkpoints were compared"]


def test_moments_of_the_newest_alone_are_compared(tmp_path: Path) -> None:
    run = Run()
    checkpoints = [(number, run.go(1)) for number in range(1, 8)]
    for place in (2, 6):
        for index, state in checkpoints[place][1]["optimizer"]["state"].items():
            before = checkpoints[place - 1][1]["optimizer"]["state"][index]
            state["exp_avg"], state["exp_avg_sq"] = before["exp_avg"], before["exp_avg_sq"]
    write(tmp_path, checkpoints)
    result = verbs.check(tmp_path)
    assert codes(result, "CK106") == [("CK106", Severity.WARNING, "step-7")]
    assert reasons(result, "CK106") == ["the moments of 3 older pairs of checkpoints were not compared"]


def loaded(path: Path) -> Checkpoint:
    return explain(read_raw(path))


def large(folder: Path, name: str, seed: int, step: int = 1) -> Checkpoint:
    """Moments of 4 MiB each."""
    generator = torch.Generator().manual_seed(seed)
    moments = {key: torch.rand(1 << 20, generator=generator) for key in ("exp_avg", "exp_avg_sq")}
    group = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "params": [0]}
    optimizer = {"state": {0: {"step": torch.tensor(float(step)), **moments}}, "param_groups": [group]}
    torch.save({"model": {"w": torch.ones(1 << 20)}, "optimizer": optimizer, "step": step}, folder / name)
    return loaded(folder / name)


def test_healthy_moments_are_told_by_their_first_bytes(tmp_path: Path) -> None:
    left, right = large(tmp_path, "a.pt", 0), large(tmp_path, "b.pt", 1, 2)
    assert stale_moments(left, right, max_bytes=8193) == Stale(1, ())


def test_equal_moments_are_read_to_their_end(tmp_path: Path) -> None:
    left, right = large(tmp_path, "a.pt", 0), large(tmp_path, "b.pt", 0, 2)
    assert stale_moments(left, right) == Stale(1, ("w",))
    content = bytearray((tmp_path / "b.pt").read_bytes())
    place = content.find(torch.rand(1 << 20, generator=torch.Generator().manual_seed(0)).numpy().tobytes())
    content[place + (4 << 20) - 1] ^= 1
    (tmp_path / "b.pt").write_bytes(content)
    assert stale_moments(left, loaded(tmp_path / "b.pt")) == Stale(1, ())


def test_without_an_update_between_nothing_is_stale(tmp_path: Path) -> None:
    assert stale_moments(large(tmp_path, "a.pt", 0), large(tmp_path, "b.pt", 0)) is None


def test_what_is_beyond_the_bound_is_counted(tmp_path: Path) -> None:
    whole(tmp_path)
    sides = [loaded(tmp_path / f"step-{step}/model.pt") for step in (2, 4)]
    assert stale_moments(sides[0], sides[1], max_bytes=1) == Stale(1, (), unread=7)


def described(
    step: int | None = None,
    updates: float | None = None,
    schedule: int | None = None,
    *,
    optimizer: bool = True,
    parameters: dict[str, tuple[int, ...]] | None = None,
    convention: str = "plain",
) -> Described:
    return Described(
        convention, step, "", step is not None, {} if updates is None else {"0/w": updates}, schedule,
        {"w": (2, 3), "b": (3,)} if parameters is None else parameters, 36, 400, optimizer,
    )  # fmt: skip


def series(*given: Described, numbers: list[int] | None = None, chosen: int = -1, tracker: str = "",
           written: list[float] | None = None) -> Series:  # fmt: skip
    numbers = numbers or [*range(1, len(given) + 1)]
    members = [
        Member(f"step-{number}", number, written[place] if written else float(place), False, one)
        for place, (number, one) in enumerate(zip(numbers, given, strict=True))
    ]
    members[chosen] = replace(members[chosen], chosen=True)
    return Series(Path("run"), tuple(members), tracker=tracker)


def told(rule: Any, subject: Series) -> list[tuple[str | None, Severity]]:
    return [(one.where.path, one.severity) for one in rule.judge(subject) if isinstance(one, Finding)]


E, W = Severity.ERROR, Severity.WARNING
COUNTERS: dict[str, tuple[list[tuple[int | None, float | None]], list[tuple[str, Severity]]]] = {
    "as the steps": ([(5, 5), (10, 10), (15, 15)], []),
    "some skipped by a scaler": ([(5, 5), (10, 8), (15, 13)], []),
    "several updates a step": ([(5, 10), (10, 20), (15, 30)], []),
    "one rest": ([(5, 5), (10, 5)], [("step-2", E)]),
    "a rest that is no restart": ([(5, 4), (10, 4)], []),
    "fallen": ([(5, 5), (10, 10), (15, 2)], [("step-3", E)]),
    "fallen by one": ([(5, 4), (10, 3)], [("step-2", E)]),
    "restarted and passed": ([(5, 5), (20, 15), (30, 25)], [("step-2", E)]),
    "restarted after the second": ([(5, 5), (10, 10), (15, 5)], [("step-3", E)]),
    "by names only": ([(None, 5), (None, 10), (None, 2)], [("step-3", W)]),
    "none counted": ([(5, None), (10, None)], []),
    "the first before any step": ([(0, None), (5, 5), (10, 10)], []),
}


@pytest.mark.parametrize(("rows", "expected"), COUNTERS.values(), ids=COUNTERS)
def test_update_counters_rise_with_the_steps(rows: Any, expected: Any) -> None:
    subject = series(*(described(step, updates) for step, updates in rows), numbers=None)
    assert told(counters_rise, subject) == expected


def test_the_steps_decide_what_is_later_and_not_the_names() -> None:
    turning = series(described(40, 40), described(50, 50), described(30, 30), numbers=[0, 1, 2])
    assert [one.name for one, _ in turning.readable] == ["step-2", "step-0", "step-1"]
    assert told(counters_rise, turning) == []


def test_a_fallen_counter_names_both_and_the_numbers() -> None:
    (one,) = counters_rise.check(series(described(5, 5), described(10, 9), described(15, 8)))
    assert isinstance(one, Evidence)
    assert (one.where.path, one.where.parameter, one.where.optimizer) == ("step-3", "w", 0)
    assert "is 9 in step-2 and 8 in step-3" in one.message
    assert (one.numbers["earlier_updates"], one.numbers["later_updates"]) == (9, 8)


def test_names_that_are_steps_but_for_one_are_told() -> None:
    named = series(*(described(step) for step in (10, 20, 25)), numbers=[10, 20, 30])
    assert told(counters_rise, named) == [("step-30", W)]
    assert told(counters_rise, series(*(described(step) for step in (7, 14, 21)), numbers=[1, 2, 3])) == []


SCHEDULES: dict[str, tuple[list[tuple[int | None, int | None]], list[tuple[str, Severity]]]] = {
    "as the steps": ([(5, 5), (10, 10)], []),
    "epochs": ([(5, 1), (10, 2), (15, 2)], []),
    "back": ([(5, 4), (10, 3)], [("step-2", W)]),
    "anew": ([(5, 5), (10, 5)], [("step-2", W)]),
    "anew and beyond": ([(5, 5), (20, 15)], [("step-2", W)]),
    "none": ([(5, None), (10, None)], []),
    "gone": ([(5, 5), (10, None)], []),
    "by names only": ([(None, 5), (None, 3)], []),
}


@pytest.mark.parametrize(("rows", "expected"), SCHEDULES.values(), ids=SCHEDULES)
def test_a_schedule_goes_on_with_the_steps(rows: Any, expected: Any) -> None:
    subject = series(*(described(step, None, position) for step, position in rows))
    assert told(schedule_rises, subject) == expected


BASE = {"w": (2, 3), "b": (3,), "c": (4,)}
KEYS: dict[str, tuple[dict[str, tuple[int, ...]], list[str]]] = {
    "the same": (BASE, []),
    "one more": (BASE | {"lora.adapter_1": (2, 2)}, ["lora.adapter_1"]),
    "one less": ({"w": (2, 3), "b": (3,)}, ["c"]),
    "another shape": (BASE | {"c": (5,)}, ["c"]),
}


@pytest.mark.parametrize(("parameters", "parameter"), KEYS.values(), ids=KEYS)
def test_the_models_keys_stay(parameters: Any, parameter: list[str]) -> None:
    found = list(model_keeps_its_keys.check(series(described(1, parameters=BASE), described(2, parameters=parameters))))
    assert [one.where.parameter for one in found if isinstance(one, Evidence)] == parameter


OTHERS: list[dict[str, Any]] = [
    {"parameters": {"x": (1,), "y": (1,)}},
    {
        "parameters": {"w": (2, 3), "x": (1,), "y": (1,), "z": (1,), "u": (1,)},
        "of": {"w": (2, 3), "p": (1,), "q": (1,)},
    },
    {"convention": "lightning"},
]


@pytest.mark.parametrize("other", OTHERS)
def test_checkpoints_of_another_model_or_writer_are_not_held_against_each_other(other: Any) -> None:
    mine = {"parameters": other["of"]} if "of" in other else {}
    mixed = series(described(1, 9, **mine), described(2, 1, **{key: one for key, one in other.items() if key != "of"}))
    assert [type(one) for one in model_keeps_its_keys.check(mixed)] == [Unjudged]
    assert told(counters_rise, mixed) == []


@pytest.mark.parametrize(("held", "expected"), [("111", []), ("110", []), ("100", ["step-2"]), ("000", []),
                                                ("011", []), ("1100", ["step-3"])])  # fmt: skip
def test_an_optimizer_that_is_gone_for_good_is_told_unless_the_last_alone_lacks_it(held: str, expected: Any) -> None:
    subject = series(*(described(place, optimizer=one == "1") for place, one in enumerate(held)))
    assert told(optimizer_stays, subject) == [(one, Severity.INFO) for one in expected]


def test_a_tracker_that_names_an_older_one_is_told() -> None:
    three = [described(step) for step in (1, 2, 3)]
    assert told(newest_is_taken, series(*three, chosen=2, tracker="latest")) == []
    assert told(newest_is_taken, series(*three, chosen=1, tracker="latest")) == [("latest", W)]
    assert told(newest_is_taken, series(*three, chosen=1)) == []


@pytest.mark.parametrize(("written", "expected"), [([0.0, 100.0, 200.0], []), ([400.0, 300.0, 350.0], []),
                                                   ([0.0, 7400.0, 100.0], [("step-3", Severity.INFO)])])  # fmt: skip
def test_times_within_a_minute_tell_no_order(written: list[float], expected: Any) -> None:
    subject = series(*(described(step) for step in (1, 2, 3)), written=written)
    assert told(newest_is_taken, subject) == expected


def test_a_damaged_one_is_a_warning_beside_the_chosen_and_an_error_as_the_chosen(tmp_path: Path) -> None:
    whole(tmp_path)
    (tmp_path / "step-2/model.pt").write_bytes((tmp_path / "step-2/model.pt").read_bytes()[:-400])
    result = verbs.check(tmp_path)
    assert (result.verdict, codes(result, "CK101")) == (Verdict.PASS, [("CK101", Severity.WARNING, "step-2")])
    (tmp_path / "step-6/model.pt").write_bytes((tmp_path / "step-6/model.pt").read_bytes()[:-400])
    result = verbs.check(tmp_path)
    assert result.verdict is Verdict.FAIL
    assert [one for one in codes(result, "CK101") if one[1] is Severity.ERROR] == [("CK101", Severity.ERROR, None)]


def test_a_half_save_that_was_passed_over_is_a_finding(tmp_path: Path) -> None:
    run = Path(shutil.copytree(CHECKPOINTS / "04_hf_trainer", tmp_path / "run"))
    (run / "checkpoint-4/trainer_state.json").unlink()
    result = verbs.check(run)
    assert codes(result, "CK103") == [("CK103", Severity.ERROR, "checkpoint-4")]
    assert text.render(result, Page(width=200)).startswith(
        "FAIL  incomplete save (CK103); the newest, checkpoint-4, is not whole: checkpoint-2 was judged\n"
    )


def test_something_else_among_the_checkpoints_is_not_judged(tmp_path: Path) -> None:
    whole(tmp_path)
    (tmp_path / "step-1").mkdir()
    shutil.copy(CHECKPOINTS / "03_reject/torchscript.pt", tmp_path / "step-1/model.pt")
    assert any(one.startswith("step-1, another checkpoint") for one in reasons(verbs.check(tmp_path), "CK101"))


def test_rules_over_a_series_are_selected_as_others(tmp_path: Path) -> None:
    run = Run()
    first = run.go()
    write(tmp_path, [(2, first), (4, run.go() | {"optimizer": first["optimizer"]})])
    assert codes(verbs.check(tmp_path), "CK106") == [("CK106", Severity.ERROR, "step-4")]
    assert not codes(verbs.check(tmp_path, ignore=["CK106"]), "CK106")
    assert verbs.check(tmp_path, ignore=["CK106"]).verdict is Verdict.PASS


def test_a_link_among_the_checkpoints_is_not_followed_out_of_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    whole(run)
    shutil.copytree(run / "step-6", tmp_path / "elsewhere")
    (run / "step-8").symlink_to("../elsewhere")
    rows: Any = verbs.check(run).parts["series"]
    assert [Path(one["path"]).name for one in rows] == ["step-2", "step-4", "step-6"]


def test_the_time_of_a_folder_is_that_of_its_latest_file(tmp_path: Path) -> None:
    whole(tmp_path)
    for place, step in enumerate((6, 4, 2)):
        os.utime(tmp_path / f"step-{step}/model.pt", (1e9 + 7200 * place,) * 2)
    result = verbs.check(tmp_path)
    assert codes(result, "CK612") == [("CK612", Severity.INFO, "step-6")]
    assert "4.0 hours later" in next(one.message for one in result.findings if one.code == "CK612")


@pytest.mark.parametrize("sample", ["07_lightning/pl.ckpt", "06_accelerate_bin", "10_deepspeed/z0_fp32", "11_nanogpt"])
def test_a_description_holds_what_a_real_checkpoint_says(sample: str) -> None:
    checkpoint = loaded(CHECKPOINTS / sample)
    one = describe(checkpoint)
    assert one.nbytes == checkpoint.raw.nbytes
    assert one.parameters.keys() == checkpoint.state.parameters.keys() | checkpoint.state.buffers.keys()
    assert one.with_optimizer
    assert one.most_updates is not None
