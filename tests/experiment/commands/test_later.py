"""Which checkpoints two runs both saved after a resume: told from what each step changed in their folders."""

import pytest
import torch

from ckptcheck.experiment.commands.later import SavedTwice, saved_twice

PLACES = ("6.pt", "9.pt", "12.pt", "best.pt", "only-left.pt", "start.pt", "notes.txt", "deep/12/a.pt")
ROWS = [
    ("the last step and the first one", {"6.pt": 6, "9.pt": 9, "12.pt": 12}, {"6.pt": 3, "9.pt": 6, "12.pt": 9},
     [("12.pt", 12), ("6.pt", 6)]),
    ("all that one step wrote", {"12.pt": 12, "best.pt": 12}, {"12.pt": 9, "best.pt": 9},
     [("best.pt", 12), ("12.pt", 12)]),
    ("nothing of another step", {"12.pt": 12, "best.pt": 8}, {"12.pt": 9, "best.pt": 9}, [("12.pt", 12)]),
    ("nothing from before the resume", {"start.pt": 3, "6.pt": 6}, {"start.pt": 0, "6.pt": 3}, [("6.pt", 6)]),
    ("nothing that one run alone wrote", {"only-left.pt": 12}, {}, []),
    ("nothing without tensors", {"notes.txt": 12}, {"notes.txt": 9}, []),
    ("what lies deeper", {"deep/12/a.pt": 12}, {"deep/12/a.pt": 9}, [("deep/12/a.pt", 12)]),
    ("nothing that is gone again", {"3.pt": 5}, {"3.pt": 2}, []),
]  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    both = [tmp_path_factory.mktemp(name) for name in ("left", "right")]
    for folder in both:
        for name in PLACES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if name.endswith(".pt"):
                torch.save({"weight": torch.ones(2, 2)}, folder / name)
            else:
                (folder / name).write_text("text")
    return both


@pytest.mark.parametrize(("left", "right", "found"), [one[1:] for one in ROWS], ids=[one[0] for one in ROWS])
def test_what_both_runs_saved_after_the_same_step_is_found(folders, left, right, found):
    assert saved_twice(folders[0], left, folders[1], right, 3) == [SavedTwice(*one) for one in found]
