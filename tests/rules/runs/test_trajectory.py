"""CK606 to CK614: what the steps say where the load explains nothing, and what equal runs say."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from ckptcheck.rules.runs.judge import judge
from tests.rules.faults import Fault
from tests.rules.trainings import Net, Training, factory
from tests.rules.trials import Trials


def starts_later(self: Training) -> None:
    self.made = 0


def scaled_by_count(self: Training, s: int) -> torch.Tensor:
    self.made += 1
    inputs, targets = self.data.next()
    return functional.mse_loss(self.model(inputs), targets) * (1 + self.made / 10)


def plain_loss_of_a_scaled_backward(self: Training, s: int) -> Any:
    """The loss that is returned is right; what is differentiated is not."""
    self.made += 1
    self.optimizers[0].zero_grad()
    loss = self.loss_of(s)
    loss.backward()
    for one in self.model.parameters():
        one.grad.mul_(1 + self.made / 10)
    self.update()
    return loss


class HiddenDecay(torch.optim.SGD):
    """Decays by a count of its own steps that its state_dict does not hold."""

    calls = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step()
        self.calls += 1
        for group in self.param_groups:
            for one in group["params"]:
                one.mul_(1 - 0.01 / self.calls)


class HiddenState(torch.optim.Optimizer):
    """Its momentum warms up by a count of its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self.calls = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.calls += 1
        for one in self.param_groups[0]["params"]:
            state = self.state[one]
            state["mean"] = one.grad + state.get("mean", 0) * min(0.9, self.calls / 10)
            one.sub_(0.05 * state["mean"])


def hidden(kind: type[torch.optim.Optimizer], **values: Any) -> Any:
    return lambda self: [kind(self.model.parameters(), **values)]


class Drifting:
    """An object whose state_dict is right at the load and follows the process afterwards."""

    def __init__(self) -> None:
        self.calls = 0
        self.kept = 0

    def state_dict(self) -> dict[str, Any]:
        return {"phase": self.calls // 4}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = 4 * state["phase"]


def drifting(self: Training) -> None:
    self.extra = {"phases": Drifting()}


def drift(self: Training) -> None:
    self.extra["phases"].calls += 1
    Training.update(self)


def moved_by_hand(self: Training, s: int) -> Any:
    loss = Training.step(self, s)
    self.made += 1
    if self.made == 2:
        with torch.no_grad():
            self.model.head.bias.add_(1)
    return loss


def raises_in_its_second_step(self: Training, s: int) -> torch.Tensor:
    self.made += 1
    if self.made == 2 and s > 3:
        raise RuntimeError("no such batch")
    return Training.loss_of(self, s)


FAULTS = (
    Fault(
        "the loss is scaled by an attribute that is not saved",
        "CK606",
        factory(finish=starts_later, loss_of=scaled_by_count),
        where={"step": 4, "stage": "loss"},
        numbers={"differing": ["backward", "returned"]},
        confidence="likely",
    ),
    Fault(
        "gradients are scaled by an attribute that is not saved",
        "CK606",
        factory(finish=starts_later, step=plain_loss_of_a_scaled_backward),
        where={"step": 4, "stage": "grad", "parameter": "head.bias"},
        names=("layers.0.weight",),
        confidence="likely",
    ),
    Fault(
        "an optimizer decays by a count that it does not save",
        "CK607",
        factory(make_optimizers=hidden(HiddenDecay, lr=0.05)),
        where={"step": 4, "stage": "param", "parameter": "head.bias"},
        names=("layers.2.weight",),
        confidence="likely",
    ),
    Fault(
        "an optimizer's moments depend on a count that it does not save",
        "CK607",
        factory(make_optimizers=hidden(HiddenState)),
        where={"step": 4, "stage": "state", "parameter": "head.bias", "key": "mean", "optimizer": 0},
        confidence="likely",
    ),
    Fault(
        "weights are moved by hand in the second step of a process",
        "CK607",
        factory(finish=starts_later, step=moved_by_hand),
        where={"step": 5, "stage": "param", "parameter": "head.bias"},
        numbers={"differing": ["head.bias"]},
        confidence="likely",
    ),
    Fault(
        "an extra object drifts after the load",
        "CK610",
        factory(finish=drifting, update=drift),
        where={"step": 4, "stage": "extra", "key": "phases.phase"},
        numbers={"left": 1, "right": 0},
        confidence="unknown",
    ),
    Fault(
        "the resumed run raises",
        "CK610",
        factory(finish=starts_later, loss_of=raises_in_its_second_step),
        where={"step": 5, "stage": None},
        names=("RuntimeError: no such batch (in step 5)",),
        confidence="unknown",
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_what_the_load_does_not_explain_is_told_by_the_first_stage_that_differs(trial: Trials, fault: Fault):
    fault.check(trial)


def test_where_a_closer_code_explains_a_run_that_raises_the_unexplained_one_is_silent(trial):
    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        del checkpoint["optimizer0"]["state"][0]["exp_avg"]

    assert trial(factory(spoil=spoil)).codes == ["CK203"]


def other_threads(self: Training) -> None:
    torch.set_num_threads(3 if torch.get_num_threads() != 3 else 2)


def test_another_thread_count_is_told_beside_what_diverged(trial):
    found = trial(
        factory(finish=starts_later, loss_of=scaled_by_count),
        factory(finish=lambda self: (starts_later(self), other_threads(self)), loss_of=scaled_by_count),
    )
    assert found.code == "CK606"
    told = found.of("CK614")[0]
    assert (told.severity.value, told.where.stage, told.where.key) == ("warning", "load", "num_threads")
    assert list(told.evidence) == ["num_threads"]


def test_another_thread_count_without_effect_is_a_warning(trial):
    found = trial(factory(), factory(finish=other_threads))
    assert found.code is None
    assert [(one.code, one.severity.value, one.evidence["without_effect"]) for one in found.of("CK614")] == [
        ("CK614", "warning", True)
    ]


# What equal runs say.


def draws(self: Training, checkpoint: dict[str, Any]) -> None:
    torch.rand(3)


def leaves_in_eval(self: Training, checkpoint: dict[str, Any]) -> None:
    self.model.eval()


def consumes_a_batch(self: Training, checkpoint: dict[str, Any]) -> None:
    self.data.next()


def with_dropout(self: Training) -> Net:
    return Net(dropout=0.5)


@pytest.mark.parametrize(
    ("training", "stage", "changed"),
    [
        ({"spoil": draws, "make_model": with_dropout}, "rng", ["torch"]),
        ({"spoil": leaves_in_eval, "make_model": with_dropout}, "hyperparameters", ["eval"]),
        ({"spoil": consumes_a_batch}, "data", ["position"]),
    ],
    ids=["draws random numbers", "leaves the model in eval mode", "takes a batch"],
)
def test_a_save_that_perturbs_the_training_is_told_at_the_save(trial, training, stage, changed):
    clean = factory(**{key: value for key, value in training.items() if key != "spoil"})
    case = trial(factory(**training), repeats=(clean, clean)).whole()
    judgement = judge(case)
    assert judgement.cause.code == "CK609"
    found = judgement.findings[0]
    assert (found.where.step, found.where.stage) == (3, stage)
    assert found.evidence["changed"] == changed
    assert found.evidence["later_step"] == 4


def test_a_save_whose_harm_is_only_seen_later_is_told_at_the_first_step_that_differs(trial):
    def forgets(self: Training, checkpoint: dict[str, Any]) -> None:
        self.made = 100

    parts = {"finish": starts_later, "loss_of": scaled_by_count}
    clean = factory(**parts)
    judgement = judge(trial(factory(**parts, spoil=forgets), repeats=(clean, clean)).whole())
    assert judgement.cause.code == "CK609"
    found = judgement.findings[0]
    assert (found.where.step, found.where.stage, found.evidence["saved_after_step"]) == (4, "loss", 3)


@pytest.mark.parametrize("parts", [{"spoil": draws}, {}], ids=["draws from a generator that nobody uses", "clean"])
def test_a_save_without_effect_is_silent(trial, parts):
    judgement = judge(trial(factory(**parts), repeats=(factory(),)).whole())
    assert judgement.findings == ()
    assert judgement.cause is None


def test_without_a_repeat_a_save_is_judged_by_what_it_touched(trial):
    case = trial(factory(spoil=draws, make_model=with_dropout)).whole()
    assert judge(case).cause.code == "CK609"
    assert judge(trial(factory(spoil=leaves_in_eval)).whole()).cause is None


def test_runs_that_differ_without_a_resume_are_no_ground_to_judge_on(trial):
    def noisy(self: Training, s: int) -> torch.Tensor:
        inputs, targets = self.data.next()
        return functional.mse_loss(self.model(inputs), targets + next(noise))

    noise = iter(torch.arange(1000.0))
    case = trial(factory(loss_of=noisy), repeats=(factory(loss_of=noisy), factory(loss_of=noisy))).whole()
    found = [one for one in judge(case).findings if one.code == "CK611"]
    assert [(one.where.step, one.where.stage) for one in found] == [(1, "loss")]
    assert "--deterministic" in found[0].fix
    assert judge(case).cause is None


def test_runs_that_begin_apart_are_told_to_seed(trial):
    def unseeded(self: Training) -> None:
        for one in self.model.parameters():
            one.data.add_(next(noise))

    noise = iter(range(1000))
    case = trial(factory(finish=unseeded), repeats=(factory(finish=unseeded), factory(finish=unseeded))).whole()
    found = judge(case).findings[0]
    assert (found.code, found.where.step, found.where.stage) == ("CK611", 0, "param")


def test_a_resume_that_differs_within_the_noise_is_not_judged(trial):
    def noisy(self: Training, s: int) -> torch.Tensor:
        inputs, targets = self.data.next()
        return functional.mse_loss(self.model(inputs), targets + (next(noise) if s > 4 else 0))

    noise = iter(torch.arange(1000.0))
    kind = factory(loss_of=noisy)
    assert trial(kind, repeats=(kind, kind)).code is None
    lost = trial(kind, factory(loss_of=noisy, lose=("optimizer0",)), repeats=(kind, kind))
    assert lost.code == "CK201"


@pytest.mark.parametrize(
    ("gap", "said"),
    [({"left_only": (5,)}, "the resumed run never did step 5"), ({"right_only": (5,)}, "the uninterrupted run never")],
)
def test_steps_that_only_one_run_made_are_missing_in_the_other(trial, gap, said):
    found = trial(factory())
    judgement = judge(replace(found.case, trajectory=replace(found.case.trajectory, steps=(4, 6), **gap)))
    assert judgement.cause.code == "CK612"
    assert said in judgement.findings[0].message
    assert judgement.findings[0].evidence["missing"] == ["5"]
