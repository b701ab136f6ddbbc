"""Words of two generators' states that differ, of states that numpy and python made."""

import random

import numpy
import pytest

from ckptcheck.verdict.generators import words_apart


def python(seed, draws=0):
    generator = random.Random(seed)
    for _ in range(draws):
        generator.random()
    return generator.getstate()


def numpy_text(seed, draws=0):
    generator = numpy.random.RandomState(seed)
    generator.random_sample(draws)
    kind, words, *rest = generator.get_state()
    return f"({kind!r}, bytes:{words.tobytes().hex()}, {', '.join(map(str, rest))})", words


def python_text(seed, draws=0):
    state = python(seed, draws)
    return repr(str(state)), state[1][:-1]


@pytest.mark.parametrize("state", [python_text, numpy_text])
def test_words_and_places_are_counted(state):
    (left, words), (right, others) = state(1), state(2)
    found = words_apart(left, right)
    assert found.words == 624
    assert found.differing == sum(one != other for one, other in zip(words, others, strict=True)) > 600
    assert (found.left, found.right) == ("position 624", "position 624")


@pytest.mark.parametrize("state", [python_text, numpy_text])
def test_a_few_draws_move_the_place_only(state):
    found = words_apart(state(1, 1)[0], state(1, 3)[0])
    assert (found.differing, found.left, found.right) == (0, "position 2", "position 6")


def test_the_same_words_and_anything_else_are_not_told():
    one, _ = python_text(1)
    assert words_apart(one, one) is None
    assert words_apart(one, "other") is None
    assert words_apart(1, 2) is None
    assert words_apart(one.replace("None", "0.5"), one) is None
