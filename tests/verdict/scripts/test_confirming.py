"""A difference of a resumed script whose cause is not certain is looked for in another resumed run."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckptcheck import verbs
from ckptcheck.comparison.traces import Difference
from ckptcheck.experiment.noise import Noise
from ckptcheck.finding import Result, Verdict
from ckptcheck.rules.runs.case import Case
from ckptcheck.trace.items import Item
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.scripts.noise import noise_told

HERE = Path(__file__).parent
FORKED = HERE / "forked_command.py"
MEASURED = ["reference", "repeat", "resumed", "reference-again", "resumed-again"]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Path]:
    """The socket of a process that runs scripts in forks of itself."""
    place = tmp_path_factory.mktemp("server") / "s"
    with subprocess.Popen([sys.executable, str(FORKED), "--serve", str(place)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield place
        process.kill()


@pytest.fixture
def verified(server, tmp_path) -> Callable[..., Result]:
    def verify(fault: str, **options: object) -> Result:
        run = f"{sys.executable} -S -E {FORKED} {server} {HERE / 'unsteady.py'} {{dir}} {fault} {tmp_path / 'once'}"
        return verbs.verify(run=run, resume=f"{run} {{ckpt}}", resume_at=[3], **options)

    return verify


def names(result: Result) -> list[str]:
    return [one["name"] for one in result.parts["runs"]]


def test_what_a_second_resume_does_not_show_is_chance_and_no_failure(verified):
    result = verified("rare")
    assert (result.verdict, result.cause.code) == (Verdict.INCONCLUSIVE, "CK611")
    (finding,) = [one for one in result.findings if one.code == "CK611"]
    assert finding.message.startswith(
        "the run resumed after step 3 does not repeat itself: made again from the same checkpoint it differs from "
        "step 5 on, so what differs may be chance, first in grad: 2.weight"
    )
    assert names(result) == MEASURED  # the run that was made to measure has told
    noise = result.parts["noise"]
    assert (noise["repeated"], noise["first"], noise["differing"]) == (True, {"step": 5, "stage": "grad"}, [])
    assert result.parts["divergence"] == []
    assert not [one for one in result.not_judged if one.code == "CK607" and "does not repeat itself" not in one.reason]


def test_a_fault_that_repeats_itself_stays_a_failure(verified):
    result = verified("always")
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK606")
    assert (result.first_divergence.step, result.first_divergence.parameter) == (5, "2.weight")
    assert names(result) == MEASURED
    assert result.parts["noise"]["first"] is None
    (finding,) = [one for one in result.findings if one.code == "CK606"]
    assert finding.evidence["rounding_gradients"] == ["0.bias"]


def test_what_every_resume_draws_anew_is_a_failure_though_no_two_are_alike(verified):
    result = verified("unseeded", quick=True)  # nothing is measured, so that every run is made to tell
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK606")
    again = [f"{kind}-again-once-more{number}" for kind, numbers in (("resumed", ("", "-2", "-3")),
             ("reference", ("", "-2"))) for number in numbers]  # fmt: skip
    assert names(result) == [*MEASURED[:3], *again]
    assert {one["status"] for one in result.parts["runs"][3:]} == {"stopped"}
    assert [one["steps"] for one in result.parts["runs"][3:]] == [2, 2, 2, 5, 5]


def test_the_noise_of_commands_is_calibrated_by_norms():
    item = Item("grad", "weight")
    noise = Noise({item: 4}, Difference(4, item, None, None), {"grad": 0.25, "param": 1e-9}, None, repeated=True)
    told = noise_told(1, noise, Case("resumed", 3), 2, Policy(state_exact=True))
    calibration = told["calibration"]
    assert (told["rank"], calibration["measured"], calibration["repeats"]) == (1, "by norms", 2)
    assert [(one["section"], one["rel_l2"], one["allowed"]) for one in calibration["widest"]] == [
        ("grad", 0.25, 2.5), ("param", 1e-9, 1e-6),
    ]  # fmt: skip
    assert noise_told(None, noise, Case("resumed", 3), 2, Policy())["calibration"] is None
    assert "rank" not in noise_told(None, noise, Case("resumed", 3), 2, Policy())
