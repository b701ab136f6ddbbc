"""The worker's side of recording: a recorder on the run's objects, and the capture of tensors for a second pass."""

import os
import platform
import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch

from ckptcheck.experiment.job import Job
from ckptcheck.experiment.run import Run
from ckptcheck.state.flags import flags
from ckptcheck.state.tensor_bytes import default_algorithm
from ckptcheck.trace.capture import Capture
from ckptcheck.trace.file import TraceWriter
from ckptcheck.trace.recorder import Recorder
from ckptcheck.trace.subjects import from_run


class Recording(AbstractContextManager["Recording"]):
    """Records a run as its job says; where the job asks for it, lays captured tensors out for the parent."""

    def __init__(self, job: Job, run: Run, captured: Any) -> None:
        assert job.trace is not None
        self._captured = captured
        self._capture = Capture(job.capture, job.wanted) if job.capture and job.wanted else None
        algorithm = job.digest or default_algorithm({job.device.split(":")[0]})
        self.facts = environment(job)
        header = {"run": job.name, "digest": algorithm, "rank": 0, "world_size": 1, "pid": os.getpid(), **self.facts}
        self._writer = TraceWriter(job.trace, header)
        self._recorder = Recorder(from_run(run), self._writer, algorithm, self._capture.take if self._capture else None)

    def __enter__(self) -> "Recording":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.__exit__(kind, value, trace)
        self._writer.close(clean=kind is None)

    @property
    def cost_s(self) -> float:
        """Seconds spent recording so far."""
        return self._recorder.cost_s

    def built(self, step: int) -> None:
        """The run is built and nothing is loaded yet."""
        self._recorder.built(step)

    def load(self, step: int) -> None:
        """The run is built and loaded; from here on its hooks listen."""
        self._recorder.load(step)
        self._hand_over(step, "load")
        self._recorder.__enter__()

    def begin(self, step: int) -> None:
        """Step `step` begins."""
        self._recorder.begin(step)

    def end(self, step: int, loss: Any) -> None:
        """Step `step` has ended."""
        self._recorder.end(step, loss)
        self._hand_over(step, "step")

    def saved(self, step: int) -> None:
        """The state after `step` is about to be saved."""
        self._recorder.saved(step)
        self._hand_over(step, "saved")

    def after_save(self, step: int) -> None:
        """Saving has returned."""
        self._recorder.after_save(step)

    def finish(self, step: int) -> None:
        """The run has ended after `step`."""
        self._recorder.finish(step)

    def _hand_over(self, step: int, moment: str) -> None:
        if self._capture and self._capture.close(step, moment):
            self._captured(step, moment)


def environment(job: Job) -> dict[str, Any]:
    """Versions, devices and switches of this process, for the header of a trace and the result."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": job.device,
        "flags": flags(),
    }
    if job.device.startswith("cuda"):
        facts["device_name"] = torch.cuda.get_device_name(torch.device(job.device))
        facts["cuda"] = torch.version.cuda
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        facts["numpy"] = numpy.__version__
    return facts
