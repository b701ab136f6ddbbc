"""Parts of a run's checkpoints that are those of an earlier one, names that tell a run, and a newest one not whole."""

import copy
from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.errors import CheckpointError
from ckptcheck.finding import Severity, Verdict
from ckptcheck.readers.reading import read_raw
from tests.check_cases.series import Run, whole, write
from tests.verdict.test_series import codes, reasons


def test_the_weights_of_another_save_are_told_with_both_names(tmp_path: Path) -> None:
    run = Run()
    checkpoints = [run.go() for _ in range(3)]
    write(
        tmp_path, [(2, checkpoints[0]), (4, checkpoints[1]), (6, checkpoints[2] | {"model": checkpoints[0]["model"]})]
    )
    (found,) = [one for one in verbs.check(tmp_path).findings if one.code == "CK106"]
    assert found.message == (
        "all 8 weights of step-6 are byte for byte those of step-2, and updates lie between them: "
        "they were not written anew"
    )
    assert found.evidence == {"earlier": "step-2", "later": "step-6", "weights": 8}


def test_an_old_optimizer_is_not_said_to_be_started_anew(tmp_path: Path) -> None:
    run = Run()
    checkpoints = [run.go() for _ in range(3)]
    write(tmp_path, [(2, checkpoints[0]), (4, checkpoints[1]),
                     (6, checkpoints[2] | {"optimizer": checkpoints[0]["optimizer"]})])  # fmt: skip
    result = verbs.check(tmp_path)
    assert codes(result, "CK106") == [("CK106", Severity.ERROR, "step-6")]
    assert codes(result, "CK505") == []


@pytest.mark.parametrize("moment", [0, -1])
def test_one_byte_makes_it_another_optimizer(moment: int, tmp_path: Path) -> None:
    run = Run()
    checkpoints = [run.go() for _ in range(2)]
    changed = copy.deepcopy(checkpoints[0]["optimizer"])
    changed["state"][7]["exp_avg_sq"][moment] *= 1.5
    write(tmp_path, [(2, checkpoints[0]), (4, checkpoints[1] | {"optimizer": changed})])
    assert "the whole optimizer" not in str([one.message for one in verbs.check(tmp_path).findings])


def test_the_step_that_one_save_gets_wrong_does_not_sort_the_others(tmp_path: Path) -> None:
    run = Run()
    checkpoints = [run.go() for _ in range(4)]
    write(tmp_path, [(2 * place + 2, one) for place, one in enumerate(checkpoints[:3])])
    write(tmp_path, [(8, checkpoints[3] | {"step": 4})])
    messages = [one.message for one in verbs.check(tmp_path).findings if one.code == "CK505"]
    assert messages == ["step-8 records step 4, while step-2, step-4, step-6 record the step of their names"]


NEITHER = [
    ("model_1.pt", "model_2.pt", {"a": 1.0}, {"b": 1.0}),
    ("7.pt", "9.pt", {"a": 1.0, "c": 2.0}, {"b": 1.0, "d": 3.0}),
    ("epoch_1.pt", "best.pt", {"a": 1.0}, {"a": 1.0}),
    ("fold_3.pt", "fold_7.pt", {"a": 1.0}, {"a": 1.0}),
]


@pytest.mark.parametrize(("first", "second", "one", "other"), NEITHER)
def test_files_of_which_nothing_says_that_they_are_one_run_are_not_guessed(
    first: str, second: str, one: object, other: object, tmp_path: Path
) -> None:
    torch.save(one, tmp_path / first)
    torch.save(other, tmp_path / second)
    with pytest.raises(CheckpointError, match="name one of them"):
        read_raw(tmp_path)


@pytest.mark.parametrize("name", ["rl_model_{}_steps.zip", "net_G_{}.pth", "{}.pt", "m_{}.pt", "model_{}.pt"])
def test_numbered_files_that_hold_the_same_are_a_run(name: str, tmp_path: Path) -> None:
    for number in (9, 10):
        torch.save({"a": torch.ones(2), "step": number}, tmp_path / name.format(number))
    assert read_raw(tmp_path).path.name == name.format(10)


def test_an_empty_newest_folder_is_an_error_and_an_empty_older_one_is_not(tmp_path: Path) -> None:
    whole(tmp_path)
    (tmp_path / "step-1").mkdir()
    assert codes(verbs.check(tmp_path), "CK103") == []
    (tmp_path / "step-7").mkdir()
    (tmp_path / "step-8").mkdir()
    assert codes(verbs.check(tmp_path), "CK103") == [
        ("CK103", Severity.ERROR, "step-8"), ("CK103", Severity.WARNING, "step-7")
    ]  # fmt: skip


def test_a_prefix_demands_what_is_asked_and_a_code_of_a_run_demands_a_run(tmp_path: Path) -> None:
    whole(tmp_path)
    assert verbs.check(tmp_path, require=("CK2", "CK106")).parts["required"] == []
    alone = verbs.check(tmp_path / "step-6/model.pt", require=("CK106",))
    assert (alone.verdict, alone.parts["required"]) == (Verdict.FAIL, ["CK106"])
    assert reasons(alone, "CK106") == ["it is asked of a folder of checkpoints of one run"]


def test_checkpoints_too_old_to_be_looked_at_fail_no_prefix_and_their_own_code(tmp_path: Path) -> None:
    run = Run()
    write(tmp_path, [(2 * place + 2, run.go()) for place in range(6)])
    assert reasons(verbs.check(tmp_path), "CK106") == ["the moments of 2 older pairs of checkpoints were not compared"]
    assert verbs.check(tmp_path, require=("CK1",)).parts["required"] == []
    assert verbs.check(tmp_path, require=("CK106",)).parts["required"] == ["CK106"]
