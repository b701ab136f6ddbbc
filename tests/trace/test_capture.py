"""Tensors laid out for a second pass, as the process that laid them out held them."""

import json

import pytest
import torch

from ckptcheck.experiment.laid import Laid
from ckptcheck.trace.capture import Capture
from ckptcheck.trace.items import LOAD, STEP, Item

WEIGHT, INPUT = Item("param", "w"), Item("inputs", "x")


def capture(folder, *rows):
    wanted = folder / "wanted.json"
    wanted.write_text(json.dumps([{"step": one, "moment": moment, "items": items} for one, moment, items in rows]))
    return Capture(folder / "laid", wanted)


def held(folder, step, moment):
    laid = Laid(folder / "laid", step, moment)
    return {item: (laid.spec(item).shape, bytes(laid.fetch(item))) for item in laid.places}


def test_moments_that_overlap_are_kept_apart(tmp_path):
    one = capture(tmp_path, (0, LOAD, [WEIGHT]), (1, STEP, [WEIGHT, INPUT]))
    before, after, entered = torch.zeros(2, 3), torch.ones(2, 3), torch.arange(4)
    one.take(0, LOAD, WEIGHT, before)
    one.take(1, STEP, INPUT, entered)  # the load is written when its first step has begun
    assert one.close(0, LOAD)
    one.take(1, STEP, WEIGHT, after)
    assert one.close(1, STEP)
    assert held(tmp_path, 0, LOAD) == {WEIGHT: ((2, 3), before.numpy().tobytes())}
    assert held(tmp_path, 1, STEP) == {
        INPUT: ((4,), entered.numpy().tobytes()), WEIGHT: ((2, 3), after.numpy().tobytes()),
    }  # fmt: skip


def test_a_later_sample_of_a_moment_wins_and_what_nobody_wants_is_left_out(tmp_path):
    one = capture(tmp_path, (3, STEP, [WEIGHT]))
    one.take(3, STEP, WEIGHT, torch.zeros(2))
    one.take(3, STEP, INPUT, torch.zeros(2))
    one.take(4, STEP, WEIGHT, torch.zeros(2))
    one.take(3, STEP, WEIGHT, torch.tensor([1.0, 2.0]))
    assert (one.close(3, STEP), one.close(4, STEP)) == (True, False)
    assert held(tmp_path, 3, STEP) == {WEIGHT: ((2,), torch.tensor([1.0, 2.0]).numpy().tobytes())}
    assert not (tmp_path / "laid" / "4-step.bin").exists()


def test_a_moment_of_which_nothing_was_there_is_laid_out_empty(tmp_path):
    assert capture(tmp_path, (3, STEP, [WEIGHT])).close(3, STEP)
    assert held(tmp_path, 3, STEP) == {}
    with pytest.raises(OSError, match="4-step"):
        Laid(tmp_path / "laid", 4, STEP)


def test_what_is_wanted_of_many_steps_is_laid_out_from_its_own_first_one_on(tmp_path):
    wanted = tmp_path / "wanted.json"
    lasting = {"steps": [3, 4, 6], "moment": STEP, "items": [WEIGHT, INPUT], "first": [3, 4]}
    wanted.write_text(json.dumps([{"step": 5, "moment": STEP, "items": [INPUT]}, lasting]))
    one = Capture(tmp_path / "laid", wanted)
    found = {}
    for step in range(2, 8):
        for item in (WEIGHT, INPUT):
            one.take(step, STEP, item, torch.zeros(1))
            one.take(step, LOAD, item, torch.zeros(1))
        if one.close(step, STEP):
            found[step] = held(tmp_path, step, STEP).keys()
        assert not one.close(step, LOAD)
    assert found == {3: {WEIGHT}, 4: {WEIGHT, INPUT}, 5: {INPUT}, 6: {WEIGHT, INPUT}}
