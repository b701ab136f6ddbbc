"""The noise floor: what equal runs disagree on is not held against a resumed run, and saving is told from noise."""

from collections.abc import Callable

import pytest

from ckptcheck.finding import Result, Verdict

HEAD = """
import os, random
import numpy
class Bag:
    def __init__(self, **values): self.values = values
    def state_dict(self): return dict(self.values)
    def load_state_dict(self, values): self.values.update(values)
def training(ctx, before=lambda s: None, **more):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    def step(s):
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), 1.0 + s)).square().mean() / 100
        loss.backward()
        before(s)
        optimizer.step()
        return loss
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, **more)
"""


def codes(result: Result) -> set[str]:
    return {one.code for one in result.findings}


def test_a_generator_that_nobody_seeds_and_nobody_draws_from_is_no_alarm(target, check: Callable) -> None:
    result = check(target(HEAD + "def build(ctx):\n    return training(ctx)\n"), steps=6)
    assert result.verdict is Verdict.PASS
    assert [one.severity for one in result.findings] == ["warning"] * len(result.findings)


def test_a_generator_that_is_drawn_from_without_effect_is_not_judged(target, check: Callable) -> None:
    body = "def build(ctx):\n    return training(ctx, lambda s: numpy.random.rand())\n"
    result = check(target(HEAD + body), steps=6)
    assert result.verdict is Verdict.PASS
    assert any(one.code == "CK603" and "numpy" in one.reason for one in result.not_judged)


# Of each element by itself, so that no two runs agree by chance; with size 1e-6 less than norms can tell.
NOISY = """
def build(ctx):
    def shake(s):
        if s >= {first}:
            for parameter in run.model.parameters():
                drawn = torch.tensor(list(os.urandom(parameter.numel()))).view_as(parameter)
                parameter.grad *= 1 + {size} * drawn / 255
    run = training(ctx, shake)
    return run
"""


def test_noise_from_a_step_on_is_inconclusive_from_there(target, check: Callable) -> None:
    result = check(target(HEAD + NOISY.format(first=5, size=1e-3)), steps=8, resume_at=[3])
    assert (result.verdict, result.exit_code) == (Verdict.INCONCLUSIVE, 3)
    assert result.cause is not None
    assert result.cause.code == "CK611"
    assert result.first_divergence is not None
    assert (result.first_divergence.step, result.first_divergence.stage) == (5, "grad")
    (told,) = [one for one in result.findings if one.code == "CK611"]
    assert "--deterministic" in told.fix


def test_a_fault_before_the_noise_is_still_found(target, check: Callable) -> None:
    body = NOISY.replace(
        "    return run\n",
        """
    def save(path):
        torch.save([run.model.state_dict(), run.optimizer.state_dict()], path)
    def load(path):
        run.model.load_state_dict(torch.load(path)[0])
    run.save, run.load = save, load
    return run
""",
    )
    result = check(target(HEAD + body.format(first=6, size=1e-3)), steps=8, resume_at=[3])
    assert result.verdict is Verdict.FAIL
    assert result.cause is not None
    assert result.cause.code == "CK201"


def test_state_exact_passes_over_numeric_noise_and_says_what_it_did_not_judge(target, check: Callable) -> None:
    path = target(HEAD + NOISY.format(first=5, size=1e-6))
    assert check(path, steps=8, resume_at=[3]).verdict is Verdict.INCONCLUSIVE
    result = check(path, steps=8, resume_at=[3], policy="state-exact")
    assert result.verdict is Verdict.PASS
    assert any("not judged bitwise" in one.reason for one in result.not_judged)


def test_state_exact_still_holds_the_schedule_exactly(target, check: Callable) -> None:
    body = NOISY.replace(
        "    return run\n",
        """
    run.scheduler = torch.optim.lr_scheduler.StepLR(run.optimizer, 2)
    inner = run.step
    def step(s):
        loss = inner(s)
        run.scheduler.step()
        return loss
    run.step = step
    def save(path):
        torch.save([run.model.state_dict(), run.optimizer.state_dict()], path)
    def load(path):
        run.model.load_state_dict(torch.load(path)[0])
        run.optimizer.load_state_dict(torch.load(path)[1])
    run.save, run.load = save, load
    return run
""",
    )
    result = check(target(HEAD + body.format(first=2, size=1e-6)), steps=8, resume_at=[3], policy="state-exact")
    assert result.verdict is Verdict.FAIL
    assert result.cause is not None
    assert result.cause.code == "CK602"


SAVING = """
def build(ctx):
    run = training(ctx)
    def save(path):
        torch.save([run.model.state_dict(), run.optimizer.state_dict()], path)
        {perturb}
    def load(path):
        run.model.load_state_dict(torch.load(path)[0])
        run.optimizer.load_state_dict(torch.load(path)[1])
    run.save, run.load = save, load
    return run
"""


def test_a_save_that_changes_weights_is_found_at_the_save(target, check: Callable) -> None:
    body = SAVING.format(perturb="run.model.weight.data.mul_(0.5)")
    for quick in (False, True):
        result = check(target(HEAD + body), steps=6, resume_at=[3], quick=quick)
        assert result.verdict is Verdict.FAIL
        assert result.cause is not None
        assert result.cause.code == "CK609"
        assert result.first_divergence is not None
        assert (result.first_divergence.step, result.first_divergence.stage) == (3, "param")


def test_a_save_that_moves_what_is_not_recorded_is_found_by_the_run_that_does_not_save(target, check: Callable) -> None:
    body = SAVING.replace(
        "run = training(ctx)",
        "hidden = [0.0]\n    run = training(ctx, lambda s: run.model.weight.grad.add_(hidden[0]))",
    )
    result = check(target(HEAD + body.format(perturb="hidden[0] = 0.5")), steps=6, resume_at=[3])
    assert result.verdict is Verdict.FAIL
    assert result.cause is not None
    assert result.cause.code == "CK609"
    assert result.first_divergence is not None
    assert (result.first_divergence.step, result.first_divergence.stage) == (4, "grad")


def test_a_save_that_puts_back_what_it_moved_is_silent(target, check: Callable) -> None:
    body = SAVING.format(perturb="state = torch.get_rng_state(); torch.rand(3); torch.set_rng_state(state)")
    assert check(target(HEAD + body), steps=6, resume_at=[3]).verdict is Verdict.PASS


def test_quick_says_what_it_did_not_judge(target, check: Callable) -> None:
    result = check(target(HEAD + "def build(ctx):\n    return training(ctx)\n"), steps=6, quick=True)
    assert result.verdict is Verdict.PASS
    assert {"CK609", "CK611"} <= {one.code for one in result.not_judged}
    assert [one["name"] for one in result.parts["runs"]] == ["reference", "resumed@3"]  # type: ignore[index, union-attr]


def test_a_tolerance_passes_small_differences_and_not_large_ones(target, check: Callable) -> None:
    body = SAVING.replace(
        "        run.optimizer.load_state_dict(torch.load(path)[1])\n",
        "        run.optimizer.load_state_dict(torch.load(path)[1])\n        run.model.weight.data.mul_(1 + {size})\n",
    )
    path = target(HEAD + body.format(perturb="pass", size="1e-6"))
    assert check(path, steps=6, resume_at=[3]).verdict is Verdict.FAIL
    assert check(path, steps=6, resume_at=[3], rtol=1e-8).verdict is Verdict.FAIL
    assert check(path, steps=6, resume_at=[3], rtol=1e-3, atol=1e-6).verdict is Verdict.PASS


FORGETS = NOISY.replace(
    "    return run\n",
    """
    def save(path):
        torch.save([run.model.state_dict(), run.optimizer.state_dict()], path)
    def load(path):
        run.model.load_state_dict(torch.load(path)[0])
        {load}
    run.save, run.load = save, load
    return run
""",
)


@pytest.mark.parametrize("policy", ["exact", "state-exact"])
def test_noise_from_the_first_step_on_hides_no_fault_of_the_load(policy: str, target, check: Callable) -> None:
    noisy = FORGETS.replace("{first}", "1").replace("{size}", "1e-6")
    broken, whole = (
        noisy.replace("{load}", "pass"),
        noisy.replace("{load}", "run.optimizer.load_state_dict(torch.load(path)[1])"),
    )
    result = check(target(HEAD + broken, name="broken"), steps=6, resume_at=[3], policy=policy)
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK201")
    assert (result.first_divergence.step, result.first_divergence.stage) == (3, "load")
    result = check(target(HEAD + whole, name="whole"), steps=6, resume_at=[3], policy=policy)
    assert result.verdict is (Verdict.PASS if policy == "state-exact" else Verdict.INCONCLUSIVE)


def test_an_ignored_code_hides_no_divergence(target, check: Callable) -> None:
    broken = FORGETS.replace("{first}", "9").replace("{size}", "0").replace("{load}", "pass")
    result = check(target(HEAD + broken), steps=6, resume_at=[3], ignore=["CK"])
    assert (result.verdict, result.exit_code, result.cause, result.findings) == (Verdict.FAIL, 1, None, ())
    assert result.first_divergence.step == 4


PER_STEP = (
    FORGETS.replace(
        "    def shake(s):\n",
        """    def shake(s):
        torch.manual_seed(1000 + s)
        run.model.weight.grad.add_(torch.rand(4, 4))
""",
    )
    .replace("{first}", "9")
    .replace("{size}", "0")
)


def test_a_run_that_seeds_in_every_step_needs_no_generator_restored(target, check: Callable) -> None:
    whole = PER_STEP.replace("{load}", "run.optimizer.load_state_dict(torch.load(path)[1]); torch.rand(7)")
    result = check(target(HEAD + whole, name="whole"), steps=6, resume_at=[3, 5])
    assert (result.verdict, result.cause) == (Verdict.PASS, None)
    result = check(target(HEAD + PER_STEP.replace("{load}", "torch.rand(7)"), name="broken"), steps=6, resume_at=[3])
    assert result.cause.code == "CK201"
    assert "CK603" not in codes(result)


def test_weights_that_nobody_seeds_are_told_before_the_first_step(target, check: Callable) -> None:
    body = HEAD.replace("torch.manual_seed(0)", "torch.seed()") + "def build(ctx):\n    return training(ctx)\n"
    result = check(target(body), steps=4)
    assert (result.verdict, result.cause.code) == (Verdict.INCONCLUSIVE, "CK611")
    assert (result.first_divergence.step, result.first_divergence.parameter) == (0, "bias")
    assert "seed torch" in next(one for one in result.findings if one.code == "CK611").fix


CLOCK = """
def build(ctx):
    bag = Bag()
    def tick(s):
        bag.values["elapsed"] = int.from_bytes(os.urandom(4), "little")
    run = training(ctx, tick, extra={"trainer": bag})
    def save(path):
        torch.save([run.model.state_dict(), run.optimizer.state_dict(), bag.state_dict()], path)
    def load(path):
        saved = torch.load(path)
        run.model.load_state_dict(saved[0])
        bag.load_state_dict(saved[2])
        LOAD
    run.save, run.load = save, load
    return run
"""


def test_a_clock_that_is_saved_and_moves_nothing_is_no_noise(target, check: Callable) -> None:
    whole = CLOCK.replace("LOAD", "run.optimizer.load_state_dict(saved[1])")
    result = check(target(HEAD + whole, name="whole"), steps=6)
    assert result.verdict is Verdict.PASS
    assert any("trainer.elapsed" in one.reason for one in result.not_judged)
    result = check(target(HEAD + CLOCK.replace("LOAD", "pass"), name="broken"), steps=6)
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK201")
