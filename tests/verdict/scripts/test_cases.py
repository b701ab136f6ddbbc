"""A resumed script against the run that it continues: what is found, where, and what is no fault."""

from dataclasses import replace

import pytest

from ckptcheck.comparison.bindings import bindings
from ckptcheck.comparison.states import compare_states
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.rules.runs.course import Interruption
from ckptcheck.rules.runs.judge import judge
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.scripts.cases import Stopped, case_of, told_of
from ckptcheck.verdict.scripts.noise import floor_of
from ckptcheck.verdict.scripts.ranks import Crew

WHOLE = Recorded("reference", ("train",), "ended", 0)
RESUMED = Recorded("resumed", ("resume",), "ended", 0)
STOPPED = Stopped(6, 6, frozenset({3, 6}), WHOLE, RESUMED)


def case_for(trained, name, stopped=STOPPED, *, repeat="repeat", policy=None):
    resumed = trained.get(name)
    crew = Crew(0, trained["reference"], (trained[repeat],), trained["reference"], resumed)
    noise = floor_of(crew.reference, crew.repeats)
    return case_of(crew, stopped, noise, policy or Policy())[0]


FAULTS = [
    # what was done, cause, step and stage of it, parameter or None for any, what the message says
    ("optimizer", "CK201", (6, "load"), "0.weight", "no state after the load"),
    ("schedule", "CK602", (6, "load"), None, "6 steps behind"),
    ("rng", "CK603", (6, "load"), None, "the torch generator"),
    ("weights", "CK309", (6, "load"), "0.weight", "as the script made them"),
    ("layer", "CK309", (6, "load"), "0.weight", "2 of 6 parameters"),
    ("decay", "CK306", (6, "load"), None, "weight_decay"),
    ("rate", "CK306", (6, "load"), None, "0.5 after the load"),
    ("mode", "CK601", (6, "load"), None, "eval mode"),
    ("data", "CK604", (7, "inputs"), None, "saw the batch of step 1"),
    ("repeated", "CK604", (7, "inputs"), None, "saw the batch of step 6"),
    ("older", "CK612", (3, "load"), None, "went on from step 3"),
    ("older-data", "CK601", (6, "load"), None, "the values of step 3"),
    ("early", "CK612", (11, None), None, "never did step 11, 12"),
    ("longer", "CK612", (13, None), None, "never did step 13, 14"),
    ("nothing", "CK309", (6, "load"), "0.weight", "6 of 6 parameters"),
    ("newest", "CK612", (7, None), None, "steps 7 to 9 were left out"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=[one[0] for one in FAULTS])
def test_a_fault_is_named_where_it_first_shows(trained, fault):
    name, code, place, parameter, said = fault
    judged = judge(case_for(trained, name))
    assert judged.cause is not None
    assert judged.cause.code == code
    assert (judged.place.step, judged.place.stage) == place
    assert parameter in (None, judged.place.parameter)
    assert said in judged.findings[0].message


def test_a_clean_resume_has_no_finding_at_all(trained):
    case = case_for(trained, "clean")
    judged = judge(case)
    assert case.goes_on_exactly
    assert (judged.findings, judged.cause) == ((), None)
    assert case.load.entries == ()
    assert case.trajectory.steps == (7, 8, 9, 10, 11, 12)


def test_a_generator_that_nobody_restored_is_certain_and_needs_no_other_advice(trained):
    judged = judge(case_for(trained, "rng"))
    assert (judged.cause.code, judged.cause.confidence) == ("CK603", "certain")
    assert {one.code for one in judged.findings} == {"CK603", "CK205"}
    assert judged.findings[0].fix.endswith("at the very end of your load")


def test_a_run_that_loads_nothing_is_seen_to_be_where_the_first_one_began(trained):
    found = judge(case_for(trained, "nothing")).findings[0]
    assert found.evidence["from_start"] is True
    assert "from_start" not in judge(case_for(trained, "weights")).findings[0].evidence


def test_the_checkpoint_before_the_last_is_right_where_it_is_the_newest(trained):
    case = case_for(trained, "older", replace(STOPPED, after=5, newest=3, saved=frozenset({3})))
    assert (case.step, case.goes_on_exactly) == (3, True)
    assert judge(case).cause is None


def test_a_checkpoint_that_came_late_from_the_background_is_no_second_one(trained):
    # Seen to be written after step 7, it holds step 6.
    case = case_for(trained, "clean", replace(STOPPED, after=7, newest=7, saved=frozenset({7})))
    assert (case.step, case.goes_on_exactly) == (6, True)


def test_steps_beyond_the_end_of_a_run_that_we_stopped_are_not_missed(trained):
    stopped = replace(STOPPED, resumed=replace(RESUMED, status="stopped"))
    assert case_for(trained, "early", stopped).goes_on_exactly
    stopped = replace(STOPPED, whole=replace(WHOLE, status="stopped"))
    assert case_for(trained, "longer", stopped).goes_on_exactly


def test_a_run_that_makes_no_step_is_told_so(trained):
    judged = judge(case_for(trained, "no such run"))
    assert judged.cause.code == "CK612"
    assert "made no step, where steps 7 to 12 were left to make" in judged.findings[0].message


def test_a_run_that_fails_is_told_with_its_last_line(trained):
    failed = replace(RESUMED, status="failed", exit_code=1, error="it left with exit code 1", last_lines="a\nb: c\n")
    judged = judge(case_for(trained, "no such run", replace(STOPPED, resumed=failed)))
    assert judged.cause.code == "CK610"
    assert "it left with exit code 1: b: c" in judged.findings[0].message
    broken = judge(case_for(trained, "optimizer", replace(STOPPED, resumed=failed)))
    assert broken.cause.code == "CK201"  # what was loaded explains why it failed


TORCHRUN = """[rank1]: Traceback (most recent call last):
[rank1]:   File "ddp.py", line 32
[rank1]: FileNotFoundError: no rng-1.pt
[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:37753.
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  traceback : To enable traceback see: https://pytorch.org
"""
SAID_LAST = [
    ("a\nKeyError: 'steps'\n", "KeyError: 'steps'"),
    ("KeyError: 'steps'\nwandb: run ended\n", "KeyError: 'steps'"),
    (TORCHRUN, "[rank1]: FileNotFoundError: no rng-1.pt"),
    ("[rank0]: RuntimeError: Connection closed by peer\n", "[rank0]: RuntimeError: Connection closed by peer"),
    ("one\ntwo\n---\n", "two"),
]


@pytest.mark.parametrize(("lines", "last"), SAID_LAST)
def test_the_lines_that_are_shown_end_with_the_error(lines, last):
    assert told_of(lines)[-1] == last
    failed = Stopped(6, 6, frozenset(), WHOLE, replace(RESUMED, status="failed", last_lines=lines, error="left with 1"))
    assert failed.raised.endswith(last) and failed.said_last[-1] == last
    assert told_of("") == ()


def renamed(state, old, new):
    """A state in which parameters have other names."""
    names = {name: new + name.removeprefix(old) if name.startswith(old) else name for name in state.parameters}
    optimizers = [
        replace(
            one,
            groups=tuple(replace(group, members=tuple(names[name] for name in group.members)) for group in one.groups),
            state={names[name]: entries for name, entries in one.state.items()},
        )
        for one in state.optimizers
    ]
    parameters = {names[name]: replace(one, name=names[name]) for name, one in state.parameters.items()}
    return replace(state, parameters=parameters, optimizers=tuple(optimizers))


def test_a_resumed_run_with_other_parameters_is_told_so_and_nothing_else_is_blamed(trained):
    case = case_for(trained, "data")
    load = compare_states(case.load.left, renamed(case.load.right, "0.", "body."))
    judged = judge(replace(case, load=load, bound=bindings(load)))
    assert judged.cause.code == "CK601"
    assert "0.weight, 0.bias are not there; body.weight, body.bias are new" in judged.findings[0].message


def test_a_network_that_no_optimizer_trains_is_named_as_one(trained):
    case = case_for(trained, "older-data")
    loads = [
        replace(side, optimizers=tuple(
            replace(one, groups=tuple(replace(group, members=("4.bias",)) for group in one.groups),
                    state={"4.bias": one.state["4.bias"]})
            for one in side.optimizers
        ))
        for side in (case.load.left, case.load.left)
    ]  # fmt: skip
    other = replace(loads[1], parameters={**loads[1].parameters, "0.weight": case.load.right.parameters["0.weight"]})
    load = compare_states(loads[0], other)
    judged = judge(replace(case, load=load, bound=bindings(load), other_step=None, built=None))
    assert judged.cause.code == "CK601"
    assert judged.findings[0].fix.startswith("no optimizer trains these")


def test_equal_runs_that_differ_leave_what_follows_open_and_the_load_judged(trained):
    case = case_for(trained, "clean", repeat="noisy")
    assert (case.first, case.whole) == (None, False)
    assert judge(case_for(trained, "optimizer", repeat="noisy")).cause.code == "CK201"


def test_state_exact_holds_what_kernels_do_not_compute(trained):
    case = case_for(trained, "data", policy=Policy(state_exact=True))
    assert judge(case).cause.code == "CK604"


LOST = [("clean", 5, None), ("older", 5, 2), ("older", 3, None), ("nothing", 5, 5)]


@pytest.mark.parametrize(("name", "step", "lost"), LOST)
def test_a_signal_loses_the_steps_that_no_checkpoint_holds(trained, name, step, lost):
    left = Interruption("SIGTERM", step, None, "was killed by SIGTERM")
    stopped = Stopped(step, None, frozenset(), WHOLE, RESUMED, left)
    judged = judge(case_for(trained, name, stopped))
    found = [one.evidence["steps_lost"] for one in judged.findings if one.code == "CK615"]
    assert found == ([] if lost is None else [lost])
    if lost is None:
        assert judged.cause is None
    elif name == "older":
        assert judged.cause.code == "CK615"


def test_the_state_of_an_interrupted_run_is_read_from_the_uninterrupted_one(trained):
    # It was ended after step 6, so that its own record does not tell what step 7 would have begun with.
    crew = Crew(0, trained["reference"], (trained["repeat"],), trained["interrupted"], trained["clean"])
    case, placed = case_of(crew, STOPPED, floor_of(crew.reference, crew.repeats), Policy())
    assert placed.alignment.matched == placed.alignment.of > 0
    assert (case.load.entries, case.goes_on_exactly) == ((), True)


def test_a_run_that_was_killed_before_its_step_was_written_is_placed_on_the_uninterrupted_one(trained):
    # Its handler saved step 6, and its trace ends with step 5.
    crew = Crew(0, trained["reference"], (trained["repeat"],), trained["killed"], trained["clean"])
    stopped = replace(STOPPED, after=5, newest=None, interruption=Interruption("SIGTERM", 5, None, "left"))
    case, placed = case_of(crew, stopped, floor_of(crew.reference, crew.repeats), Policy())
    assert (placed.step, placed.by_content) == (6, True)
    assert (case.load.entries, case.goes_on_exactly) == ((), True)
    assert judge(case).findings == ()
