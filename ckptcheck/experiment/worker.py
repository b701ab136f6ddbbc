"""The worker process: one fresh interpreter that builds a target, loads, trains, saves and records.

Started as `python -P -m ckptcheck.experiment.worker JOB.json EVENTS_FD ACK_FD`. It tells what it does as JSON
lines on EVENTS_FD; what the user's code prints goes to its standard output and error, untouched.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ckptcheck.errors import CkptcheckError, StoreError, TargetError
from ckptcheck.experiment.job import Job
from ckptcheck.experiment.operations import named_operations
from ckptcheck.experiment.raised import one_line
from ckptcheck.experiment.run import Context, Run

OUR_ROOT = str(Path(__file__).resolve().parent.parent)


class Teller:
    """Writes events for the parent, and remembers where the run is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        self.phase = "start"
        self.step: int | None = None

    def at(self, phase: str, step: int | None = None) -> None:
        """The run enters a phase."""
        self.phase, self.step = phase, step
        self.tell({"phase": phase, "step": step})

    def tell(self, event: dict[str, Any]) -> None:
        """Send one event."""
        if os.getpid() == self._process:  # what the user's code forks has nothing to tell
            os.write(self._descriptor, (json.dumps(event) + "\n").encode())


def main(arguments: list[str]) -> int:
    """Do one job; 0 when it came to its end, 1 otherwise. Never raises for what the user's code does."""
    job = Job.from_json(Path(arguments[0]).read_text())
    teller = Teller(int(arguments[1]))
    return carried_out(teller, lambda: Trial(job, teller, int(arguments[2])).run())


def carried_out(teller: Teller, work: Callable[[], None]) -> int:
    """Do the work and tell how it ended; 0 when it came to its end, 1 otherwise."""
    teller.at("start")
    try:
        work()
    except StoreError as error:  # the store's own word on a save or load that the target asked for
        teller.tell({"raised": str(error)})
        return 1
    except CkptcheckError as error:
        teller.tell({"refused": str(error)})
        return 1
    except BaseException as error:  # noqa: BLE001  the user's code may raise anything, and it is told
        _print_without_our_frames(error)
        teller.tell({"raised": one_line(error)})
        return 1
    teller.tell({"ended": True})
    return 0


class Trial:
    """One run of a target from its build to its last step."""

    def __init__(self, job: Job, teller: Teller, acknowledgements: int) -> None:
        self._job = job
        self._teller = teller
        self._acknowledgements = acknowledgements
        self._training_s = 0.0

    def run(self) -> None:
        """Build, load, train and save as the job says."""
        import torch

        job, teller = self._job, self._teller
        device = device_of(torch, job.device)
        if job.deterministic:
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        from ckptcheck.experiment.target import check_run, load_factory

        teller.at("import")
        factory = load_factory(job.target)
        teller.at("build")
        context = Context(device=device, seed=job.seed, workdir=job.workdir)
        with named_operations(teller) if job.warn else nullcontext():
            self._train(check_run(job.target, factory(context)))

    def _train(self, run: Run) -> None:
        from ckptcheck.experiment.recording import Recording

        job, teller = self._job, self._teller
        own = bool(job.store or run.save is None)
        teller.tell({"facts": {"freeze": dict(run.freeze), "own_store": own}})
        with Recording(job, run, self._captured) if job.trace else nullcontext() as recording:
            if job.dry_run is not None:
                from ckptcheck.experiment.dry_run import try_load

                try_load(job, run, recording, teller)
                return
            if job.load_from is not None:
                if recording:
                    recording.built(job.first - 1)
                teller.at("load")
                self._load(run, own)
            if job.overlay is not None and job.overlay_from is not None:
                from ckptcheck.experiment.overlay import put_back

                teller.at("overlay")
                put_back(job.overlay_from, job.overlay, run)
            if recording:
                recording.load(job.first - 1)
                teller.tell({"facts": recording.facts})
            for step in range(job.first, job.last + 1):
                self._one_step(run, recording, step)
                if step in job.saves:
                    self._save(run, recording, step, own)
                if step in job.keeps:
                    self._keep(run, step)
            teller.at("end")
            if recording:
                recording.finish(job.last)
            cost = recording.cost_s if recording else 0.0
        teller.tell({"training_s": self._training_s, "recording_s": cost})

    def _one_step(self, run: Run, recording: Any, step: int) -> None:
        self._teller.at("step", step)
        if recording:
            recording.begin(step)
        started = time.perf_counter()
        loss = run.step(step)
        self._training_s += time.perf_counter() - started
        if recording:
            recording.end(step, loss)

    def _save(self, run: Run, recording: Any, step: int, own: bool) -> None:
        self._teller.at("save", step)
        if recording:
            recording.saved(step)
        path = self._job.saves[step]
        path.parent.mkdir(parents=True, exist_ok=True)
        if own:
            from ckptcheck.store.save import save_run

            save_run(path, run, step)
        elif run.save is not None:
            run.save(path)
        if recording:
            recording.after_save(step)

    def _keep(self, run: Run, step: int) -> None:
        from ckptcheck.experiment.overlay import keep

        self._teller.at("keep", step)
        folder = self._job.keeps[step]
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._teller.tell({"facts": {"kept": keep(folder, run, step)}})

    def _load(self, run: Run, own: bool) -> None:
        path = self._job.load_from
        assert path is not None
        if own:
            from ckptcheck.store.load import load_run

            load_run(path, run)
        elif run.load is not None:
            run.load(path)

    def _captured(self, step: int, moment: str) -> None:
        """Hand a captured moment to the parent and wait until it has been compared: storage stays bounded."""
        self._teller.tell({"captured": [step, moment]})
        if not os.read(self._acknowledgements, 1):
            raise SystemExit("the checker has gone away")


def device_of(torch: Any, name: str) -> Any:
    """The torch.device of a name. TargetError for one that is unknown, not there, or not checked on."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise TargetError(f"--device {name!r} is no device that torch knows: use cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TargetError(f"--device {name} asks for a GPU, and torch finds none here: use --device cpu")
    if device.type not in ("cpu", "cuda"):
        raise TargetError(f"--device {name}: runs are checked on cpu and cuda only")
    return device


def _print_without_our_frames(error: BaseException) -> None:
    told = traceback.TracebackException.from_exception(error)
    one: Any = told
    while one is not None:
        frames = [frame for frame in one.stack if not frame.filename.startswith(OUR_ROOT)]
        one.stack = traceback.StackSummary.from_list(frames)
        one = one.__cause__ or one.__context__
    sys.stderr.write("".join(told.format()))
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
