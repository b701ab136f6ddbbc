"""Where a step of a script ends, as a table of updates."""

import pytest

from ckptcheck.trace.script.windows import Windows

PARAMETERS = {"A": "a", "B": "b", "C": "c", "M": "ab", "a": "a"}
"""What each optimizer holds; `a` is another one over what A holds, and M is over what A and B hold."""


def steps(updates: str) -> list[int]:
    """The step of each update; `|` closes the step in progress, `x` takes the update before it back."""
    windows, found, marks = Windows(), [], []
    for one in updates:
        if one == "|":
            windows.close()
        elif one == "x":
            windows.back(marks.pop())
            found.pop()
        else:
            marks.append(windows.mark())
            opens = windows.opens(ord(one), _held(one))
            assert windows.count(ord(one), _held(one)) is opens
            found.append(windows.step)
    return found


def _held(optimizer: str) -> frozenset[int]:
    return frozenset(map(ord, PARAMETERS[optimizer]))


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        ("", []),
        ("A", [1]),
        ("AAA", [1, 2, 3]),
        ("ABAB", [1, 1, 2, 2]),
        ("ABCABC", [1, 1, 1, 2, 2, 2]),
        ("AABAAB", [1, 2, 2, 3, 4, 4]),  # two updates of a critic for one of the generator
        ("ABBABB", [1, 1, 2, 2, 3, 4]),  # told by who updates again, and not by who began
        ("Aa", [1, 2]),  # another optimizer over the same parameters
        ("ABM", [1, 1, 2]),
        ("AMB", [1, 2, 3]),
        ("A|B", [1, 2]),
        ("A|BAB", [1, 2, 2, 3]),
        ("|A", [1]),
        ("A|A", [1, 2]),
        ("A|BB", [1, 2, 3]),
        ("AxA", [1]),
        ("AAxA", [1, 2]),
        ("ABxBA", [1, 1, 2]),
        ("AAxB", [1, 2]),  # the step was over, and what took its end back does not join it
        ("A|BxB", [1, 2]),
        ("A|BxA", [1, 2]),
    ],
)
def test_a_step_ends_before_a_second_update_of_the_same(updates, expected):
    assert steps(updates) == expected


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        ("A", [False]),
        ("ABABA", [False, False, False, True, False]),
        ("AAA", [False, True, True]),
        ("ABAA", [False, False, False, True]),
        ("A|BA", [False, False, True]),
    ],
)
def test_a_step_looks_complete_when_all_of_the_step_before_have_updated(updates, expected):
    windows, found = Windows(), []
    for one in updates:
        if one == "|":
            windows.close()
        else:
            windows.count(ord(one), _held(one))
            found.append(windows.looks_complete)
    assert found == expected


def test_an_optimizer_whose_parameters_have_all_been_replaced_still_opens_a_step():
    windows = Windows()
    assert windows.count(1, frozenset({10})) and windows.count(1, frozenset({20}))
    assert windows.step == 2
