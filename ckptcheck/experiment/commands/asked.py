"""What is asked of a resume experiment on commands, and what follows from it before anything is started."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ckptcheck.errors import UsageError
from ckptcheck.experiment.commands import machine
from ckptcheck.experiment.commands.copies import Content, content_of
from ckptcheck.experiment.commands.offline import check_pushes_nothing, offline
from ckptcheck.experiment.commands.words import placeholders, split
from ckptcheck.trace.file import Trace

DIR: Final = "dir"
CKPT: Final = "ckpt"


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
        prefers: the steps that tell most when resumed after, from the trace of the uninterrupted run, the most telling
            first; of those after which something was saved, the first one is chosen.
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
    prefers: Callable[[Trace], Sequence[int]] | None = None

    def preferred(self, traces: Sequence[Trace]) -> Sequence[int]:
        """What is preferred after a run of these processes."""
        return self.prefers(traces[0]) if self.prefers is not None and traces else ()


@dataclass(frozen=True, slots=True)
class Asked:
    """Settings thought through.

    Attributes:
        run, resume: the words of the commands, with their placeholders.
        folder: the working folder, absolute.
        content: what each run's own copy of the working folder is made of; None where `run` has `{dir}`.
        trackers, threads: variables to set for every run.
        at_once: how many runs are made side by side.
    """

    run: tuple[str, ...]
    resume: tuple[str, ...]
    folder: Path
    content: Content | None
    trackers: Mapping[str, str]
    threads: Mapping[str, str]
    at_once: int

    @property
    def initial(self) -> frozenset[str]:
        """The files that are in a run's own folder before it begins, relative to it."""
        return frozenset(name for name, _ in self.content.files) if self.content is not None else frozenset()

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the resume command has `{ckpt}`."""
        return CKPT in placeholders(self.resume)


def asked_of(settings: CommandSettings, environment: Mapping[str, str]) -> Asked:
    """What settings ask for, in this environment. UsageError where it cannot be done."""
    run = split(settings.run, "--run", (DIR,))
    resume = split(settings.resume, "--resume", (DIR, CKPT))
    _check_numbers(settings)
    has_dir = DIR in placeholders(run)
    if DIR in placeholders(resume) and not has_dir:
        raise UsageError("--resume has {dir} and --run has not: name the output folder as {dir} in both")
    if settings.shared and has_dir:
        raise UsageError("--share is for runs in a copy of the working folder; with {dir} in --run nothing is copied")
    if not settings.online:
        check_pushes_nothing(run, "--run")
        check_pushes_nothing(resume, "--resume")
    try:
        folder = (settings.folder or Path()).resolve()
    except FileNotFoundError:
        raise UsageError("the current folder has been removed: go into one that is there, or give --folder") from None
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: the commands cannot run in it")
    present = {**environment, **settings.environment}
    at_once = settings.jobs or machine.default_at_once(run, present)
    return Asked(
        run=run,
        resume=resume,
        folder=folder,
        content=None if has_dir else content_of(folder, settings.shared),
        trackers={} if settings.online else offline(present),
        threads=machine.threads(run, at_once, present),
        at_once=at_once,
    )


def _check_numbers(settings: CommandSettings) -> None:
    at = settings.interrupt[1] if settings.interrupt is not None else settings.resume_at
    option = "--interrupt" if settings.interrupt is not None else "--resume-at"
    if settings.interrupt is not None and settings.resume_at is not None:
        raise UsageError("--interrupt names the step itself: leave --resume-at out")
    if settings.steps is not None and settings.steps < 2:
        raise UsageError(f"--steps {settings.steps} leaves nothing to resume: use at least 2")
    if at is not None and (at < 1 or (settings.steps is not None and at >= settings.steps)):
        upto = f" and below --steps {settings.steps}" if settings.steps is not None else ""
        raise UsageError(f"{option} names step {at}: it must be at least 1{upto}")


def check_step(settings: CommandSettings, step: int, last: int) -> None:
    """UsageError where a run makes no step after the one that is resumed after."""
    option = "--interrupt" if settings.interrupt is not None else "--resume-at"
    if step >= last:
        raise UsageError(f"{option} names step {step}, and --run makes {last} steps: name an earlier one")
