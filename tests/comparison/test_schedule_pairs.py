"""Several learning rate schedulers, under names, numbers or neither."""

import pytest

from tests.comparison.held import checkpoint, diff, told

COSINE = {"T_max": 10, "last_epoch": 3, "_last_lr[0]": 0.1}
PLATEAU = {"patience": 2, "num_bad_epochs": 0, "last_epoch": 3}
LAMBDA = {"base_lrs[0]": 0.1, "last_epoch": 4}


def schedules(**by_label):
    return checkpoint(schedule={
        f"{label}.{path}" if label else path: value for label, one in by_label.items() for path, value in one.items()
    })  # fmt: skip


def numbered(*each):
    return schedules(**{f"[{place}]": one for place, one in enumerate(each)})


@pytest.mark.parametrize(("left", "right"), [
    (schedules(warmup=COSINE, plateau=PLATEAU), numbered(COSINE, PLATEAU)),
    (numbered(COSINE, PLATEAU), schedules(warmup=COSINE, plateau=PLATEAU)),
    (schedules(a=COSINE, b=PLATEAU), schedules(b=PLATEAU, a=COSINE)),
    (schedules(**{"a.b[0]": COSINE}), schedules(**{"a.b[0]": COSINE})),
    (numbered(COSINE, COSINE), numbered(COSINE, COSINE)),
])  # fmt: skip
def test_names_and_numbers_of_the_same_schedulers_are_no_difference(left, right):
    found = diff(left, right)
    assert found.same_content
    assert found.summaries[0].values == len(left.state.sections["schedule"])


@pytest.mark.parametrize(("left", "right", "label"), [
    (schedules(a=COSINE, b=PLATEAU, c=LAMBDA), schedules(a=COSINE, c=LAMBDA), "b"),
    (numbered(COSINE, PLATEAU, LAMBDA), numbered(COSINE, LAMBDA), "[1]"),
    (schedules(a=COSINE, b=PLATEAU, c=LAMBDA), numbered(COSINE, LAMBDA), "b"),
    (schedules(a=COSINE, b=PLATEAU), schedules(**{"": COSINE}), "b"),
])  # fmt: skip
def test_one_that_the_right_lacks_is_told_alone(left, right, label):
    assert told(diff(left, right)) == [(f"scheduler/{label}.{path}", "removed") for path in PLATEAU]


def test_one_that_the_left_lacks_keeps_a_name_of_its_own():
    found = diff(numbered(COSINE, LAMBDA), numbered(COSINE, PLATEAU, LAMBDA))
    assert told(found) == [(f"scheduler/[2].{path}", "added") for path in PLATEAU]


def test_a_value_that_differs_is_told_under_the_lefts_name():
    found = diff(schedules(a=COSINE, b=PLATEAU), numbered(COSINE, PLATEAU | {"last_epoch": 9}))
    assert told(found) == [("scheduler/b.last_epoch", "changed")]
