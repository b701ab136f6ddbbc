"""What the text says of checkpoints that two runs saved later."""

import pytest

from ckptcheck.finding import Compared, Result, Verdict
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render

EQUAL = {"path": "c.pt", "step": 10, "tensors": 0, "generators": 0, "values": 0, "chance": 0, "reason": None}
ROWS = [
    ({}, "Saved later  c.pt, step 10: as in the reference"),
    ({"tensors": 4}, "Saved later  c.pt, step 10: 4 tensors differ"),
    ({"generators": 1}, "Saved later  c.pt, step 10: 1 generator differs"),
    ({"tensors": 1, "values": 2}, "Saved later  c.pt, step 10: 1 tensor and 2 plain values differ"),
    ({"chance": 2}, "Saved later  c.pt, step 10: as in the reference, but for 2 values in which equal runs differ too"),
    ({"path": "a\x1b[2Jb.pt"}, "Saved later  a\\x1b[2Jb.pt, step 10: as in the reference"),
]


def text(detail: Detail = Detail.NORMAL, **changes: object) -> str:
    parts = {"saved_later": [{**EQUAL, **changes}], "trajectory": []}
    return render(Result("verify", Verdict.PASS, Compared(1, 1, 1, 4), parts=parts), Page(width=200, detail=detail))


@pytest.mark.parametrize(("changes", "said"), ROWS, ids=[said for _, said in ROWS])
def test_a_checkpoint_has_a_row(changes, said):
    assert said in text(**changes).splitlines()


def test_what_was_not_compared_is_told_where_all_is_wanted():
    assert "Saved later" not in text(reason="it is torn")
    assert "Saved later  c.pt, step 10: not compared: it is torn" in text(Detail.ALL, reason="it is torn")
