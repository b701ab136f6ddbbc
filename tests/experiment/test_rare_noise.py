"""Noise that comes in some runs only: it is no failure, whichever runs have it, and it hides no fault."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ckptcheck.comparison.traces import Difference
from ckptcheck.errors import UsageError
from ckptcheck.experiment.floor import Floor, Gap
from ckptcheck.finding import Result, Verdict
from ckptcheck.trace.items import Item, Sample
from ckptcheck.verbs import verify

# The noise is another draw in every process that has it, and which do is told by their names.
BODY = """
import os
NOISY = {noisy!r}
def build(ctx):
    torch.manual_seed(0)
    batches = torch.randn(40, 8, 6)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    at, hidden = [0], [1.0]
    name = ctx.workdir.parent.name
    def step(s):
        optimizer.zero_grad()
        loss = model(batches[at[0]]).square().mean() * hidden[0]
        loss.backward()
        at[0] += 1
        if name in NOISY or s >= {all_from}:
            for parameter in model.parameters():
                drawn = torch.frombuffer(bytearray(os.urandom(parameter.numel())), dtype=torch.uint8)
                parameter.grad *= 1 + 1e-4 * (drawn.view_as(parameter) / 127.5 - 1)
        optimizer.step()
        return loss
    def save(path):
        torch.save([model.state_dict(), optimizer.state_dict(), at[0]], path)
    def load(path):
        saved = torch.load(path)
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        at[0] = saved[2]
        {after}
    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=save, load=load)
"""
AGAIN = "-again-for-floor-of-resumed@3"
SAVED = ("reference", "resumed@3")
RESUMED = ("repeat", "resumed@3", f"resumed@3{AGAIN}")
MEASURED = ("repeat", "resumed@3", f"repeat-2{AGAIN}", f"resumed@3{AGAIN}")


def judged(
    check: Callable[..., Result], target: Callable[[str], str], noisy: tuple[str, ...], after: str = "pass",
    all_from: int = 99,
) -> Result:  # fmt: skip
    body = BODY.replace("{noisy!r}", repr(noisy)).replace("{after}", after).replace("{all_from}", str(all_from))
    return check(target(body), steps=6, resume_at=[3], policy="state-exact", repeats=2)


def said_of_the_floor(result: Result) -> str:
    (said,) = [one.reason for one in result.not_judged if one.code == "CK607"]
    return said


@pytest.mark.parametrize("noisy", [SAVED, RESUMED], ids=["in what was saved", "in both resumed runs"])
def test_noise_that_no_equal_run_showed_again_leaves_what_differs_open(
    noisy: tuple[str, ...], target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    result = judged(check, target, noisy)
    assert (result.verdict, result.cause.code) == (Verdict.INCONCLUSIVE, "CK611")
    assert {one.severity for one in result.findings} == {"warning"}
    assert (result.first_divergence.step, result.first_divergence.stage) > (3, "")
    assert "which may be noise" in said_of_the_floor(result)
    assert result.parts["noise"]["first"] == {"step": 1, "stage": "grad"}  # type: ignore[index, call-overload]


def test_a_resumed_run_that_agrees_with_a_reference_to_the_bit_passes_and_names_no_floor(
    target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    result = judged(check, target, ("repeat", "resumed@3"))
    assert (result.verdict, result.cause) == (Verdict.PASS, None)
    said = said_of_the_floor(result)
    assert "did not show it" in said
    assert "agreed with the reference beside it to the bit" in said
    assert "times the floor" not in said
    assert result.parts["noise"]["calibration"]["widest"] == []  # type: ignore[index, call-overload]


def test_noise_that_was_measured_in_some_runs_is_a_floor(
    target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    result = judged(check, target, MEASURED)
    assert (result.verdict, result.cause) == (Verdict.PASS, None)
    assert "the widest of a kind where noise comes in some runs only" in said_of_the_floor(result)
    result = judged(check, target, MEASURED, after="hidden[0] = 1.5")
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK606")
    assert (result.first_divergence.step, result.first_divergence.stage) == (4, "loss")


@pytest.mark.parametrize(
    ("after", "code"),
    [("model[0].weight.data[0, 0] += 1e-6", "CK601"), ("at[0] = 0", "CK604")],
    ids=["a weight off by a millionth", "data position lost"],
)
def test_noise_that_was_not_measured_hides_no_fault_of_the_load_nor_of_what_is_exact(
    after: str, code: str, target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    result = judged(check, target, RESUMED, after)
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, code)


def test_what_repeats_itself_before_any_noise_is_judged_to_the_bit(
    target: Callable[[str], str], check: Callable[..., Result]
) -> None:
    result = judged(check, target, (), "hidden[0] = 1 + 1e-6", all_from=6)
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK606")
    assert (result.first_divergence.step, result.first_divergence.stage) == (4, "loss")
    result = judged(check, target, ("resumed@3", f"resumed@3{AGAIN}"), all_from=6)  # another number in either run
    assert result.verdict is Verdict.PASS


GRAD, LOSS = Item("grad", "a"), Item("loss")
SEEN = Floor(2, {(5, GRAD): Gap(1e-4, 1.0), (4, LOSS): Gap(0.0, 0.0)}, {})


@pytest.mark.parametrize(
    ("floor", "step", "item", "distance", "expected"),
    [
        (SEEN, 4, GRAD, 9e-4, "within"),
        (SEEN, 4, GRAD, 2e-3, "open"),
        (SEEN, 4, GRAD, 2e-2, "beyond"),
        (SEEN, 4, LOSS, 9e-4, "within"),  # no gap of its own kind: that of any kind stands for it
        (SEEN, 4, LOSS, 2e-3, "open"),
        (replace(SEEN, steady_from=5), 5, GRAD, 9e-4, "within"),
        (replace(SEEN, steady_from=5), 5, GRAD, 2e-3, "beyond"),
        (replace(SEEN, steady_from=5), 4, GRAD, 2e-3, "open"),
        (replace(SEEN, steady_from=4), 5, LOSS, 2e-3, "open"),  # equal by chance
        (replace(SEEN, repeated=frozenset({4})), 4, GRAD, 1e-9, "beyond"),
        (replace(SEEN, repeated=frozenset({4})), 5, GRAD, 9e-4, "within"),
        (replace(SEEN, rounding=frozenset({"a"})), 4, GRAD, 1.0, "within"),
        (replace(SEEN, rounding=frozenset({"a"})), 4, LOSS, 1.0, "open"),  # its gaps say nothing of others
        (replace(SEEN, equal={}), 4, GRAD, 1e-7, "within"),
        (replace(SEEN, equal={}), 4, GRAD, 1e-6, "open"),
        (replace(SEEN, equal={}), 4, GRAD, 1e6, "open"),
        (replace(SEEN, equal={(5, GRAD): Gap(float("inf"), float("inf"))}), 4, GRAD, 1.0, "open"),
    ],
)
def test_a_distance_is_within_the_floor_beyond_it_or_left_open(
    floor: Floor, step: int, item: Item, distance: float, expected: str
) -> None:
    floor = replace(floor, resumed={(step, item): Gap(distance, 1.0)})
    one = Difference(step, item, Sample(None, b"a"), Sample(None, b"b"))
    told = {"beyond": floor.beyond(one), "open": floor.leaves_open(one)}
    assert [name for name, holds in told.items() if holds] == ([] if expected == "within" else [expected])


def test_what_one_side_lacks_is_no_noise() -> None:
    assert SEEN.beyond(Difference(4, GRAD, Sample(None, b"a"), None))


def test_repeats_are_refused_where_none_is_made() -> None:
    with pytest.raises(UsageError, match=r"--quick and --repeats exclude each other"):
        verify("target.py", quick=True, repeats=2)
