"""Where a resumed trace belongs on the reference, by what it holds before its first step."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest

from ckptcheck.comparison.alignment import Alignment, align
from ckptcheck.errors import TraceError
from ckptcheck.trace.items import END, LOAD, STEP, Item, Sample
from ckptcheck.trace.measuring import plain
from tests.comparison.written import tensor, write

NAMES = ("a.weight", "a.bias", "b.weight")
KINDS = ("param", "state", "buffer", "schedule", "counter", "rng")
LAST = 12


@dataclass(frozen=True)
class Training:
    """What a training holds after each step. A kind maps a step to the step whose content it has then.

    Without a kind it has none of it. `frozen` are names of parameters that stay as they were at the start.
    """

    param: object = staticmethod(lambda step: step)
    state: object = staticmethod(lambda step: step)
    buffer: object = None
    schedule: object = None
    counter: object = None
    rng: object = None
    frozen: tuple[str, ...] = ()

    def after(self, step: int, **instead: object) -> dict[Item, Sample]:
        """What is held after a step; `instead` gives kinds as after other steps, or not at all where None."""
        at = {kind: instead.get(kind, step) for kind in KINDS}
        content = {
            kind: getattr(self, kind)(at[kind]) for kind in KINDS if getattr(self, kind) and at[kind] is not None
        }
        held: dict[Item, Sample] = {}
        for name in NAMES:
            rests = name in self.frozen
            if "param" in content:
                held[Item("param", name)] = tensor(f"p{name}{0 if rests else content['param']}")
            if "state" in content and at["state"] and not rests:  # there is no state before the first step
                held[Item("state", name, "exp_avg", 0)] = tensor(f"m{name}{content['state']}")
            if "counter" in content and at["counter"]:
                held[Item("state", name, "step", 0)] = plain(content["counter"])
        if "schedule" in content:
            held |= {Item("schedule", "last_epoch"): plain(content["schedule"]), Item("schedule", "lr"): plain(0.1)}
        for kind in {"buffer", "rng"} & content.keys():
            held[Item(kind, "torch")] = tensor(f"{kind}{content[kind]}")
        return held


def same(step: int) -> int:
    return step


def never(step: int) -> int:
    return 0


PLAIN = Training(counter=same, schedule=same, rng=same)
files = itertools.count()


def reference(folder: Path, training: Training, last: int = LAST, every: int = 1):
    """A trace as a script leaves it: generators stand in the record of the step that begins with them."""
    moments = {(0, LOAD): training.after(0)}
    for step in range(1, last + 1):
        after = training.after(step, rng=step - 1)
        if step % every == 0:
            moments[step, STEP] = after
    moments[last, END] = {item: one for item, one in training.after(last).items() if item.kind == "rng"}
    return write(folder / f"{next(files)}.trace", moments)


def resumed(folder: Path, load: dict[Item, Sample], digest: str = "xxh3_128"):
    return write(folder / f"{next(files)}.trace", {(0, LOAD): load, (1, STEP): load}, digest)


def placed(folder: Path, training: Training, load: dict[Item, Sample], hint: int | None = None, **how) -> Alignment:
    traces = reference(folder, training, **how), resumed(folder, load)
    found = align(*traces, hint)
    for one in traces:
        one.close()
    return found


@pytest.mark.parametrize("hint", [None, 3, 7])
@pytest.mark.parametrize("step", [1, 7, LAST])
def test_what_was_loaded_whole_is_found_whatever_the_hint(tmp_path, step, hint):
    found = placed(tmp_path, PLAIN, PLAIN.after(step), hint)
    assert (found.step, found.by, found.matched, found.of) == (step, "content", 9, 9)
    assert f"after step {step}" in found.why


@pytest.mark.parametrize(
    ("training", "instead"),
    [
        (PLAIN, {"param": 0}),
        (PLAIN, {"param": None}),
        (PLAIN, {"state": None, "counter": None}),
        (PLAIN, {"state": None, "counter": None, "schedule": 0, "rng": 0}),
        (PLAIN, {"param": 0, "schedule": 0, "rng": 0}),
        (PLAIN, {"schedule": 3, "rng": 2}),
        (PLAIN, {"counter": 2}),
        (Training(state=None), {}),
        (Training(state=None, frozen=NAMES[:2]), {}),
        (Training(param=never), {}),
        (Training(param=never), {"rng": 0}),
        (Training(param=never, state=None, buffer=same), {}),
        (Training(param=never, state=None, rng=same), {}),
    ],
)
def test_the_rest_tells_the_step_where_a_part_was_not_loaded(tmp_path, training, instead):
    found = placed(tmp_path, training, training.after(7, **instead))
    assert (found.step, found.by) == (7, "content")


def test_one_wrong_tensor_does_not_hide_the_step(tmp_path):
    for wrong in (tensor("other"), tensor("pa.weight7", dtype="float16"), tensor("pa.weight7", 4)):
        found = placed(tmp_path, PLAIN, {**PLAIN.after(7), Item("param", "a.weight"): wrong})
        assert (found.step, found.by, found.matched, found.of) == (7, "content", 8, 9)


@pytest.mark.parametrize("training", [Training(param=never, state=None, schedule=same),
                                      Training(param=never, state=None, counter=same)])  # fmt: skip
def test_of_frozen_models_schedules_and_counters_tell_the_step(tmp_path, training):
    found = placed(tmp_path, training, training.after(7))
    assert (found.step, found.by) == (7, "counters")


@pytest.mark.parametrize("kind", ["rng", "buffer", "schedule"])
def test_of_two_steps_with_the_same_content_something_else_tells(tmp_path, kind):
    resting = Training(param=lambda step: min(step, 4), state=None, **{kind: same})
    assert placed(tmp_path, resting, resting.after(8)).step == 8
    assert placed(tmp_path, resting, resting.after(8), 6).step == 8


def test_of_steps_that_nothing_tells_apart_the_hint_is_taken_if_it_is_among_them(tmp_path):
    resting = Training(param=lambda step: min(step, 4), state=None)
    assert placed(tmp_path, resting, resting.after(8)).step == 4
    assert placed(tmp_path, resting, resting.after(8), 6).step == 6
    assert placed(tmp_path, resting, resting.after(8), 2).step == 4


def test_weights_of_one_step_and_state_of_another_are_placed_at_the_hint_else_at_the_weights(tmp_path):
    mixed = PLAIN.after(9, state=5, counter=5)
    assert [placed(tmp_path, PLAIN, mixed, hint).step for hint in (None, 5, 9, 2)] == [9, 5, 9, 9]


@pytest.mark.parametrize("digits", [{"counter": 7}, {"schedule": 7}, {"counter": 7, "schedule": 3}])
def test_where_no_content_is_found_counters_tell_the_step(tmp_path, digits):
    load = {
        item: tensor(f"x{item}") if item.kind == "param" or item.key == "exp_avg" else one
        for item, one in PLAIN.after(7, **{"counter": None, "schedule": None, "rng": None, **digits}).items()
    }
    for hint in (None, 3):
        found = placed(tmp_path, PLAIN, load, hint)
        assert (found.step, found.by, found.matched) == (7, "counters", 3 * ("counter" in digits))
    assert "counters and schedules" in found.why


def test_few_tensors_that_agree_by_chance_do_not_outweigh_counters(tmp_path):
    load = {item: tensor(f"x{item}") if item.kind == "param" or item.key == "exp_avg" else one
            for item, one in PLAIN.after(7, rng=None).items()}  # fmt: skip
    load[Item("param", "a.bias")] = PLAIN.after(4)[Item("param", "a.bias")]
    found = placed(tmp_path, PLAIN, load)
    assert (found.step, found.by) == (7, "counters")


def test_counters_tell_a_step_that_was_not_recorded(tmp_path):
    found = placed(tmp_path, PLAIN, PLAIN.after(7), every=4)
    assert (found.step, found.by) == (7, "counters")
    assert placed(tmp_path, PLAIN, PLAIN.after(8), every=4).by == "content"


def test_a_schedule_that_counts_twice_a_step_tells_the_step_too(tmp_path):
    twice = Training(param=never, state=None, schedule=lambda step: 2 * step)
    assert placed(tmp_path, twice, twice.after(7), every=4).step == 7
    assert placed(tmp_path, twice, {Item("schedule", "last_epoch"): plain(7)}, every=4).by == "start"


def test_a_run_that_loaded_nothing_is_placed_at_the_hint_and_it_is_said(tmp_path):
    found = placed(tmp_path, PLAIN, PLAIN.after(0), 7)
    assert (found.step, found.by, found.matched, found.of) == (7, "start", 3, 3)
    assert "loaded nothing" in found.why and "after step 7" in found.why
    found = placed(tmp_path, PLAIN, PLAIN.after(0))
    assert (found.step, found.by) == (0, "start")
    assert "loaded nothing" not in found.why


@pytest.mark.parametrize(("hint", "step", "by"), [(7, 7, "hint"), (None, 0, "start")])
@pytest.mark.parametrize("load", [{Item("param", name): tensor(f"x{name}") for name in NAMES},
                                  {Item("param", "elsewhere"): tensor("pa.weight7")}, {}])  # fmt: skip
def test_where_nothing_is_found_only_the_hint_is_left(tmp_path, load, hint, step, by):
    found = placed(tmp_path, PLAIN, load, hint)
    assert (found.step, found.by, found.matched) == (step, by, 0)
    assert "nothing" in found.why


def test_a_trace_without_a_load_is_placed_at_the_hint(tmp_path):
    trace = write(tmp_path / "bare.trace", {(1, STEP): PLAIN.after(1)})
    found = align(reference(tmp_path, PLAIN), trace, 5)
    assert (found.step, found.by) == (5, "hint")
    assert align(trace, resumed(tmp_path, PLAIN.after(1))).step == 1


@pytest.mark.parametrize(("ours", "theirs"), [("", "module."), ("model.", ""), ("", "_orig_mod.inner.")])
def test_a_prefix_before_all_names_does_not_matter(tmp_path, ours, theirs):
    def named(samples, prefix):
        return {item._replace(name=prefix + item.name) if item.kind in ("param", "state") else item: one
                for item, one in samples.items()}  # fmt: skip

    moments = {(0, LOAD): named(PLAIN.after(0), ours)}
    moments |= {(step, STEP): named(PLAIN.after(step, rng=step - 1), ours) for step in range(1, LAST)}
    found = align(write(tmp_path / "r.trace", moments), resumed(tmp_path, named(PLAIN.after(7), theirs)))
    assert (found.step, found.by, found.matched) == (7, "content", 9)


def test_a_reference_that_was_itself_resumed_counts_its_own_steps(tmp_path):
    moments = {(0, LOAD): PLAIN.after(20)}
    moments |= {(step, STEP): PLAIN.after(20 + step, rng=19 + step) for step in range(1, 6)}
    trace = write(tmp_path / "second.trace", moments)
    assert align(trace, resumed(tmp_path, PLAIN.after(23))).step == 3
    assert align(trace.shifted(20), resumed(tmp_path, PLAIN.after(23))).step == 23
    assert align(trace, resumed(tmp_path, PLAIN.after(20))).by == "start"


def test_one_tensor_that_moves_among_very_many_that_rest_is_found(tmp_path):
    many = {Item("param", f"layer.{place}"): tensor(place) for place in range(3000)}
    moving = Item("param", "layer.1234")
    moments = {(0, LOAD): many} | {(step, STEP): {**many, moving: tensor(f"at {step}")} for step in range(1, 9)}
    found = align(write(tmp_path / "many.trace", moments), resumed(tmp_path, {**many, moving: tensor("at 6")}))
    assert (found.step, found.by, found.matched, found.of) == (6, "content", 3000, 3000)


def test_few_right_tensors_among_many_wrong_ones_are_found(tmp_path):
    items = [Item("param", f"layer.{place}") for place in range(1000)]
    steps = {step: {item: tensor(f"{item.name[6:]} {step}") for item in items} for step in range(9)}
    moments = {(0, LOAD): steps[0]} | {(step, STEP): steps[step] for step in range(1, 9)}
    right = [item for place, item in enumerate(items) if place % 10 == 7]
    load = {**{item: tensor(f"wrong {item.name[6:]}") for item in items}, **{item: steps[5][item] for item in right}}
    found = align(write(tmp_path / "many.trace", moments), resumed(tmp_path, load))
    assert (found.step, found.by, found.matched, found.of) == (5, "content", 100, 1000)


def test_digests_of_two_algorithms_are_never_compared(tmp_path):
    with pytest.raises(TraceError, match="unlike digests"):
        align(reference(tmp_path, PLAIN), resumed(tmp_path, PLAIN.after(7), "linear_128"))


def test_a_reference_of_one_step_tells_it_by_its_counters(tmp_path):
    found = placed(tmp_path, PLAIN, PLAIN.after(1, param=None, state=None), last=1)
    assert (found.step, found.by) == (1, "counters")


def test_what_one_step_has_of_weights_and_state_together_comes_before_either_alone(tmp_path):
    training = Training(param=lambda step: max(step, 4))
    found = placed(tmp_path, training, training.after(3))
    assert (found.step, found.by, found.matched, found.of) == (3, "content", 6, 6)


def test_generators_as_the_run_left_them_at_its_end_tell_its_last_step(tmp_path):
    training = Training(param=never, state=None, rng=same)
    assert placed(tmp_path, training, training.after(LAST)).step == LAST
