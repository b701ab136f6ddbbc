"""What two runs save later, held against each other: real files, what equal runs differ in left out."""

import random

import pytest
import torch

from ckptcheck.experiment.commands.later import SavedTwice
from ckptcheck.finding import Severity
from ckptcheck.rules.runs.later import Later
from ckptcheck.verdict.scripts.saved_later import Sides, compared_later, judged_later, saved_part, why_not

WEIGHTS = {"0.weight": torch.arange(6.0).reshape(2, 3), "0.bias": torch.ones(2)}
STEPPED = {"step": torch.tensor(10.0), "exp_avg": torch.ones(2, 3), "exp_avg_sq": torch.ones(2, 3)}


def training(moment: float = 1.0) -> dict[str, object]:
    groups = [{"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "params": [0]}]
    state = {0: {**STEPPED, "exp_avg": torch.full((2, 3), moment)}}
    return {"model": {"0.weight": WEIGHTS["0.weight"] * moment}, "optimizer": {"state": state, "param_groups": groups}}


def saved(**more: object) -> dict[str, object]:
    return {**training(), "step": 10, **more}


def shifted(amount: float) -> dict[str, torch.Tensor]:
    return {name: one + amount for name, one in WEIGHTS.items()}


def generator(seed: int) -> torch.Tensor:
    return torch.Generator().manual_seed(seed).get_state()


ERROR, WARNING = Severity.ERROR, Severity.WARNING
ROWS = [
    ("nothing", saved(), saved(), saved(), set()),
    ("a buffer of inputs", saved(replay=WEIGHTS), saved(replay=shifted(0.5)), saved(replay=WEIGHTS),
     {("CK610", ERROR)}),
    ("an average", saved(ema=WEIGHTS), saved(ema=shifted(0.5)), saved(ema=WEIGHTS), {("CK208", WARNING)}),
    ("what is missing", saved(replay=WEIGHTS), saved(), saved(replay=WEIGHTS), {("CK610", ERROR)}),
    ("counts in a tensor", saved(seen=torch.tensor([1, 2])), saved(seen=torch.tensor([0, 2])),
     saved(seen=torch.tensor([1, 2])), {("CK610", ERROR)}),
    ("what equal runs differ in", saved(times=shifted(1)), saved(times=shifted(2)), saved(times=shifted(3)), set()),
    ("arguments and scores", saved(args={"resume": None}, best=0.5), saved(args={"resume": "5.pt"}, best=1e9),
     saved(args={"resume": None}, best=0.5), {("CK610", WARNING)}),
    ("a score in a tensor", saved(best=torch.tensor(0.5)), saved(best=torch.tensor(0.75)),
     saved(best=torch.tensor(0.5)), {("CK610", WARNING)}),
    ("a log that begins anew", saved(losses=torch.arange(10.0)), saved(losses=torch.arange(5.0, 10.0)),
     saved(losses=torch.arange(10.0)), {("CK610", WARNING)}),
    ("torch's generator", saved(rng=generator(1)), saved(rng=generator(2)), saved(rng=generator(1)),
     {("CK603", WARNING)}),
    ("a generator under any name", saved(loader={"at": generator(1)}), saved(loader={"at": generator(2)}),
     saved(loader={"at": generator(1)}), {("CK603", WARNING)}),
    ("python's generator", saved(py=random.Random(1).getstate()), saved(py=random.Random(2).getstate()),
     saved(py=random.Random(1).getstate()), {("CK603", WARNING)}),
    ("other state of an optimizer at the same step", saved(), {**training(2.0), "step": 10}, saved(),
     {("CK610", ERROR)}),
    ("another step", saved(), {**training(2.0), "step": 9}, saved(), "different moments"),
    ("weights alone", WEIGHTS, shifted(0.5), WEIGHTS, {("CK610", ERROR)}),
]  # fmt: skip


def later(place, left, right, repeat) -> Later:
    folders = [place / name for name in ("left", "right", "repeat")]
    for folder, content in zip(folders, (left, right, repeat), strict=True):
        folder.mkdir()
        if content is not None:
            torch.save(content, folder / "c.pt")
    sides = Sides(folders[0], folders[1], (folders[2],) if repeat is not None else ())
    return compared_later([SavedTwice("c.pt", 10)], sides)[0]


@pytest.mark.parametrize(("left", "right", "repeat", "told"), [one[1:] for one in ROWS], ids=[one[0] for one in ROWS])
def test_what_is_saved_otherwise_is_judged_by_what_it_is(tmp_path, left, right, repeat, told):
    one = later(tmp_path, left, right, repeat)
    judged = judged_later([one], ("CK",), ())
    if isinstance(told, str):
        assert told in one.reason
        assert (judged.findings, judged.cause) == ((), None)
        assert one.reason in why_not([one], 5)
        return
    assert one.reason == ""
    assert {(finding.code, finding.severity) for finding in judged.findings} == told
    fails = {code for code, severity in told if severity is ERROR or code == "CK208"}
    assert ({judged.cause.code} if judged.cause else set()) == fails
    for finding in judged.findings:
        assert bool(finding.evidence.get("without_effect")) == (not fails)
        assert (finding.where.path, finding.where.step, finding.where.stage) == ("c.pt", 10, "extra")


def test_the_message_says_what_differs_where_and_how_far(tmp_path):
    left = saved(replay=WEIGHTS)
    judged = judged_later([later(tmp_path, left, saved(replay=shifted(0.5)), left)], ("CK",), ())
    (finding,) = judged.findings
    norm = (6 * 0.5**2 / sum(one**2 for one in range(6))) ** 0.5
    assert finding.message == (
        "what the script saves at step 10 (c.pt) differs in replay.0.weight, replay.0.bias (2 tensors; the first by "
        f"max abs 0.5, rel L2 {norm:.7g}): the resumed run did not restore it"
    )
    assert (finding.evidence["tensors"], finding.evidence["max_abs"]) == (2, 0.5)


def test_of_two_steps_the_first_is_told_and_codes_can_be_left_out(tmp_path):
    left, right = saved(replay=WEIGHTS), saved(replay=shifted(0.5))
    one = later(tmp_path, left, right, left)
    earlier = Later(SavedTwice("b.pt", 7), one.rows)
    judged = judged_later([one, earlier], ("CK",), ())
    assert [(finding.where.path, finding.where.step) for finding in judged.findings] == [("b.pt", 7)]
    assert judged_later([one], ("CK",), ("CK610",)).cause is None
    assert [row["tensors"] for row in saved_part([one, earlier])] == [2, 2]


UNJUDGED = [
    ("without an equal run", saved(), saved(), None, "no equal run saved it"),
    ("where the equal run saved nothing", saved(best=1), saved(best=2), "gone", "cannot be read"),
]


@pytest.mark.parametrize(
    ("left", "right", "repeat", "why"), [one[1:] for one in UNJUDGED], ids=[u[0] for u in UNJUDGED]
)
def test_what_cannot_be_judged_is_no_failure_and_says_why(tmp_path, left, right, repeat, why):
    if repeat == "gone":
        one = later(tmp_path, left, right, saved())
        (tmp_path / "repeat" / "c.pt").unlink()
        sides = Sides(tmp_path / "left", tmp_path / "right", (tmp_path / "repeat",))
        (one,) = compared_later([SavedTwice("c.pt", 10)], sides)
    else:
        one = later(tmp_path, left, right, repeat)
    assert why in one.reason
    assert judged_later([one], ("CK",), ()).findings == ()
    assert why in why_not([one], 5)


def test_a_torn_file_is_no_failure(tmp_path):
    one = later(tmp_path, saved(), saved(), saved())
    whole = (tmp_path / "right" / "c.pt").read_bytes()
    (tmp_path / "right" / "c.pt").write_bytes(whole[: len(whole) // 2])
    sides = Sides(*(tmp_path / name for name in ("left", "right")), (tmp_path / "repeat",))
    (torn,) = compared_later([one.saved], sides)
    assert "cannot be read" in torn.reason


def test_where_nothing_was_saved_later_that_is_said():
    assert why_not([], 5) == (
        "nothing was saved after step 5 by both runs: what only the checkpoint holds was not compared"
    )
