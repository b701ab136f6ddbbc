"""Which checkpoint a run folder holds after a step, where several ranks write it."""

import pytest
import torch

from ckptcheck.experiment.commands.finding import chosen_step, found_in


@pytest.fixture
def folder(tmp_path):
    for step in (3, 5):
        place = tmp_path / f"step-{step}"
        place.mkdir()
        for rank in (0, 1):
            torch.save(torch.get_rng_state(), place / f"rng-{rank}.pt")
        weight = torch.ones(2, requires_grad=True)
        weight.sum().backward()
        optimizer = torch.optim.Adam([weight])
        optimizer.step()
        torch.save({"model": {"w": weight.detach()}, "optimizer": optimizer.state_dict()}, place / "state.pt")
    return tmp_path


def _files(step, *names):
    return tuple(f"step-{step}/{one}.pt" for one in names)


@pytest.mark.parametrize("early", [(), ("rng-1",), ("rng-0", "rng-1")])
def test_what_a_rank_ahead_has_written_a_step_early_belongs_to_the_folder(folder, early):
    late = [one for one in ("rng-0", "rng-1", "state") if one not in early]
    changes = {3: _files(3, "rng-0", "rng-1", "state"), 4: _files(5, *early), 5: _files(5, *late)}
    found = found_in(folder, changes, 5, ())
    assert (found.path, found.step) == (folder / "step-5", 5)


def test_what_was_written_long_before_does_not(folder):
    changes = {3: _files(5, "rng-1"), 5: _files(5, "rng-0", "state")}
    found = found_in(folder, changes, 5, ())
    assert found.path == folder / "step-5" / "state.pt"


PREFERRED = [((), 3), ((5, 3), 5), ((4, 5), 5), ((4, 7), 3), ((6,), 3)]


@pytest.mark.parametrize(("preferred", "step"), PREFERRED)
def test_a_preferred_step_is_taken_where_something_was_saved_after_it(folder, preferred, step):
    """Saved after 3 and 5; half of 6 steps is 3, and after the last one nothing is left to resume."""
    changes = {1: ("log.txt",), 3: _files(3, "state"), 5: _files(5, "state"), 6: _files(5, "state")}
    assert chosen_step(folder, changes, 6, preferred) == step
