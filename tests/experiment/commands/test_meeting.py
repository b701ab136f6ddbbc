"""Both sides of the rendezvous, the processes' in threads: they meet in files, wherever they run."""

import json
import os
import threading
from pathlib import Path

import pytest
import torch  # noqa: F401 - a recorded process has it

from ckptcheck.experiment.commands import meeting as parents
from ckptcheck.experiment.commands.meeting import Meeting, Steered
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.rendezvous import Rendezvous, is_alive, is_orphaned

LIMIT_S = 20.0


@pytest.fixture
def meeting(tmp_path):
    held = Meeting(tmp_path / "control")
    yield held
    held.close()


def orders(meeting: Meeting, **more: object) -> Orders:
    return Orders(traces=Path(), control=meeting.control, **more)


def in_thread(call) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def nothing() -> None:
    return None


def descriptors() -> set[Path]:
    return set(Path("/dev/fd").iterdir())


def until(condition) -> None:
    for _ in range(int(LIMIT_S / 0.01)):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen")


def test_a_script_without_a_parent_waits_for_nothing(tmp_path):
    told = Orders(traces=tmp_path, pause_after=2, last_step=3, hold=True, signal_after=(15, 1))
    for step in range(1, 5):
        Rendezvous(told).window_begins(step)
        Rendezvous(told).step_done(step)
    assert not list(tmp_path.iterdir())


def test_a_process_tells_its_steps_and_that_it_has_torch(meeting):
    assert not meeting.saw_torch
    there = Rendezvous(orders(meeting))
    assert meeting.saw_torch
    assert meeting.last_step is None
    for step in (1, 2, 10, 100):
        there.step_done(step)
        assert meeting.last_step == step


def test_nothing_is_written_into_a_file_that_the_script_opened_under_our_number(meeting, tmp_path):
    there = Rendezvous(orders(meeting))
    there.step_done(1)
    own = [os.open(tmp_path / f"own-{place}", os.O_RDWR | os.O_CREAT) for place in range(3)]
    before = descriptors()
    there.step_done(2)
    assert descriptors() == before, "no descriptor is kept that the script might close"
    for one in own:
        assert os.read(one, 10) == b""
        os.close(one)


@pytest.mark.parametrize(("bound", "held", "code"), [(True, False, -9), (True, True, 0), (False, False, 0)])
def test_a_run_whose_experiment_was_killed_ends_at_its_next_step(tmp_path, bound, held, code):
    meeting = Meeting(tmp_path / "control")
    if not held:
        meeting.close()
    child = os.fork()
    if child == 0:
        Rendezvous(orders(meeting, bound=bound)).step_done(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    meeting.close()


def test_a_run_whose_experiment_cannot_be_looked_at_goes_on(meeting):
    (meeting.control / "alive").unlink()
    assert not is_orphaned(meeting.control)
    assert not is_alive(meeting.control)


def test_what_changed_in_the_output_folder_is_told_step_by_step(meeting, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    (output / "before").write_text("")
    there = Rendezvous(orders(meeting, output=output, pause_after=5))
    meeting.let_go("copied")
    there.step_done(1)
    (output / "deep").mkdir()
    (output / "deep" / "new").write_text("1")
    there.step_done(2)
    (output / "before").write_text("longer")
    (output / "link").symlink_to("deep")
    there.step_done(3)
    (output / "before").unlink()
    there.step_done(4)
    (output / "deep" / "new").write_text("2")
    there.step_done(5)
    (output / "later").write_text("")
    there.step_done(6)
    told = {step: set(paths) for step, paths in meeting.changes().items()}
    assert told == {2: {"deep/new"}, 3: {"before", "link"}, 5: {"deep/new"}, 6: {"later"}}


def test_a_process_waits_until_its_folder_is_copied(meeting):
    there = Rendezvous(orders(meeting, pause_after=3))
    assert [there.waits_after(step) for step in (2, 3, 4)] == [False, True, False]
    there.step_done(2)
    done: list[str] = []
    steered = Steered(meeting, lambda: done.append("copied"), nothing)
    assert not steered.attend()
    assert done == []
    thread = in_thread(lambda: there.step_done(3))
    until(lambda: meeting.all_came("waiting"))
    assert thread.is_alive()
    assert not steered.attend()
    assert not steered.attend()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert done == ["copied"], "once"


def test_processes_go_on_where_the_copy_fails(meeting):
    def fail() -> None:
        raise OSError("no room")

    thread = in_thread(lambda: Rendezvous(orders(meeting, pause_after=3)).step_done(3))
    until(lambda: meeting.all_came("waiting"))
    with pytest.raises(OSError, match="no room"):
        Steered(meeting, fail, nothing).attend()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("asked", [{"pause_after": 3}, {"last_step": 3, "hold": True}])
def test_a_process_goes_on_when_its_parent_has_gone(meeting, asked):
    thread = in_thread(lambda: Rendezvous(orders(meeting, **asked)).step_done(3))
    until(lambda: len(list(meeting.control.glob("[ws]*.*"))) > 1)
    assert is_alive(meeting.control)
    meeting.close()  # as the system does for a process that was killed
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert not is_alive(meeting.control)


def test_a_process_that_has_done_its_steps_waits_to_be_ended(meeting):
    there = Rendezvous(orders(meeting, last_step=3, hold=True))
    there.step_done(2)
    steered = Steered(meeting, nothing, nothing)
    assert not steered.attend()
    in_thread(lambda: there.step_done(3))
    until(steered.attend)
    assert len(meeting.processes("stopped")) == 1


def test_a_signal_is_sent_while_the_process_waits_for_it(meeting):
    there = Rendezvous(orders(meeting, signal_after=(15, 7)))
    sent: list[int] = []
    there.window_begins(6)
    assert not meeting.all_came("signal")
    thread = in_thread(lambda: there.window_begins(7))
    until(lambda: meeting.all_came("signal"))
    Steered(meeting, nothing, lambda: sent.append(15)).attend()
    thread.join(LIMIT_S)
    there.window_begins(7)  # a second window of the same step waits no more
    assert sent == [15]


def test_what_the_step_before_a_signal_saved_is_told_before_it_may_kill(meeting, tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    there = Rendezvous(orders(meeting, output=output, signal_after=(15, 3)))
    (output / "last.pt").write_text("saved after step 3")
    in_thread(lambda: there.window_begins(3))
    until(lambda: meeting.all_came("signal"))
    assert meeting.changes() == {3: ("last.pt",)}


def test_all_ranks_are_waited_for_but_not_for_ever(meeting, monkeypatch):
    def comes(rank: int) -> None:
        told = {"rank": rank, "world_size": 3, "step": 5}
        (meeting.control / f"waiting.{rank}.{100 + rank}").write_text(json.dumps(told))

    assert not meeting.all_came("waiting")
    comes(0)
    comes(2)
    assert not meeting.all_came("waiting")
    comes(1)
    assert meeting.all_came("waiting")
    (meeting.control / "waiting.1.101").unlink()
    assert not meeting.all_came("waiting")
    monkeypatch.setattr(parents, "WAIT_FOR_RANKS_S", 0.0)
    assert meeting.all_came("waiting"), "a rank that never comes is given up"
