"""What is judged otherwise of scripts: generators that are drawn from in vain, and rates that a script sets itself."""

from dataclasses import replace

import torch

from ckptcheck.comparison.drawing import idle_generators, without_generators
from ckptcheck.finding import Severity
from ckptcheck.rules.runs.judge import judge
from tests.rules.runs.test_resume import dropout, in_every_group, starts_later
from tests.rules.trainings import Batches, Training, factory


def as_script(found):
    """The judgement of the same runs, had two commands made them."""
    case = found.case
    idle = idle_generators(case.trajectory, found.reference, found.resumed.trace)
    trajectory = without_generators(case.trajectory, idle)
    return judge(replace(case, commands=True, trajectory=trajectory, idle_generators=idle))


def elsewhere(self: Training) -> None:
    torch.manual_seed(0)


def draws_in_vain(self: Training, s: int):
    torch.rand(1)
    return Training.step(self, s)


def rate_by_count(self: Training, s: int):
    self.made += 1
    for group in self.optimizers[0].param_groups:
        group["lr"] = 0.01 * self.made
    return Training.step(self, s)


def test_a_generator_that_is_drawn_from_in_vain_is_a_warning(trial):
    found = trial(factory(step=draws_in_vain, after_load=elsewhere))
    assert found.code == "CK603"  # of a target, whose generators are seen straight after its load
    judged = as_script(found)
    assert judged.cause is None
    (told,) = (one for one in judged.findings if one.code == "CK603")
    assert (told.severity, told.evidence["entries"], told.evidence["without_effect"]) == (
        Severity.WARNING,
        ["torch"],
        True,
    )
    assert "differs from the start of step 4 on, and nothing drawn from there reached inputs" in told.message


def test_a_generator_that_dropout_draws_from_is_the_cause(trial):
    judged = as_script(trial(factory(make_model=dropout, after_load=elsewhere)))
    assert (judged.cause.code, judged.place.step, judged.place.stage) == ("CK603", 3, "load")
    assert judged.cause.confidence == "likely", "a script may have restored it and drawn from it before its first step"
    (found,) = [one for one in judged.findings if one.code == "CK603"]
    assert "batches are others" not in found.message  # every run saw the same ones


def test_an_old_batch_beside_a_generator_elsewhere_is_a_lost_place_in_the_data(trial):
    def begin_again(self: Training) -> None:
        elsewhere(self)
        self.data = Batches()  # another object than the declared one: nothing tells its place, as in a script

    judged = as_script(trial(factory(step=draws_in_vain, after_load=begin_again)))
    assert (judged.cause.code, judged.place.step, judged.place.stage) == ("CK604", 4, "inputs")
    assert "step 4 saw the batch of step 1; the torch generator differs too (CK603)" in judged.findings[0].message
    assert judged.findings[0].evidence["generators"] == ["torch"]


def test_a_rate_of_another_step_that_a_script_sets_is_a_lost_place_in_the_schedule(trial):
    found = trial(factory(finish=starts_later, step=rate_by_count, after_load=in_every_group(lr=0.01)))
    judged = as_script(found)
    assert (judged.cause.code, judged.place.step, judged.place.stage) == ("CK602", 4, "hyperparameters")
    assert judged.findings[0].message.endswith("which is the rate of step 1")
    assert "CK306" not in {one.code for one in judged.findings}


def test_a_rate_that_no_step_had_is_not(trial):
    judged = as_script(trial(factory(after_load=in_every_group(lr=0.5))))
    assert judged.cause.code == "CK306"
