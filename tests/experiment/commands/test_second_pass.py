"""Which steps of two commands are laid out: the first that differs always, the others as there is room."""

import pytest

from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.experiment.commands import second_pass
from ckptcheck.experiment.commands.second_pass import Apart
from ckptcheck.finding import Compared
from ckptcheck.trace.items import Item
from tests.comparison.written import tensor

BYTES = 16
"""Of a float32 tensor of 2 by 2."""


@pytest.mark.parametrize(("steps", "room", "chosen"), [
    ([], 1 << 40, set()), ([7], 1 << 40, {7}), ([7, 8, 9], 1 << 40, {7, 8, 9}), ([7], 4 * BYTES, {7}),
    ([7], 4 * BYTES - 4, None), ([7, 8, 9], 4 * BYTES, {7}), ([7, 8, 9], 8 * BYTES, {7, 9}),
])  # fmt: skip
def test_a_quarter_of_the_free_disk_takes_the_first_and_of_the_others_the_last(steps, room, chosen):
    apart = tuple(Difference(step, Item("param", "w"), tensor(1), tensor(2)) for step in steps)
    rank = Apart(0, 6, None, TraceDiff(tuple(steps), Compared(), apart), BYTES)
    assert second_pass._affordable([rank], room) == (None if chosen is None else frozenset(chosen))
