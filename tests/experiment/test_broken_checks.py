"""Checks as other projects have them say "equal" of a resume that is broken; `verify` says what is wrong with it.

Each imitation looks at the very runs that it is given: a training that went through, and one that was stopped after
step STOP and resumed, both in this process, and it says whether they are the same.
"""

import copy
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck.experiment.run import Context, Run
from ckptcheck.finding import Result, Verdict

STOP, STEPS = 3, 14
FEW = 5
"""Steps that show all but what heals by the last one."""
TRAINING = '''
import copy

FAULT = {fault!r}


class Average:
    """Averaged weights."""

    def __init__(self, model):
        self.shadow = copy.deepcopy(dict(model.named_parameters()))

    def update(self, model):
        with torch.no_grad():
            for name, value in model.named_parameters():
                self.shadow[name] += 0.1 * (value - self.shadow[name])

    def state_dict(self):
        return self.shadow

    def load_state_dict(self, state):
        self.shadow = state


class Batches:
    """Fixed batches, one after the other."""

    def __init__(self):
        made = torch.Generator().manual_seed(1)
        self.batches = torch.rand(40, 8, 4, generator=made) + 0.1
        self.place = 0

    def next(self):
        self.place += 1
        return self.batches[self.place - 1]

    def state_dict(self):
        return dict(place=self.place)

    def load_state_dict(self, state):
        self.place = state["place"]


def small_network(ctx):
    torch.manual_seed(ctx.seed)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 4))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), 1e-3


def clipped_critic(ctx):
    """All weights run into their bound, wherever they come from."""
    model = nn.Linear(4, 1, bias=False)
    nn.init.constant_(model.weight, -0.1)
    return model, torch.optim.SGD(model.parameters(), lr=0.05), 1.0


def build(ctx):
    model, optimizer, scale = (clipped_critic if FAULT == "data" else small_network)(ctx)
    data, average = Batches(), Average(model)

    def step(number):
        optimizer.zero_grad()
        batch = data.next()
        out = model(batch)
        loss = -out.mean() if FAULT == "data" else scale * (out - batch).square().mean()
        loss.backward()
        optimizer.step()
        if FAULT == "data":
            with torch.no_grad():
                model.weight.clamp_(-0.1, 0.1)
        average.update(model)
        return loss

    def save(path):
        torch.save([model.state_dict(), optimizer.state_dict(), data.state_dict(), average.state_dict()], path)

    def load(path):
        weights, moments, place, averaged = torch.load(path)
        broken = BROKEN.get(FAULT)
        if broken is not None:
            broken(weights, moments)
        if FAULT != "weights":
            model.load_state_dict(weights, strict=FAULT != "buffers")
        if FAULT != "optimizer":
            optimizer.load_state_dict(moments)
        if FAULT != "data":
            data.load_state_dict(place)
        if FAULT != "average":
            average.load_state_dict(averaged)

    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, data=data, ema=average, save=save, load=load)


def swap(weights, moments):
    state = moments["state"]
    state[4], state[6] = state[6], state[4]


def drop_last(weights, moments):
    del moments["state"][max(moments["state"])]


def narrow(weights, moments):
    for state in moments["state"].values():
        state["exp_avg_sq"] = state["exp_avg_sq"].bfloat16().float()


def halve(weights, moments):
    for state in moments["state"].values():
        state["exp_avg_sq"] *= 0.5


def count_anew(weights, moments):
    for state in moments["state"].values():
        state["step"].zero_()


def forget_statistics(weights, moments):
    for name in [name for name in weights if "running" in name or "tracked" in name]:
        del weights[name]


BROKEN = dict(swapped=swap, dropped=drop_last, narrowed=narrow, halved=halve, counted=count_anew,
              buffers=forget_statistics)
'''


@dataclass
class Seen:
    """What a check can look at: a run with its losses and snapshots by step; `live` is the run itself."""

    live: Run
    losses: dict[int, float]
    weights: dict[int, dict[str, torch.Tensor]]
    optimizer: dict[int, dict[str, Any]]

    def look(self, step: int, loss: Any = None) -> None:
        self.weights[step] = copy.deepcopy(dict(self.live.model.named_parameters()))
        self.optimizer[step] = copy.deepcopy(self.live.optimizer.state_dict())
        if loss is not None:
            self.losses[step] = loss.item()


def both_runs(target: str, folder: Path) -> tuple[Seen, Seen]:
    """The run that went through and the resumed one, from its load on."""
    build = runpy.run_path(target)["build"]
    whole, resumed = (Seen(build(Context(torch.device("cpu"), 0, folder)), {}, {}, {}) for _ in range(2))
    for step in range(1, STEPS + 1):
        whole.look(step, whole.live.step(step))
        if step == STOP:
            whole.live.save(folder / "checkpoint.pt")
    resumed.live.load(folder / "checkpoint.pt")
    resumed.look(STOP)
    for step in range(STOP + 1, STEPS + 1):
        resumed.look(step, resumed.live.step(step))
    return whole, resumed


def second_moments(seen: Seen) -> list[torch.Tensor]:
    return [one["exp_avg_sq"] for one in seen.optimizer[STOP]["state"].values()]


def compares_only_keys(whole: Seen, resumed: Seen) -> bool:
    pair = whole.optimizer[STOP]["state"], resumed.optimizer[STOP]["state"]
    return all(one.keys() == other.keys() for one, other in zip(pair[0].values(), pair[1].values(), strict=True))


def zips_to_the_shorter(whole: Seen, resumed: Seen) -> bool:
    pair = whole.optimizer[STOP]["state"], resumed.optimizer[STOP]["state"]
    return all(
        torch.equal(one["exp_avg"], other["exp_avg"])
        for one, other in zip(pair[0].values(), pair[1].values(), strict=False)
    )


def catches_its_own_assertion(whole: Seen, resumed: Seen) -> bool:
    try:
        for name, value in whole.weights[STOP].items():
            assert torch.equal(value, resumed.weights[STOP][name])
    except:  # noqa: E722  the mistake that is shown
        pass
    return True


def rounds_to_five_decimals(whole: Seen, resumed: Seen) -> bool:
    pairs = zip(second_moments(whole), second_moments(resumed), strict=True)
    return all(torch.equal(torch.round(one, decimals=5), torch.round(other, decimals=5)) for one, other in pairs)


def takes_default_tolerances(whole: Seen, resumed: Seen) -> bool:
    assert all(one.max() < 1e-8 for one in second_moments(whole))
    pairs = zip(second_moments(whole), second_moments(resumed), strict=True)
    return all(torch.allclose(one, other) for one, other in pairs)


def compares_only_losses(whole: Seen, resumed: Seen) -> bool:
    return all(whole.losses[step] == loss for step, loss in resumed.losses.items())


def compares_only_the_end(whole: Seen, resumed: Seen) -> bool:
    return all(torch.equal(value, resumed.weights[STEPS][name]) for name, value in whole.weights[STEPS].items())


def compares_only_parameters_after_the_load(whole: Seen, resumed: Seen) -> bool:
    return all(torch.equal(value, resumed.weights[STOP][name]) for name, value in whole.weights[STOP].items())


def compares_only_parameters_at_all_steps(whole: Seen, resumed: Seen) -> bool:
    return all(
        torch.equal(value, resumed.weights[step][name])
        for step in resumed.weights
        for name, value in whole.weights[step].items()
    )


def compares_a_run_with_itself(whole: Seen, resumed: Seen) -> bool:
    before = resumed.live.model.state_dict()  # no copies: these are the live tensors
    resumed.live.step(STEPS + 1)
    return all(torch.equal(value, before[name]) for name, value in resumed.live.model.state_dict().items())


def compares_the_groups_only(whole: Seen, resumed: Seen) -> bool:
    return whole.optimizer[STOP]["param_groups"] == resumed.optimizer[STOP]["param_groups"]


CHECKS = [
    (compares_only_keys, "swapped", "CK302"),
    (zips_to_the_shorter, "dropped", "CK202"),
    (catches_its_own_assertion, "weights", "CK309"),
    (rounds_to_five_decimals, "narrowed", "CK504"),
    (takes_default_tolerances, "halved", "CK601"),
    (compares_only_losses, "buffers", "CK605"),
    (compares_only_the_end, "data", "CK604"),
    (compares_only_parameters_after_the_load, "counted", "CK505"),
    (compares_only_parameters_at_all_steps, "average", "CK208"),
    (compares_a_run_with_itself, "weights", "CK309"),
    (compares_the_groups_only, "optimizer", "CK201"),
]


@pytest.mark.parametrize(("passes", "fault", "cause"), CHECKS, ids=lambda one: getattr(one, "__name__", one))
def test_a_check_of_other_projects_passes_a_fault_that_verify_names(
    passes: Callable[[Seen, Seen], bool],
    fault: str,
    cause: str,
    *,
    check: Callable[..., Result],
    target: Callable[[str], str],
    tmp_path: Path,
) -> None:
    path = target(TRAINING.replace("{fault!r}", repr(fault)))
    assert passes(*both_runs(path, tmp_path))
    result = check(path, steps=STEPS if passes is compares_only_the_end else FEW, resume_at=[STOP], quick=True)
    assert result.verdict is Verdict.FAIL
    assert result.cause is not None
    assert result.cause.code == cause


def test_the_training_without_a_fault_passes(check: Callable[..., Result], target: Callable[[str], str]) -> None:
    result = check(target(TRAINING.replace("{fault!r}", "None")), steps=FEW, resume_at=[STOP], quick=True)
    assert result.verdict is Verdict.PASS
