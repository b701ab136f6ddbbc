import json
import os
import pickle

import pytest
import torch

from ckptcheck.errors import RunFailedError
from ckptcheck.experiment.commands.checkpoints import checkpoint_in, holds_tensors
from ckptcheck.experiment.commands.finding import chosen_step, found_after, found_in
from ckptcheck.trace.script.rendezvous import listing


@pytest.fixture
def written(tmp_path):
    """Write files: tensors of so many numbers where the value is a number, else the text."""

    def write(files):
        for name, value in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(value, str):
                path.write_text(value)
            else:
                torch.save({"w": torch.zeros(value)}, path)
        return tmp_path

    return write


# What was written before, what the step wrote, and which of it is the checkpoint.
CASES = {
    "one file beside a log": ({}, {"last.pt": 10, "log.csv": "1", "events.out": "x", "config.json": "{}"}, "last.pt"),
    "one file in a folder": ({}, {"ckpts/last.pt": 10}, "ckpts/last.pt"),
    "a file of each step": ({"s5.pt": 10}, {"s10.pt": 10}, "s10.pt"),
    "two whole ones, the fuller": ({}, {"last.pt": 5000, "best.pt": 10}, "last.pt"),
    "a folder by its name": (
        {}, {"run/checkpoint-5/pytorch_model.bin": 9, "run/checkpoint-5/trainer_state.json": "{}"}, "run/checkpoint-5",
    ),
    "a folder of parts": ({}, {"ck/model.pt": 10, "ck/optimizer.pt": 10, "ck/rng_state.pth": 10}, "ck"),
    "a folder of parts beside an older one": (
        {"checkpoint-5/model.pt": 9, "checkpoint-5/optimizer.pt": 9},
        {"checkpoint-10/model.pt": 9, "checkpoint-10/optimizer.pt": 9}, "checkpoint-10",
    ),
    "parts in the output folder itself": ({}, {"model.pt": 10, "optimizer.pt": 10, "scheduler.pt": 10}, "."),
    "a file beside weights to begin with": (
        {"pretrained.pt": 5000, "optimizer.pt": 9}, {"out/last.pt": 10}, "out/last.pt",
    ),
    "one file in a numbered folder": ({}, {"step-5/model.pt": 10}, "step-5/model.pt"),
    "one file of weights in a numbered folder": ({}, {"checkpoint-5/a.safetensors": 10}, "checkpoint-5/a.safetensors"),
    "logs only": ({}, {"log.csv": "1", "metrics.json": "{}"}, None),
    "a file in the folders of a run": (
        {}, {"v0/ck/epoch=0-step=5.ckpt": 9, "v0/hparams.yaml": "a: 1"}, "v0/ck/epoch=0-step=5.ckpt",
    ),
    "a tag with its tracker": (
        {},
        {"global_step5/mp_rank_00_model_states.pt": 9, "global_step5/zero_pp_rank_0_optim_states.pt": 9, "latest": "g"},
        "global_step5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_checkpoint_of_a_step_is_found_among_what_it_wrote(name, written):
    before, now, wanted = CASES[name]
    written(before)
    folder = written(now)
    found = checkpoint_in(folder, list(now), list(before))
    assert found == (folder / wanted if wanted else None)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_is_a_folder_also_where_it_is_the_output_folder(written):
    import torch.distributed.checkpoint as dcp

    folder = written({})
    for place in ("", "step5"):
        dcp.save({"w": torch.zeros(3)}, checkpoint_id=folder / place, no_dist=True)
        files = [one for one in listing(folder) if one.startswith(place)]
        assert checkpoint_in(folder, files) == (folder / place if place else folder)
        for one in files:
            (folder / one).unlink()


def test_equals_are_told_apart_by_their_age(written):
    folder = written({"a.pt": 10, "b.pt": 10})
    for newer, older in (("a.pt", "b.pt"), ("b.pt", "a.pt")):
        os.utime(folder / newer, (2000, 2000))
        os.utime(folder / older, (1000, 1000))
        assert checkpoint_in(folder, ["a.pt", "b.pt"]) == folder / newer


def test_a_link_that_leads_nowhere_in_a_checkpoint_has_no_size(written):
    folder = written({"step-4/model.pt": 3, "step-4/optimizer.pt": 3, "last.pt": 3})
    (folder / "step-4" / "latest").symlink_to("gone")
    assert checkpoint_in(folder, ["step-4/model.pt", "step-4/optimizer.pt", "last.pt"]) == folder / "step-4"


def test_files_are_told_by_their_content(written, tmp_path):
    folder = written({"a": 3, "b.txt": 3, "c.pt": "no tensor", "d.json": "{}"})
    (folder / "e.pkl").write_bytes(pickle.dumps({"w": [1.0]}))
    (folder / "f").symlink_to("a")
    held = {name: holds_tensors(folder / name) for name in ("a", "b.txt", "c.pt", "d.json", "e.pkl", "f", "gone")}
    assert held == {"a": True, "b.txt": False, "c.pt": False, "d.json": False, "e.pkl": True, "f": False, "gone": False}


def test_the_step_is_the_one_nearest_to_half_and_never_the_last(written):
    folder = written({"last.pt": 3, "log.csv": "1"})
    saves = {step: ("log.csv", "last.pt") if step % 3 == 0 else ("log.csv",) for step in range(1, 13)}
    assert chosen_step(folder, saves, 12) == 6
    assert chosen_step(folder, {3: ("last.pt",), 9: ("last.pt",)}, 12) == 3
    assert chosen_step(folder, {2: ("last.pt",), 9: ("last.pt",), 12: ("last.pt",)}, 12) == 9
    assert chosen_step(folder, {4: ("step-4/model.pt",), 12: ("last.pt",)}, 12) == 4, "what was rotated away counts"
    for nothing in ({}, {12: ("last.pt",)}, {6: ("log.csv",)}):
        with pytest.raises(RunFailedError, match="no checkpoint before its last step"):
            chosen_step(folder, nothing, 12)


def test_the_newest_checkpoint_up_to_a_step_is_found(written):
    folder = written({"s3.pt": 3, "s6.pt": 3, "s9.pt": 3, "base.pt": 3})
    changes = {3: ("s3.pt",), 4: ("log.csv",), 6: ("s6.pt",), 9: ("s9.pt",)}
    for step, wanted in ((3, 3), (5, 3), (6, 6), (8, 6), (9, 9)):
        found = found_in(folder, changes, step, {"base.pt"})
        assert found is not None
        assert (found.path, found.step) == (folder / f"s{wanted}.pt", wanted)
    assert found_in(folder, changes, 2, {"base.pt"}) is None
    written({"ck/model.pt": 3, "ck/optimizer.pt": 3})
    for initial, wanted in ((set(), "ck"), ({"ck/optimizer.pt"}, "ck/model.pt")):
        found = found_in(folder, {3: ("ck/model.pt",)}, 3, initial)
        assert found is not None
        assert found.path == folder / wanted


def test_what_was_written_after_a_signal_is_told_from_what_was_there(written):
    folder = written({"last.pt": 3})
    before = listing(folder)
    assert found_after(folder, before) is None
    written({"interrupted.pt": 3, "note.json": json.dumps({})})
    found = found_after(folder, before)
    assert found is not None
    assert (found.path, found.step) == (folder / "interrupted.pt", None)


def test_of_several_files_the_one_that_a_training_goes_on_from_is_taken(tmp_path):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(both, tmp_path / "last.pt")
    torch.save(torch.get_rng_state(), tmp_path / "rng-0.pt")  # more bytes than the model
    torch.save(torch.zeros(10_000), tmp_path / "features.pt")
    torch.save({"model": model.state_dict(), "pad": torch.zeros(10_000)}, tmp_path / "weights.pt")
    sizes = {one.name: one.stat().st_size for one in tmp_path.iterdir()}
    assert min(sizes, key=sizes.get) == "last.pt"
    for names, wanted in (
        (["last.pt", "rng-0.pt"], "last.pt"),
        (["last.pt", "features.pt", "weights.pt"], "last.pt"),
        (["rng-0.pt"], "rng-0.pt"),
    ):
        assert checkpoint_in(tmp_path, names) == tmp_path / wanted
    (tmp_path / "last.pt").unlink()
    (tmp_path / "rng-0.pt").unlink()
    assert checkpoint_in(tmp_path, ["features.pt"]) == tmp_path / "features.pt"


def test_two_whole_checkpoints_in_the_output_folder_are_two_and_those_of_ranks_in_a_folder_are_one(tmp_path):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    both = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    (tmp_path / "step5").mkdir()
    for name in ("a.pt", "b.pt", "step5/rank0.pt", "step5/rank1.pt"):
        torch.save(both, tmp_path / name)
        os.utime(tmp_path / name, (1000, 1000))
    os.utime(tmp_path / "b.pt", (2000, 2000))
    assert checkpoint_in(tmp_path, ["a.pt", "b.pt"]) == tmp_path / "b.pt"
    assert checkpoint_in(tmp_path, ["step5/rank0.pt", "step5/rank1.pt"]) == tmp_path / "step5"
