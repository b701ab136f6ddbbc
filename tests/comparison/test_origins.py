"""Where content has been seen before."""

import pytest

from ckptcheck.comparison.origins import Origins
from ckptcheck.trace.items import SAVED, Item
from ckptcheck.trace.measuring import plain
from tests.comparison.written import content, steps, tensor, write

W, B, LR = Item("param", "w"), Item("param", "b"), Item("hyper", "", "lr", 0, 0)


@pytest.fixture
def origins(tmp_path):
    samples = [
        {W: tensor(w), B: tensor(b), LR: plain(rate), Item("updates", optimizer=0): plain(updates)}
        for w, b, rate, updates in ((1, 5, 0.1, 1), (2, 5, 0.2, 0), (3, 6, 0.1, 2), (2, 6, 0.3, 1))
    ]
    trace = write(tmp_path / "one.trace", {**steps(*samples), (4, SAVED): {W: tensor(9)}})
    yield Origins(trace)
    trace.close()


def test_content_is_found_at_every_step_that_had_it(origins):
    assert origins.steps_of(W, content(2)) == {2, 4}
    assert origins.steps_of(W, content(7)) == origins.steps_of(Item("param", "x"), content(1)) == set()
    assert origins.steps_of(W, content(9)) == set()


def test_a_common_step_is_the_first_that_had_all_of_it(origins):
    assert origins.common_step([(W, content(2))]) == 2
    assert origins.common_step([(W, content(2)), (B, content(6))]) == 4
    assert origins.common_step([(W, content(1)), (B, content(6))]) is None
    assert origins.common_step([]) is None


def test_a_value_is_found_at_its_first_step(origins):
    assert origins.step_with_value(LR, 0.1) == 1
    assert origins.step_with_value(LR, 0.3) == 4
    assert origins.step_with_value(LR, 0.7) is None
    assert origins.step_with_value(W, 0.1) is None


def test_whether_an_optimizer_made_an_update_in_a_step_is_known(origins):
    assert [origins.updated(step, 0) for step in (1, 2, 3)] == [True, False, True]
    assert not origins.updated(1, 5)
    assert not origins.updated(99, 0)


def test_where_updates_were_not_counted_no_update_has_read_a_gradient(tmp_path):
    gradient = Item("grad", "w")
    trace = write(tmp_path / "two.trace", steps({gradient: tensor(1)}, {gradient: tensor(1)}))
    assert not Origins(trace).last_read(2, 0, "w", content(1))
    trace.close()
    counted = {gradient: tensor(1), Item("updates", optimizer=0): plain(1)}
    trace = write(
        tmp_path / "three.trace", steps(counted, {gradient: tensor(2), Item("updates", optimizer=0): plain(0)})
    )
    assert Origins(trace).last_read(2, 0, "w", content(1))
    assert not Origins(trace).last_read(2, 0, "w", content(2))
    trace.close()
