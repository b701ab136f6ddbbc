"""Real trainers, recorded from outside and resumed: the clean resume, and each known trap, gets what was measured."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ckptcheck import verbs
from ckptcheck.finding import Verdict
from tests.frameworks.forked_scripts import Job, Server

PRELOAD = ("torch", "transformers", "lightning", "accelerate")


@dataclass(frozen=True)
class Trainer:
    """A script, and where it leaves the checkpoint of step k below its output folder."""

    script: str
    checkpoint: str
    step: int
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resume:
    """A resumed run: what is removed from its copy of the checkpoint first, and what must come of it.

    `place` is (step, stage) of the first divergence; the verdict is a pass where `cause` is None.
    """

    trainer: Trainer
    name: str
    cause: str | None = None
    place: tuple[int, str] | None = None
    removed: tuple[str, ...] = ()
    arguments: tuple[str, ...] = field(default=())


HF = Trainer("hf_trainer.py", "checkpoint-5", 5)
LIGHTNING = Trainer("lightning_fit.py", "step=5.ckpt", 5, ("--every", "5"))
EPOCH = Trainer("lightning_fit.py", "step=8.ckpt", 8)
DROPOUT = Trainer("lightning_fit.py", "step=8.ckpt", 8, ("--dropout", "0.1"))
ACCELERATE = Trainer("accelerate_loop.py", "step-5", 5)
SHUFFLED = Trainer("accelerate_loop.py", "step-5", 5, ("--shuffle",))
DROPPED = Trainer("accelerate_loop.py", "step-5", 5, ("--dropout", "0.1"))
SEEDABLE = Trainer("accelerate_loop.py", "step-5", 5, ("--shuffle", "--seedable"))

RESUMES = (
    Resume(HF, "the Trainer of transformers goes on exactly from the middle of an epoch"),
    Resume(HF, "without optimizer.pt it loads neither optimizer nor schedule", "CK201", (5, "load"), ("optimizer.pt",)),
    Resume(HF, "without scheduler.pt it loads neither optimizer nor schedule", "CK201", (5, "load"), ("scheduler.pt",)),
    Resume(HF, "without rng_state.pth its dropout differs", "CK603", (5, "load"), ("rng_state.pth",)),
    Resume(LIGHTNING, "Lightning starts the epoch's data again in the middle of an epoch", "CK604", (6, "inputs")),
    Resume(EPOCH, "Lightning goes on exactly at the end of an epoch without dropout"),
    Resume(DROPOUT, "Lightning saves no generator", "CK603", (8, "load")),
    Resume(ACCELERATE, "Accelerate goes on exactly without shuffling and dropout"),
    # The generator differs as well, but it was loaded: the loader draws an epoch's order anew, so that step 6 sees the
    # batch of step 14. To restore the generator once more would not help: what lacks is the place in the data.
    Resume(
        SHUFFLED, "Accelerate's shuffled loader starts another order in the middle of an epoch", "CK604", (6, "inputs")
    ),
    Resume(DROPPED, "Accelerate's loader draws from the generator that dropout draws from", "CK603"),
    Resume(SEEDABLE, "Accelerate's seedable sampler repeats an epoch's order", "CK604", (9, "inputs")),
)
NAMES = {one.name: f"resumed-{place}" for place, one in enumerate(RESUMES)}


def _output(folder: Path, trainer: Trainer) -> Path:
    return folder / "-".join(["reference", Path(trainer.script).stem, *trainer.arguments]).replace(" ", "-")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainers")
    server = Server(folder, PRELOAD)
    try:
        trainers = list(dict.fromkeys(one.trainer for one in RESUMES))
        server.run([
            Job(one.script, ("--output", str(_output(folder, one)), *one.arguments),
                _output(folder, one).with_suffix(".trace"))
            for one in trainers
        ])  # fmt: skip
        server.run([_resumed(folder, one) for one in RESUMES])
    finally:
        server.close()
    return folder


def _resumed(folder: Path, one: Resume) -> Job:
    name = NAMES[one.name]
    saved = _output(folder, one.trainer) / one.trainer.checkpoint
    copy = folder / name / one.trainer.checkpoint
    copy.parent.mkdir()
    if saved.is_dir():
        shutil.copytree(saved, copy)
    else:
        shutil.copy(saved, copy)
    for removed in one.removed:
        (copy / removed).unlink()
    arguments = ("--output", str(folder / name), "--resume", str(copy), *one.trainer.arguments)
    return Job(one.trainer.script, arguments, folder / f"{name}.trace")


@pytest.mark.parametrize("resume", RESUMES, ids=lambda one: one.name.replace(" ", "-"))
def test_a_resumed_trainer_gets_the_verdict_that_was_measured(runs, resume):
    result = verbs.compare(_output(runs, resume.trainer).with_suffix(".trace"), runs / f"{NAMES[resume.name]}.trace")
    told = [(one.code, one.message) for one in result.findings]
    if resume.cause is None:
        assert result.verdict is Verdict.PASS, told
        assert result.compared.steps > 0
        return
    assert (result.verdict, result.cause and result.cause.code) == (Verdict.FAIL, resume.cause), told
    if resume.place is not None:
        assert result.first_divergence is not None
        assert (result.first_divergence.step, result.first_divergence.stage) == resume.place, told
