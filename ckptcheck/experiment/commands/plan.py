"""The runs of a resume experiment on commands: what is started, in which folder, from which checkpoint."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.progress import Progress


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """How to experiment on commands.

    Attributes:
        run: the command of the uninterrupted run, as a shell would take it; `{dir}` is the run's output folder.
        resume: the command that resumes; `{dir}` is its own copy of that folder, `{ckpt}` the checkpoint in it.
        steps: stop every run after this step; None to let it come to its own end.
        resume_at: the step after which the folder is copied; None to choose one after which something was saved.
        folder: the working folder of the commands; None for the current one. Without `{dir}` in `run`, each run works
            in its own copy of it.
        shared: globs of what such a copy links to rather than copies: large data that is only read.
        environment: variables to set for every run, beside the present ones.
        online: leave experiment trackers and hubs as they are.
        interrupt: (number of a signal, step): what ends the run that is resumed, in place of a copy of its folder.
        digest: None for the best that the script's interpreter has.
        timeout_s: how long a run may make no progress.
        jobs: runs side by side; None for what suits the device.
        every, only, grads: as in `Orders`.
    """

    run: str
    resume: str
    steps: int | None = None
    resume_at: int | None = None
    folder: Path | None = None
    shared: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    online: bool = False
    interrupt: tuple[int, int] | None = None
    digest: str | None = None
    timeout_s: float = 600.0
    jobs: int | None = None
    every: int = 1
    only: tuple[str, ...] = ()
    grads: bool = True


class CommandExperiment(AbstractContextManager["CommandExperiment"]):
    """Makes the runs below one temporary folder, which is removed on exit."""

    def __init__(self, settings: CommandSettings, progress: Progress | None = None) -> None:
        self.settings = settings
        self._progress = progress

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    def whole(self, *, repeats: int) -> list[Recorded]:
        """The uninterrupted run and its repeats, in this order.

        Where no step to resume at was given, the reference shows after which steps something was saved, and the first
        repeat is made after it, to be copied at the one nearest to half of the steps: at least one repeat is then made.
        RunFailedError where one does not come to its end or trains no step.
        """
        raise NotImplementedError

    @property
    def source(self) -> str:
        """The name of the run whose folder was copied after step k: the reference, a repeat or an interrupted run."""
        raise NotImplementedError

    @property
    def resume_step(self) -> int:
        """The step after which the folder was copied, or at which the run was interrupted."""
        raise NotImplementedError

    def interrupted(self) -> Recorded:
        """A run that gets the signal after its step; how it ends is its affair."""
        raise NotImplementedError

    def resumed(self) -> Recorded:
        """The resumed run, in a copy of its own; how it ends is an outcome, not an error."""
        raise NotImplementedError

    @property
    def environment(self) -> Mapping[str, str]:
        """What was set for every run: trackers put offline, thread counts."""
        raise NotImplementedError
