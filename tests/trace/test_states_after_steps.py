"""The training state after a step, put together from the records of that step and the next."""

import pytest

from ckptcheck.trace.items import LOAD, STEP, Item
from ckptcheck.trace.measuring import plain
from ckptcheck.trace.states import state_after_step, without_silence
from tests.comparison.written import content, frozen, gradient, groups, number, optimizer, state_of, tensor, write

MODES = {
    Item("structure", "ties"): plain('{"w": ["v"]}'),
    Item("structure", "eval"): plain('["drop"]'),
    Item("structure", "flags"): plain('{"threads": 2}'),
}


def record(step: int) -> dict:
    """What the record of a step holds: each content names its step."""
    members = [["w"]] if step < 3 else [["w", "b"]]
    kinds = ("buffer", "schedule", "scaler", "ema", "data", "extra")
    return {
        **{Item("param", name): tensor(f"{name}{step}") for name in ("w", "b")},
        **{Item(kind, "x"): tensor(f"{kind}{step}") for kind in kinds},
        Item("state", "w", "m", 0): tensor(f"m{step}"),
        Item("grad", "w"): gradient(step),
        Item("rng", "torch"): tensor(f"rng{step}"),
        Item("hyper", "", "lr", 0, 0): plain(step / 10),
        Item("hyper", "", "lr", 0, 0, 1): plain(step / 100),
        Item("updates", optimizer=0): plain(1),
        Item("inputs", "net", "0"): tensor("in"),
        **groups(members),
        **frozen(*(["b"] if step < 3 else [])),
    }


@pytest.fixture
def opened(tmp_path):
    traces = []

    def at(driver: str, moments: dict):
        traces.append(write(tmp_path / "one.trace", moments, driver=driver))
        return traces[-1]

    yield at
    for one in traces:
        one.close()


WHOLE = {(0, LOAD): {**record(0), **MODES}, **{(step, STEP): record(step) for step in (1, 2, 3)}}


@pytest.mark.parametrize(("driver", "members", "trained"), [("script", ("w", "b"), True), ("target", ("w",), False)])
def test_each_part_is_read_from_the_record_that_holds_it_as_the_step_left_it(opened, driver, members, trained):
    state = state_after_step(opened(driver, WHOLE), 2)
    assert state.parameters["w"].entry.digest.value == content("w2")
    assert state.buffers["x"].digest.value == content("buffer2")
    assert {kind: one["x"].digest.value for kind, one in state.sections.items()} == {
        kind: content(f"{kind}2") for kind in ("schedule", "scaler", "ema", "data", "extra")
    }
    assert state.rng["torch"].digest.value == content("rng3")
    (one,) = state.optimizers
    assert one.state["w"]["m"].digest.value == content("m2")
    assert (one.groups[0].members, one.groups[0].hyperparameters["lr"].value) == (members, 0.3)
    assert (state.parameters["b"].requires_grad, state.parameters["w"].requires_grad) == (trained, True)
    assert (state.parameters["w"].aliases, state.flags, state.modes) == (("v",), {"threads": 2}, {"drop": False})
    assert (state.parameters["w"].presence, state.parameters["w"].grad, state.step) == (None, None, 2)


@pytest.mark.parametrize("missing", [(0, LOAD), (2, STEP), (3, STEP)])
def test_there_is_no_state_where_a_record_is_missing(opened, missing):
    trace = opened("script", {moment: one for moment, one in WHOLE.items() if moment != missing})
    assert state_after_step(trace, 2) is None


def test_what_steps_do_not_record_is_taken_from_the_other_state():
    silent = optimizer([["a"], ["b"]], {})
    said = optimizer([["b"], ["a"]], {}, lr=0.5)
    other = optimizer([["a", "b"]], {}, lr=0.25)
    live = state_of(said, other, modes={"drop": True})
    after = without_silence(state_of(silent, other, modes={"drop": False}), live)
    assert after.modes == {"drop": True}
    assert [group.members for group in after.optimizers[0].groups] == [("a",), ("b",)]
    assert [group.hyperparameters["lr"] for group in after.optimizers[0].groups] == [number(0.5)] * 2
    own = optimizer([["a", "b"]], {}, lr=0.125)
    kept = without_silence(state_of(own, silent), state_of(other))
    assert kept.optimizers == (own, silent)
