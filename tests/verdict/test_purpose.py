"""What a checkpoint is judged for, which rules that asks, and what a demanded rule that could not judge means."""

import shutil
from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.errors import UsageError
from ckptcheck.finding import Result, Verdict
from ckptcheck.reports import text
from ckptcheck.reports.page import Page
from tests.check_cases.changing import put, trained
from tests.check_cases.training import Mlp
from tests.samples import CHECKPOINTS

HF = CHECKPOINTS / "04_hf_trainer" / "checkpoint-2"
WEIGHTS = CHECKPOINTS / "02_torch_edge" / "le.pt"


def purpose(result: Result) -> tuple[str, str, str]:
    told = result.parts["purpose"]
    return told["asked"], told["judged_for"], told["reason"]


def made(**parts: object):
    return lambda folder: put(folder, {"model": Mlp().state_dict(), **parts})


SCHEDULE = {"last_epoch": 3, "base_lrs": [0.1], "_last_lr": [0.1]}
SCALER = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3}
AUTO = [
    (lambda folder: put(folder, trained()), "resume", "it holds optimizer state"),
    (lambda folder: HF, "resume", "it holds optimizer state"),
    (lambda folder: WEIGHTS, "release", "it holds weights only"),
    (made(epoch=3), "release", "it holds weights, counters of its training (epoch) and no optimizer; say --for resume"),
    (made(rng={"torch": torch.get_rng_state()}), "resume", "the state of generators"),
    (made(sampler={"seed": 3, "epoch": 1, "index": 7}), "resume", "a position in the data"),
    (made(scheduler=SCHEDULE), "resume", "the state of a schedule"),
    (made(scaler=SCALER), "resume", "the state of a gradient scaler"),
    (made(optimizer=None, scheduler=SCHEDULE), "release", "its optimizer was taken out"),
    (made(optimizer=None, ema=None, epoch=-1), "release", "its optimizer was taken out"),
    (lambda folder: CHECKPOINTS / "01_torch_save" / "sched_seq.pt", "resume", "the state of a schedule"),
    (
        lambda folder: CHECKPOINTS / "07_lightning" / "pl_weightsonly.ckpt",
        "release",
        "it holds weights, counters of its training (epoch, global_step, loops)",
    ),
]


@pytest.mark.parametrize(("make", "judged_for", "why"), AUTO)
def test_what_is_in_a_checkpoint_says_what_it_is_for(make, judged_for, why, tmp_path):
    asked, told, reason = purpose(verbs.check(make(tmp_path)))
    assert (asked, told) == ("auto", judged_for)
    assert why in reason


@pytest.mark.parametrize("asked", ["resume", "release"])
@pytest.mark.parametrize("path", [HF, WEIGHTS])
def test_what_the_user_says_goes_first(path, asked):
    assert purpose(verbs.check(path, purpose=asked)) == (asked, asked, f"--for {asked}")


def test_what_one_purpose_demands_the_other_forbids():
    def errors(path: Path, asked: str) -> set[str]:
        return {one.code for one in verbs.check(path, purpose=asked).findings if one.severity == "error"}

    assert errors(HF, "resume") == set()
    assert errors(HF, "release") == {"CK210"}
    assert errors(WEIGHTS, "resume") == {"CK201"}
    assert errors(WEIGHTS, "release") == set()


def test_another_word_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--for 'training' is no purpose: use auto, resume or release"):
        verbs.check(WEIGHTS, purpose="training")


def told(result: Result) -> str:
    return text.render(result, Page(width=4_000))


def test_the_report_says_what_it_was_judged_for():
    assert "\nJudged for   release, as it holds weights only; say --for resume" in told(verbs.check(WEIGHTS))
    assert told(verbs.check(WEIGHTS)).startswith("PASS  nothing stands against a release; the files are whole\n")
    assert told(verbs.check(HF)).startswith("PASS  nothing is missing for a resume; ")


def test_a_checkpoint_that_cannot_be_read_has_no_purpose(tmp_path):
    path = tmp_path / "cut.pt"
    path.write_bytes(WEIGHTS.read_bytes()[:-100])
    result = verbs.check(path)
    assert (result.parts["purpose"], result.parts["memory"], result.parts["optimizers"]) == (None, None, [])


def test_the_optimizers_say_where_their_names_come_from(tmp_path):
    (row,) = verbs.check(put(tmp_path, trained())).parts["optimizers"]
    assert (row["class"], row["naming"]["source"], row["naming"]["certain"]) == ("AdamW", "param_names", True)
    (row,) = verbs.check(HF).parts["optimizers"]
    assert (row["with_state"], row["naming"]["source"], row["naming"]["certain"]) == (16, "none", False)
    rows = verbs.check(CHECKPOINTS / "07_lightning" / "pl_two_opts.ckpt").parts["optimizers"]
    assert [row["class"] for row in rows] == ["Adam", "SGD"]


def test_what_was_looked_at_is_counted():
    compared = verbs.check(HF).compared
    optimizer = torch.load(HF / "optimizer.pt", weights_only=True)
    assert compared.parameters == 16
    assert compared.state_tensors == sum(len(kept) for kept in optimizer["state"].values())
    assert compared.bytes > 0


def required(path: Path, *codes: str, **options: object) -> tuple[str, list[str]]:
    result = verbs.check(path, require=codes, **options)
    return str(result.verdict), result.parts["required"]


DEMANDED = [
    ((), {}, "pass", []),
    (("CK201", "CK202"), {}, "pass", []),
    (("CK102",), {}, "fail", ["CK102"]),
    (("CK210",), {}, "fail", ["CK210"]),
    (("CK210",), {"purpose": "release", "fail_on": "never"}, "pass", []),
    (("CK205",), {"ignore": ("CK205",)}, "fail", ["CK205"]),
    (("CK204",), {"select": ("CK1",)}, "fail", ["CK204"]),
    (("CK603",), {}, "fail", ["CK603"]),
    (("CK603", "CK201", "CK102"), {}, "fail", ["CK102", "CK603"]),
    (("CK2",), {}, "pass", []),
    (("CK21",), {}, "fail", ["CK210"]),
    (("CK6",), {}, "pass", []),
    (("CK106",), {}, "fail", ["CK106"]),
]


@pytest.mark.parametrize(("codes", "options", "verdict", "missed"), DEMANDED)
def test_a_demanded_rule_that_could_not_judge_fails_the_check(codes, options, verdict, missed):
    assert required(HF, *codes, **options) == (verdict, missed)


def test_a_rule_that_found_something_has_judged(tmp_path):
    folder = Path(shutil.copytree(HF, tmp_path / HF.name))
    (folder / "rng_state.pth").unlink()
    assert required(folder, "CK205", fail_on="never") == ("pass", [])
    assert required(WEIGHTS, "CK205", purpose="resume", fail_on="never") == ("pass", [])


def test_the_report_says_which_demanded_rules_could_not_judge():
    result = verbs.check(HF, require=("CK603", "CK210"))
    assert result.verdict is Verdict.FAIL
    assert result.exit_code == 1
    lines = told(result).splitlines()
    assert lines[0] == "FAIL  demanded and not judged: CK210, CK603"
    assert "Demanded     CK210, CK603 could not be judged: see below" in lines
    assert any("CK210: it is judged as a resume: no rule of that asks it" in line for line in lines)


def test_the_finding_that_fails_goes_before_what_was_demanded(tmp_path):
    result = verbs.check(WEIGHTS, purpose="resume", require=("CK603",))
    assert told(result).startswith("FAIL  optimizer state absent (CK201)\n")


NEITHER = "it holds neither weights nor optimizer state: its files alone are judged"


def test_what_is_good_for_nothing_is_judged_by_its_files_alone(tmp_path):
    result = verbs.check(HF / "rng_state.pth")
    assert (result.verdict, result.parts["purpose"]) == (
        Verdict.PASS, {"asked": "auto", "judged_for": None, "reason": NEITHER}
    )  # fmt: skip
    (tmp_path / "trainer_state.json").write_text('{"global_step": 3}')
    empty = verbs.check(tmp_path)
    assert (empty.verdict, empty.findings) == (Verdict.INCONCLUSIVE, ())
    assert text.render(empty, Page(width=80)).startswith("INCONCLUSIVE")


def test_a_demanded_rule_is_not_judged_where_the_files_alone_are():
    assert required(HF / "rng_state.pth", "CK202", "CK501") == ("fail", ["CK202", "CK501"])
    assert required(HF / "rng_state.pth", "CK102") == ("pass", [])


@pytest.mark.parametrize("asked", ["resume", "release"])
def test_an_optimizer_alone_is_a_part_unless_somebody_asks_for_the_whole(asked):
    assert "CK309" not in {one.code for one in verbs.check(HF / "optimizer.pt").findings}
    result = verbs.check(HF / "optimizer.pt", purpose=asked)
    assert "CK309" in {one.code for one in result.findings}
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize("select", ["CK202", "CK210", "CK401", "CK4"])
def test_a_check_in_which_no_rule_was_asked_is_no_pass(select, tmp_path):
    """Weights alone are no resume, a resume is no release, and no contract was given."""
    path = WEIGHTS if select == "CK202" else put(tmp_path, trained())
    assert verbs.check(path, select=(select,)).verdict is Verdict.INCONCLUSIVE


def test_a_part_without_weights_is_not_said_to_be_all_that_a_resume_needs():
    headline = told(verbs.check(HF / "optimizer.pt")).splitlines()[0]
    assert headline.startswith("PASS  a part of a checkpoint: there are no weights in it; nothing is wrong with what")
    assert "a part of" not in told(verbs.check(HF)).splitlines()[0]


def test_two_models_beside_one_optimizer_are_weights(tmp_path):
    state = trained()
    models = {"generator": state.pop("model"), "discriminator": Mlp().state_dict()}
    result = verbs.check(put(tmp_path, state | models))
    assert result.compared.parameters > 0
    assert "a part of" not in told(result).splitlines()[0]
