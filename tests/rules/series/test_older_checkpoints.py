"""What is said of checkpoints of a run that were not read."""

from pathlib import Path

import pytest

from ckptcheck.rules.rule import judged
from ckptcheck.rules.series.files import RULES
from ckptcheck.rules.series.series import Member, Series


def reasons(**values):
    series = Series(Path("run"), values.pop("members", ()), **values)
    return [one.reason for one in judged(RULES, series, {})[1] if one.code == "CK101"]


@pytest.mark.parametrize(("left_out", "said"), [
    (0, []),
    (1, ["1 older checkpoint of this run was not read"]),
    (2, ["2 older checkpoints of this run were not read"]),
])  # fmt: skip
def test_older_ones_that_were_not_read_are_counted(left_out, said):
    assert reasons(left_out=left_out) == said


def test_one_that_was_refused_is_named_but_where_it_was_passed_over_already():
    members = (Member("step-1", 1, 0.0, False, refused="a file of 9 GB"), Member("step-2", 2, 0.0, True))
    assert reasons(members=members) == ["step-1, another checkpoint of this run, was not read: a file of 9 GB"]
    assert reasons(members=members, passed_over={"step-1": "it is not whole"}) == []
